# frozen_string_literal: true

require "json"

module Pyworkers
  # JSON as pyworkers writes and reads it: every value is checked.
  module Json
    # Levels of lists and hashes below an argument that a server reads.
    MAX_DEPTH = 500
    # Digits of an integer that a server reads.
    MAX_DIGITS = 4300
    ESCAPED = /["\\\x00-\x1f]/
    ESCAPES = {
      '"' => '\"', "\\" => "\\\\", "\b" => '\b', "\f" => '\f', "\n" => '\n', "\r" => '\r', "\t" => '\t'
    }.freeze
    FIXES = {
      "Symbol" => "pass its text: value.to_s",
      "Time" => "pass its text: value.iso8601",
      "Date" => "pass its text: value.iso8601",
      "DateTime" => "pass its text: value.iso8601",
      "BigDecimal" => "pass its text: value.to_s",
      "Rational" => "pass its text: value.to_s",
      "Set" => "pass a list: value.to_a",
      "Range" => "pass a list: value.to_a",
      "Proc" => "call it, and pass the result",
      "Pyworkers::Placeholder" => "RESULT and BATCH_ID are for steps: chain(first, Pyworkers.step(queue, job_class, [Pyworkers::RESULT]))"
    }.freeze
    private_constant :ESCAPED, :ESCAPES, :FIXES

    module_function

    # @param value [Object]
    # @param path [String] names the value in errors
    # @return [String] its compact JSON text
    # @raise [BadArgumentError] for a value that JSON does not carry, with its path
    def encode(value, path) = write(value, path, false, 0)

    # The canonical text of a value (RFC 8785, integers with all their digits), which every language computes alike.
    #
    # @param (see encode)
    # @return [String]
    # @raise (see encode)
    def canonical(value, path = "value") = write(value, path, true, 0)

    # @param text [String]
    # @return [Object] the value
    def decode(text) = JSON.parse(text, max_nesting: false)

    # @api private
    def write(value, path, canonical, depth)
      case value
      when nil then "null"
      when true, false then value.to_s
      when Integer then integer(value, path)
      when String then text(value, path)
      when Float
        raise BadArgumentError, "#{path} is #{value}, which is not a JSON number" unless value.finite?

        canonical ? double(value) : value.to_s
      when Array, Hash
        if depth > MAX_DEPTH
          raise BadArgumentError, "#{path[0, 60]}… is nested deeper than #{MAX_DEPTH} levels"
        end

        value.is_a?(Array) ? list(value, path, canonical, depth) : object(value, path, canonical, depth)
      else refuse(value, path)
      end
    end

    # @api private
    def integer(value, path)
      digits = value.to_s
      return digits if digits.delete_prefix("-").length <= MAX_DIGITS

      raise BadArgumentError.new("#{path} is an integer of more than 4,300 digits", hint: "pass it as a text: value.to_s(16)")
    end

    # @api private
    def list(value, path, canonical, depth)
      items = value.each_with_index.map { |item, at| write(item, "#{path}[#{at}]", canonical, depth + 1) }
      "[#{items.join(",")}]"
    end

    # @api private
    def object(value, path, canonical, depth)
      names = value.keys
      unless names.all?(String)
        name = names.find { |one| !one.is_a?(String) }
        raise BadArgumentError.new("#{path} has the key #{name.inspect}; JSON keys are strings", hint: "write value.transform_keys(&:to_s)")
      end
      # By UTF-16 code units; a name is checked before it is compared.
      texts = names.to_h { |name| [name, text(name, "#{path} key #{name.inspect}")] }
      names = names.sort_by { |name| name.encode(Encoding::UTF_16BE).b } if canonical
      members = names.map { |name| "#{texts[name]}:#{write(value[name], "#{path}[#{name.inspect}]", canonical, depth + 1)}" }
      "{#{members.join(",")}}"
    end

    # @api private
    def text(value, path)
      utf8 = value.encoding == Encoding::UTF_8 ? value : value.encode(Encoding::UTF_8)
      unless utf8.valid_encoding?
        place = utf8.each_char.find_index { |char| !char.valid_encoding? }
        raise BadArgumentError, "#{path} holds a lone surrogate, or other invalid UTF-8, at character #{place}"
      end
      return %("#{utf8}") unless utf8.match?(ESCAPED)

      %("#{utf8.gsub(ESCAPED) { |char| ESCAPES[char] || format('\u%04x', char.ord) }}")
    rescue EncodingError
      raise BadArgumentError.new("#{path} is a text in #{value.encoding}, which is not UTF-8", hint: "pass Base64.strict_encode64(value)")
    end

    # ECMAScript's Number::toString; Ruby's shortest digits are the same.
    # @api private
    def double(value)
      return "0" if value.zero?

      whole, fraction, exponent = value.abs.to_s.match(/\A(\d+)\.(\d+)(?:e([+-]\d+))?\z/).captures
      digits = (whole + fraction).sub(/\A0+/, "")
      # The place of the point, counted from the first digit.
      point = whole.length + exponent.to_i - (whole.length + fraction.length - digits.length)
      "#{"-" if value.negative?}#{placed(digits.sub(/0+\z/, ""), point)}"
    end

    # @api private
    def placed(digits, point)
      return digits.ljust(point, "0") if point.between?(digits.length, 21)
      return "#{digits[0, point]}.#{digits[point..]}" if point.between?(1, 21)
      return "0.#{"0" * -point}#{digits}" if point.between?(-5, 0)

      "#{digits[0]}#{".#{digits[1..]}" if digits.length > 1}e#{format("%+d", point - 1)}"
    end

    # @api private
    def refuse(value, path)
      hint = FIXES.fetch(value.class.name.to_s, "JSON carries nil, true, false, Integer, Float, String, Array and Hash")
      raise BadArgumentError.new("#{path} is of type #{value.class}, which JSON does not carry", hint: hint)
    end
  end
end
