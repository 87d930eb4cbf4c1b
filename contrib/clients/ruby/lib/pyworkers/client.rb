# frozen_string_literal: true

module Pyworkers
  # Enqueues jobs, and reads their status and their results. Safe to share between threads if its Redis is.
  class Client
    CANCEL = Script.new("cancel.lua")
    private_constant :CANCEL

    # @param redis [Redis, RedisClient, ConnectionPool] stays the caller's; a wait for a result opens a connection like it
    # @param namespace [String] the prefix of all keys, with its colon, as +"app:"+
    # @param encryption [Array<String>, nil] the keys of jobs with +encrypt+: 32 bytes each, or their base64; the newest first
    def initialize(redis, namespace: "", encryption: nil)
      unless namespace.is_a?(String) && namespace.match?(/\A(?:[^[:space:]]*:)?\z/)
        raise BadArgumentError, "namespace must be empty or end with a colon, without white space, not #{namespace.inspect}"
      end

      @keys = Keys.new(namespace)
      @connection = Connection.new(redis, @keys.own("wire"))
      @keyring = encryption && Keyring.new(encryption)
      @push = Push.new(@connection, @keys)
      @results = Results.new(@connection, @keys)
      @enlisting = Enlisting.new(@connection, @keys, @keyring)
    end

    # Enqueue one job. When this returns, Redis has the job. Times are in seconds.
    #
    # @param queue [String]
    # @param job_class [String]
    # @param args [Array] JSON values
    # @param options [Hash]
    # @option options [Numeric] :delay until the job is due
    # @option options [Time, Numeric] :at when the job is due; a time in the past is now
    # @option options [Boolean, Integer] :retry retries; true: 25, false: a failed job is dropped
    # @option options [Numeric] :retry_for retry for this time, instead of a number of times
    # @option options [String] :retry_queue the queue of the retries
    # @option options [Integer] :retry_max the retries if +retry+ is true
    # @option options [Boolean] :dead keep the job in +dead+ when its retries are used up
    # @option options [Boolean, Integer] :backtrace lines of the traceback to store with a failed job
    # @option options [Numeric] :timeout the time that the job may run
    # @option options [Numeric, nil] :expires_in the job is dropped if it has not started by this time after it is due
    # @option options [Numeric, nil] :track {#status} and {#result} know the job for this time after its end
    # @option options [Boolean] :history keep the job as it was enqueued, and each run with its error, as long
    # @option options [Numeric, nil] :unique_for for this time after its delay, a job with the same class, queue and
    #   arguments is a duplicate
    # @option options [String] :unique_until when that ends earlier: +success+, +start+ or +expiry+
    # @option options [Proc, Object] :unique_by what counts as the same instead of all arguments
    # @option options [String] :on_duplicate +skip+, +raise+, or +replace+ a job that is still scheduled
    # @option options [Integer, nil] :max_waiting with this many jobs in the queue, the job is not enqueued
    # @option options [Numeric] :wait how long to wait for room in the queue first
    # @option options [Boolean] :encrypt seal the arguments
    # @option options [Array<String>] :tags labels, which Sidekiq's Web UI shows
    # @option options [String] :jid the id of the job
    # @option options [Hash] :extra fields of your own in the envelope
    # @return [String] the jid; for a duplicate, the jid of the job that is there
    # @raise [BadArgumentError] with the path of an invalid value
    # @raise [QueueFullError, DuplicateJobError, StoreError] and the job is not enqueued
    # @raise [RedisUnavailableError] and it is unknown whether Redis has the job
    def enqueue(queue, job_class, args = [], **options)
      job = Draft.new(queue, job_class, options, keyring: @keyring).job(args)
      @push.call([job]).fetch(job.jid, job.jid)
    end

    # {#enqueue}, or nil if the queue is full (+max_waiting+).
    #
    # @param (see #enqueue)
    # @return [String, nil]
    def try_enqueue(queue, job_class, args = [], **options)
      enqueue(queue, job_class, args, **options)
    rescue QueueFullError
      nil
    end

    # {#enqueue} for +delay+ seconds from now.
    #
    # @return [String]
    def enqueue_in(delay, queue, job_class, args = [], **options) = enqueue(queue, job_class, args, **options, delay: delay)

    # {#enqueue} for a time.
    #
    # @param at [Time, Numeric]
    # @return [String]
    def enqueue_at(at, queue, job_class, args = [], **options) = enqueue(queue, job_class, args, **options, at: at)

    # Enqueue one job for each list of arguments.
    #
    # Sent 1000 or 16 MB at a time: when this raises, the portions before the failing one are in Redis.
    #
    # @param args_list [Enumerable<Array>]
    # @return [Array<String>] their jids, in that order
    def enqueue_bulk(queue, job_class, args_list, **options)
      jobs = Draft.new(queue, job_class, options, keyring: @keyring).jobs(args_list)
      Push.portions(jobs).flat_map do |portion|
        others = @push.call(portion)
        portion.map { |job| others.fetch(job.jid, job.jid) }
      end.to_a
    end

    # @return [JobStatus] of a job that is enqueued with +track+; +:unknown+ for any other
    def status(jid) = @results.status(jid)

    # What a job returned that is enqueued with +track+, or what a batch or a chain returned. The wait is one blocking
    # read on its own connection.
    #
    # @param timeout [Numeric, nil] seconds; nil: without a limit
    # @return [Object]
    # @raise [JobFailedError] if it has ended without a result
    # @raise [ResultTimeout]
    # @raise [UntrackedJobError] at once if nothing is known of the job
    def result(jid, timeout: 10) = @results.result(jid, timeout)

    # Cancel a job. Reads all waiting jobs.
    #
    # @return [Symbol] +:removed+: it was waiting; +:noted+: it is not waiting. A running one is asked to end within a
    #   second, and its worker is killed if it still runs two seconds later; an unknown one is not started for a day
    def cancel(jid)
      Results.check_jid(jid)
      names = [@keys.own("cancelled"), @keys.schedule, @keys.retry, @keys.queues]
      day = Time.now.utc.strftime("%F")
      about = "searching"
      place = ""
      about, place = CANCEL.call(@connection, names, [jid, place, day, @keys.namespace]) while about == "searching"
      about.to_sym
    end

    # Make a batch of the jobs that a block adds. If the block raises, nothing is enqueued.
    #
    # @param description [String] for people
    # @param tags [Array<String>] texts by which people find the batch
    # @param missing [String] +fail+ or +ignore+: what cancelled, deleted, expired and missing members mean
    # @param callbacks [Hash{Symbol => Step}] +on_success+: all members are done; +on_complete+: each has run at least
    #   once; +on_death+: the first has ended that is not done; +on_cancel+: the batch is cancelled
    # @yieldparam members [Members]
    # @return [Batch]
    def batch(description: "", tags: [], missing: "fail", **callbacks, &block)
      @enlisting.open(description, tags, missing, callbacks, &block)
    end

    # @return [Batch] the batch with this id, for its status and its result, and to add members
    def batch_of(id)
      Results.check_jid(id)
      Batch.new(@enlisting, id)
    end

    # Enqueue jobs that run one after the other; the first one now.
    #
    # @param steps [Array<Step>]
    # @param callbacks (see #batch)
    # @return [Batch]
    def chain(*steps, **callbacks) = @enlisting.chain(steps.flatten, callbacks)

    # Push jobs of Sidekiq's client.
    #
    # @api private
    # @param payloads [Array<Hash>] each with +pyworkers+, the options
    # @return [Hash{String => String}] (see Push#call)
    def push_for_sidekiq(payloads)
      jobs = payloads.map { |payload| SidekiqJob.of(payload, @keyring) }
      Push.portions(jobs).map { |portion| @push.call(portion) }.reduce({}, :merge)
    end
  end
end
