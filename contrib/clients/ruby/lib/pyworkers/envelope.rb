# frozen_string_literal: true

require "openssl"
require "securerandom"

module Pyworkers
  # A job to be pushed.
  #
  # @!attribute at [Float, nil] when it is due, in epoch seconds; nil for now
  # @!attribute asked [Hash{String => Object}] options of the enqueue script; nearly all jobs have none
  # @!attribute lock [String, nil] the key of its lock
  # @!attribute wait [Numeric] seconds to wait for room in its queue
  # @!attribute batch [String, nil] the id of its batch, once its payload has it
  # @api private
  Job = Struct.new(:jid, :queue, :payload, :at, :asked, :lock, :wait, :batch, keyword_init: true)

  # Queue, class and options of an enqueue call, checked once for any number of jobs.
  #
  # @api private
  class Draft
    # How long the status of a job is kept that has not ended, after its last change.
    ALIVE_S = 30 * 86_400
    MAX_BYTES = 128 * 1024 * 1024

    # @param now [Float] epoch seconds
    # @raise [BadArgumentError, EncryptionKeyError]
    def initialize(queue, job_class, options, keyring: nil, now: Time.now.to_f)
      Options.check_names(queue, job_class)
      @options = Options.checked(options)
      if @options[:encrypt] && keyring.nil?
        raise EncryptionKeyError.new("encrypt: true, but there are no keys", hint: "give the client its keys: encryption: [key]")
      end

      @queue = queue
      @job_class = job_class
      @keyring = keyring
      @now = now
      @at = Options.due_at(@options, now)
      policy = @options.key?(:retry) ? {"retry" => @options[:retry]} : {}
      @head = "#{Json.encode({**policy, "queue" => queue, "class" => job_class}, "job").chop},\"args\":"
      @middle = "#{members(Options.fields_of(@options))},\"jid\":"
    end

    # @param later [Boolean] a server pushes it later, and adds the time of its enqueue
    # @return [Job]
    def job(args, path: "args", later: false)
      jid = @options[:jid] || SecureRandom.hex(12)
      plain = encoded(args, path)
      lock = lock(args, path)
      key = members(lock ? {"unique_key" => lock} : {})
      payload = "#{@head}#{sealed(plain, jid)}#{@middle}#{Json.encode(jid, "jid")}#{key}#{times(later)}"
      if payload.bytesize > MAX_BYTES
        raise BadArgumentError, "#{path}: a job of #{payload.bytesize} bytes; the limit is #{MAX_BYTES}"
      end

      job_of(jid, payload, lock)
    end

    # A job for each list of arguments, made when it is asked for.
    #
    # @return [Enumerator::Lazy<Job>]
    def jobs(args_list)
      raise BadArgumentError, "jid cannot be given for several jobs" if @options.key?(:jid)
      unless args_list.respond_to?(:each_slice)
        raise BadArgumentError.new("args_list is of type #{args_list.class}, not a list of arguments", hint: "write [[a, b], [c, d]], a list for each job")
      end

      args_list.lazy.with_index.map { |args, at| job(args, path: "args_list[#{at}]") }
    end

    # A job of Sidekiq's client.
    #
    # @yieldparam fields [Hash] the fields of the envelope that this client adds
    # @yieldreturn [String] the payload
    # @return [Job]
    def for_sidekiq(args, jid, at)
      @at = at
      plain = encoded(args, "args")
      lock = lock(args, "args")
      fields = Options.fields_of(@options)
      fields["unique_key"] = lock if lock
      fields["expiry"] = (@at || @now) + @options[:expires_in] if @options[:expires_in]
      fields["args"] = [@keyring.seal(plain, jid, @job_class)] if @options[:encrypt]
      job_of(jid, yield(fields), lock)
    end

    private

    def job_of(jid, payload, lock)
      Job.new(jid: jid, queue: @queue, payload: payload, at: @at, asked: asked(jid, lock), lock: lock, wait: @options.fetch(:wait, 0))
    end

    def encoded(args, path)
      return Json.encode(args, path) if args.is_a?(Array)

      form = path == "args" ? "[a, b]" : "[[a, b], [c, d]], a list for each job"
      raise BadArgumentError.new("#{path} is of type #{args.class}, not a list of arguments", hint: "write #{form}")
    end

    def sealed(plain, jid)
      @options[:encrypt] ? Json.encode([@keyring.seal(plain, jid, @job_class)], "args") : plain
    end

    def times(later)
      enqueued = ",\"enqueued_at\":#{@now}" if @at.nil? && !later
      expiry = ",\"expiry\":#{(@at || @now) + @options[:expires_in]}" if @options[:expires_in]
      ",\"created_at\":#{@now}#{enqueued}#{expiry}}"
    end

    # The members of an object, each with a comma in front.
    def members(fields)
      fields.map { |name, value| ",#{Json.encode(name, "extra")}:#{Json.encode(value, name)}" }.join
    end

    def lock(args, path)
      return unless @options[:unique_for]

      keyring = @keyring if @options[:encrypt]
      key = Unique.key(@queue, @job_class, args, by: @options[:unique_by], path: path, keyring: keyring)
      @options[:unique_until] == "expiry" ? "#{key}|expiry" : key
    end

    def asked(jid, lock)
      later = @at ? @at - @now : 0
      asked = {"max_waiting" => @options[:max_waiting]}
      if lock
        asked["lock"] = [1, ((@options[:unique_for] + later) * 1000).to_i].max
        asked["on_duplicate"] = @options.fetch(:on_duplicate, "skip")
      end
      if @options[:track] && trackable?(jid)
        asked["status"] = [ALIVE_S + later.to_i, 1_000_000_000].min
        asked["history"] = 1 if @options[:history]
      end
      asked.compact
    end

    # False for an id that cannot be a part of the key of a status.
    def trackable?(jid) = jid.length <= 256 && jid.match?(Results::PRINTABLE)
  end

  # The lock of a unique job.
  module Unique
    SHOWN = 64
    CUT = 47
    private_constant :SHOWN, :CUT

    module_function

    # The name of the lock of a job (+unique_key+). Every language computes the same.
    #
    # @param by [Object, Proc, nil] what counts as the same instead of all arguments
    # @return [String]
    # @raise [BadArgumentError]
    def key(queue, job_class, args, by: nil, path: "args", keyring: nil)
      chosen = by.respond_to?(:call) ? by.call(*args) : by
      text = chosen.nil? ? Json.canonical(args, path) : Json.canonical(chosen, "unique_by")
      digest = keyring ? keyring.digest(text) : OpenSSL::Digest.hexdigest("SHA256", text)
      "#{shown(job_class)}|#{shown(queue)}|#{digest[0, 32]}"
    end

    # @api private
    def shown(name)
      return name if name.length <= SHOWN && !name.include?("|")

      "#{name[0, CUT].tr("|", "_")}…#{OpenSSL::Digest.hexdigest("SHA256", name)[0, 16]}"
    end
  end
end
