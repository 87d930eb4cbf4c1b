# frozen_string_literal: true

module Pyworkers
  # The names of the keys under one namespace.
  #
  # @api private
  Keys = Struct.new(:namespace) do
    def queues = "#{namespace}queues"

    def schedule = "#{namespace}schedule"

    def retry = "#{namespace}retry"

    def queue(name) = "#{namespace}queue:#{name}"

    def own(name) = "#{namespace}pyworkers:#{name}"
  end

  # Pushes jobs: by two commands, as Sidekiq does, or by the enqueue script if the jobs have conditions.
  #
  # @api private
  class Push
    # Jobs that one script pushes, all or none. A gigabyte of them would block Redis for seconds.
    PORTION = 1000
    PORTION_BYTES = 16 * 1024 * 1024
    FIRST_PAUSE_S = 0.01
    LONGEST_PAUSE_S = 0.25
    PAUSE_GROWTH = 1.5
    SCRIPT = Script.new("push.lua")

    # @param why [String] +unknown+, +ended+ or +cancelled+
    # @return [BatchError]
    def self.refused(batch, why)
      reason = {
        "ended" => "has ended: all its members are done", "exists" => "exists already",
        "cancelled" => "is cancelled: it takes no more members"
      }.fetch(why, "is unknown: it has expired, or was deleted")
      BatchError.new("the batch #{batch} #{reason}")
    end

    # The jobs in portions: each ends with the job with which it has {PORTION} jobs, or {PORTION_BYTES}.
    #
    # @param jobs [Enumerable<Job>]
    # @return [Enumerator<Array<Job>>]
    def self.portions(jobs)
      number = bytes = 0
      jobs.slice_after do |job|
        number += 1
        bytes += job.payload.bytesize
        (number == PORTION || bytes >= PORTION_BYTES) && (number = bytes = 0)
      end
    end

    # @param connection [Connection]
    # @param keys [Keys]
    def initialize(connection, keys)
      @connection = connection
      @keys = keys
    end

    # Push the jobs of one portion, all but the duplicates or none.
    #
    # @return [Hash{String => String}] the duplicates: jid to the jid of the job that holds its lock
    def call(jobs)
      return by_script(jobs) if jobs.any? { |job| job.asked.any? || job.batch }

      later, now = jobs.partition(&:at)
      commands = now.group_by(&:queue).flat_map do |queue, some|
        [["SADD", @keys.queues, queue], ["LPUSH", @keys.queue(queue), *some.map(&:payload)]]
      end
      commands << ["ZADD", @keys.schedule, *later.flat_map { |job| [job.at, job.payload] }] if later.any?
      @connection.transaction(commands) if commands.any?
      {}
    end

    # KEYS and ARGV of the script, which describes them.
    #
    # @return [Array(Array, Array)]
    def arguments(jobs)
      queues = jobs.map(&:queue).uniq
      rows = jobs.flat_map do |job|
        options = {"at" => job.at, **job.asked, "batch" => job.batch}.compact.to_a
        [queues.index(job.queue) + 1, job.jid, job.payload, options.size, *options.flatten]
      end
      locks = jobs.filter_map(&:lock).flat_map { |key| [@keys.own("unique:#{key}"), @keys.own("unique:#{key}:at")] }
      names = [@keys.queues, @keys.schedule, *queues.map { |queue| @keys.queue(queue) }, *locks]
      [names, [jobs.size, queues.size, *queues, *rows, @keys.namespace]]
    end

    private

    def by_script(jobs)
      names, args = arguments(jobs)
      till = Connection.now + jobs.map(&:wait).max
      pauses = Enumerator.produce(FIRST_PAUSE_S) { |pause_s| [pause_s * PAUSE_GROWTH, LONGEST_PAUSE_S].min }
      loop do
        about, place, most = reply = SCRIPT.call(@connection, names, args)
        return read(reply, jobs) unless about == "full" && room?(@keys.queue(jobs[place - 1].queue), most, till, pauses)
      end
    end

    # Waits until a queue has at most this many jobs; false if it has more at the end of the time. The jobs are sent
    # again when there is room for them.
    def room?(queue, most, till, pauses)
      while most >= 0 && (left = till - Connection.now).positive?
        # Random: many producers may wait for the same queue.
        sleep([pauses.next * rand(0.5..1.0), left].min)
        return true if @connection.call("LLEN", queue) <= most
      end
      false
    end

    def read(reply, jobs)
      about, *rest = reply
      return jobs.zip(rest).reject { |_, other| other.empty? }.to_h { |job, other| [job.jid, other] } if about == "pushed"

      job = jobs[rest.first.to_i - 1]
      case about
      when "duplicate" then raise DuplicateJobError, rest[1]
      when "batch" then raise Push.refused(job.batch, rest[1])
      when "full" then raise QueueFullError.new(job.queue, job.asked["max_waiting"])
      else raise StoreError, "the enqueue script has answered #{about}, which this client does not know"
      end
    end
  end
end
