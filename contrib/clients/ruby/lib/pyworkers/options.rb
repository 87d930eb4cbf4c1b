# frozen_string_literal: true

require "did_you_mean"

module Pyworkers
  # The options of an enqueue call: each with its rule and its field of the envelope.
  #
  # @api private
  module Options
    # @!attribute fits [Proc] true for a valid value
    # @!attribute rule [String] the valid values, in words
    # @!attribute field [Boolean] it is written into the envelope under its name
    # @!attribute needs [Symbol, nil] the option without which it has no effect
    Option = Struct.new(:fits, :rule, :field, :needs, keyword_init: true)

    LATEST = 253_402_300_799
    NUMBER = ->(value) { (value.is_a?(Integer) || value.is_a?(Float)) && value.to_f.finite? }
    FLAG = ->(value) { value == true || value == false }
    COUNT = ->(value) { value.is_a?(Integer) && value >= 0 }
    FLAG_OR_COUNT = ->(value) { FLAG[value] || COUNT[value] }
    LIFE = ->(value) { value.nil? || (NUMBER[value] && value.positive? && value <= 1e9) }
    LIFE_RULE = "seconds above 0 and up to 1e+09, or nil"
    # What Python's \s matches.
    QUEUE = /\A[^\u0000-\u0020\u007f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000|]{1,128}\z/
    RESERVED_QUEUE = /\A(?:queue:|backup::)|:inprogress\z/
    QUEUE_RULE = "a queue name has 1 to 128 characters, no white space, control character or '|', does not start with " \
                 "'queue:' or 'backup::', and does not end with ':inprogress'"

    def self.option(fits, rule, field: true, needs: nil) = Option.new(fits: fits, rule: rule, field: field, needs: needs)
    private_class_method :option

    # A text in valid UTF-8 that can be a queue.
    def self.queue_name?(name)
      name.is_a?(String) && name.encoding.ascii_compatible? && (utf8 = name.dup.force_encoding(Encoding::UTF_8)).valid_encoding? &&
        utf8.match?(QUEUE) && !utf8.match?(RESERVED_QUEUE)
    end

    ALL = {
      retry: option(FLAG_OR_COUNT, "true, false or a number of retries"),
      backtrace: option(FLAG_OR_COUNT, "true, false or a number of lines"),
      dead: option(FLAG, "true or false"),
      tags: option(->(value) { value.is_a?(Array) && value.all?(String) }, "a list of strings"),
      retry_for: option(->(value) { NUMBER[value] && value.between?(0, 1e9) }, "seconds up to 1e+09"),
      retry_queue: option(method(:queue_name?).to_proc, "the name of a queue"),
      retry_max: option(COUNT, "a number of retries"),
      timeout: option(->(value) { NUMBER[value] && value.positive? }, "seconds above 0"),
      track: option(LIFE, LIFE_RULE),
      history: option(FLAG, "true or false", needs: :track),
      unique_for: option(LIFE, LIFE_RULE),
      unique_until: option(->(value) { %w[success start expiry].include?(value) }, "success, start or expiry", needs: :unique_for),
      unique_by: option(->(_) { true }, "a proc of the arguments, or what it returns", field: false, needs: :unique_for),
      on_duplicate: option(->(value) { %w[skip raise replace].include?(value) }, "skip, raise or replace", field: false, needs: :unique_for),
      max_waiting: option(->(value) { value.nil? || (COUNT[value] && value >= 1) }, "a number of jobs from 1, or nil", field: false),
      wait: option(->(value) { NUMBER[value] && value >= 0 }, "seconds from 0", field: false, needs: :max_waiting),
      encrypt: option(FLAG, "true or false", field: false),
      expires_in: option(LIFE, LIFE_RULE, field: false),
      jid: option(->(value) { value.is_a?(String) && !value.empty? }, "a string that is not empty", field: false),
      extra: option(->(value) { value.is_a?(Hash) }, "a hash with fields of your own", field: false),
      delay: option(->(value) { NUMBER[value] && value >= 0 }, "seconds from 0", field: false),
      at: option(->(value) { value.is_a?(Time) || (NUMBER[value] && value >= 0) }, "a Time, or epoch seconds up to the year 9999", field: false)
    }.freeze
    # Fields of the envelope that no producer sets, in +extra+ either.
    RESERVED = %w[
      args class queue at created_at enqueued_at expiry cron unique_key encrypted failed_at retried_at discarded_at
      retry_count crash_count misfits misfit_at error_class error_message error_backtrace batch batch_index then fill
      checkpoint
    ].freeze

    module_function

    # @return [Hash] the options as plain values, without those that were not given
    # @raise [BadArgumentError]
    def checked(options)
      plain = options.to_h { |name, value| [name, plain(name, value)] }
      plain.each do |name, value|
        option = ALL.fetch(name) { raise unknown(name) }
        raise BadArgumentError, "#{name} must be #{option.rule}, not #{value.inspect}" unless option.fits[value]
        raise BadArgumentError, "#{name} has no effect without #{option.needs}" if option.needs && !plain.key?(option.needs)
      end
      check_extra(plain.fetch(:extra, {}))
      raise BadArgumentError, "delay and at exclude each other" if plain.key?(:delay) && plain.key?(:at)

      plain
    end

    # @return [Hash{String => Object}] the options as fields of the envelope, in the order of the call
    def fields_of(options)
      fields = options.select { |name, value| name != :retry && ALL[name].field && !value.nil? && !(name == :history && !value) }
      fields.delete(:unique_until) if options[:unique_for].nil?
      named = fields.transform_keys(&:to_s)
      named["encrypted"] = true if options[:encrypt]
      named.merge(options.fetch(:extra, {}))
    end

    # @return [Float, nil] the time at which a job is due, in epoch seconds; nil if it is not in the future
    def due_at(options, now)
      delay, at = options.values_at(:delay, :at)
      return if delay.nil? && at.nil?

      # Time#to_f is not exact.
      due = delay ? now + delay : at.to_r.to_f
      if due > LATEST
        raise BadArgumentError, delay ? "#{delay} from now is after the year 9999" : "#{at.inspect} is not a time: write epoch seconds up to the year 9999, or a Time"
      end

      due if due > now
    end

    def check_names(queue, job_class)
      raise BadArgumentError, "queue #{queue.inspect} cannot be a queue: #{QUEUE_RULE}" unless queue_name?(queue)
      # Sidekiq's metrics separate their fields by "|".
      if !job_class.is_a?(String) || job_class.empty? || job_class.include?("|")
        raise BadArgumentError, "#{job_class.inspect} cannot be a job class: a name without '|'"
      end

      Json.encode(job_class, "job_class")
    end

    # Durations and times of ActiveSupport as plain values; words may be symbols.
    def plain(name, value)
      return value.to_time if name == :at && value.respond_to?(:to_time) && !value.is_a?(String)
      return value.value if defined?(::ActiveSupport::Duration) && ::ActiveSupport::Duration === value

      %i[unique_until on_duplicate].include?(name) && value.is_a?(Symbol) ? value.to_s : value
    end

    def check_extra(extra)
      extra.each_key do |name|
        if ALL.key?(name.to_s.to_sym)
          raise BadArgumentError, "extra[#{name.inspect}] is not a field of your own: it is the option #{name}:"
        end
        raise BadArgumentError, "extra[#{name.inspect}] is not a field of your own: pyworkers writes it" if RESERVED.include?(name.to_s)
      end
      Json.encode(extra, "extra")
    end

    def unknown(name)
      near = DidYouMean::SpellChecker.new(dictionary: ALL.keys).correct(name).first
      message = "#{name} is not an option"
      message += ": did you mean #{near}?" if near
      BadArgumentError.new(message, hint: "a field of your own goes into extra: {\"#{name}\" => …}")
    end
  end
end
