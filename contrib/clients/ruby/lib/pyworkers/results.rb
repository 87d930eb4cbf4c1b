# frozen_string_literal: true

module Pyworkers
  # How far a job is. +total+ is nil if it is not known.
  Progress = Struct.new(:done, :total, :text)

  # The status of a tracked job. Times are of the last run.
  #
  # @!attribute state [Symbol] +:waiting+, +:scheduled+, +:running+, +:retrying+, +:done+, +:failed+, +:dead+, +:cancelled+,
  #   +:expired+, or +:unknown+: it is not tracked, its status has expired, or there was no such job
  # @!attribute attempt [Integer] the number of earlier failures
  # @!attribute progress [Progress, nil]
  # @!attribute started_at [Time, nil]
  # @!attribute finished_at [Time, nil]
  # @!attribute error [String, nil] class and message of the last failure
  JobStatus = Struct.new(:state, :queue, :attempt, :progress, :started_at, :finished_at, :error, keyword_init: true)

  # The status and the result of a tracked job; the wait for a result polls nothing.
  #
  # @api private
  class Results
    PRINTABLE = /\A(?:[^\p{C}\p{Z}]| )+\z/
    FIELDS = %w[state queue attempt progress started_at finished_at error].freeze
    STATES = %w[waiting scheduled running retrying done failed dead cancelled expired unknown].freeze
    FINAL = %i[done failed dead cancelled expired].freeze
    # A wait of this time is noted: a server then looks for the job, and ends the wait if the job is nowhere.
    UNNOTED_S = 5
    LONGEST_BLOCK_S = 30
    NOTES_LIFE_S = 3600
    PAUSE_S = 0.2

    class << self
      def check_jid(jid)
        return if jid.is_a?(String) && jid.valid_encoding? && jid.match?(PRINTABLE)

        raise BadArgumentError, "a jid is a text that is not empty, not #{jid.inspect}"
      end

      # @param values [Array<String, nil>] the values of {FIELDS}; invalid ones count as missing
      # @return [JobStatus]
      def read_status(values)
        state, queue, attempt, progress, started_at, finished_at, error = values
        return JobStatus.new(state: :unknown, queue: "", attempt: 0) unless STATES.include?(state)

        JobStatus.new(
          state: state.to_sym, queue: queue.to_s, attempt: attempt.to_s.match?(/\A\d+\z/) ? attempt.to_i : 0,
          progress: read_progress(progress), started_at: read_time(started_at), finished_at: read_time(finished_at),
          error: error.to_s.empty? ? nil : error
        )
      end

      # @return [Hash, nil] the end of a job from its JSON; an invalid one counts as missing
      def read_answer(text)
        answer = Json.decode(text)
        answer if answer.is_a?(Hash) && STATES.include?(answer["state"])
      rescue JSON::ParserError, TypeError
        nil
      end

      def read_time(text)
        seconds = Float(text.to_s, exception: false)
        Time.at(seconds) if seconds&.finite?
      end

      private

      def read_progress(text)
        done, total, note = Json.decode(text.to_s)
        numbers = [done, *total]
        Progress.new(done, total, note) if numbers.all?(&Options::NUMBER) && note.is_a?(String)
      rescue JSON::ParserError, TypeError
        nil
      end
    end

    # @param connection [Connection]
    # @param keys [Keys]
    def initialize(connection, keys)
      @connection = connection
      @keys = keys
    end

    # @return [JobStatus]
    def status(jid)
      Results.check_jid(jid)
      Results.read_status(@connection.call("HMGET", @keys.own("job:#{jid}"), *FIELDS))
    end

    # What a job or a batch returned; waits for its end.
    #
    # @param timeout [Numeric, nil] seconds; nil: without a limit
    # @param kind [String, nil] of a batch that is asked for its result
    def result(jid, timeout, kind = nil)
      unless timeout.nil? || (Options::NUMBER[timeout] && timeout >= 0)
        raise BadArgumentError, "timeout must be seconds from 0, or nil, not #{timeout.inspect}"
      end

      deadline = timeout ? Connection.now + timeout : Float::INFINITY
      # The state first: a job that has ended has an answer.
      state = status(jid).state
      answer = kept_answer(jid)
      check_known(jid, state) unless answer
      value_of(jid, answer || wait(jid, deadline, kind), kind)
    end

    private

    def kept_answer(jid)
      _, fields = @connection.call("XRANGE", @keys.own("result:#{jid}"), "-", "+", "COUNT", 1).first
      Results.read_answer(fields.is_a?(Hash) ? fields["v"] : fields[1]) if fields
    end

    def check_known(jid, state)
      raise UntrackedJobError, "the job #{jid} is #{state}, but its result is gone" if FINAL.include?(state)
      return if state != :unknown || @connection.call("HEXISTS", @keys.own("batch:#{jid}"), "answer").to_i == 1

      raise UntrackedJobError.new("no result of the job #{jid}: its status has expired, or there was no such job", hint: "a job has a result if it is enqueued with track: SECONDS")
    end

    def value_of(jid, answer, kind)
      state = answer["state"]
      return answer["result"] if state == "done"

      member = answer["jid"].to_s
      raise JobFailedError.new(member, answer["reason"] || state, kind: kind || "batch", whole: jid) unless member.empty?

      raise JobFailedError.new(jid, state, error_class: answer["error_class"].to_s, error: answer["error"].to_s, kind: kind || "job")
    end

    def wait(jid, deadline, kind)
      noted = false
      cause = nil
      loop do
        longest = noted ? LONGEST_BLOCK_S : UNNOTED_S
        begin
          answer = Results.read_answer(@connection.first_entry(@keys.own("result:#{jid}"), (deadline - Connection.now).clamp(0.001, longest)))
          return answer if answer

          note(jid)
          noted = true
          cause = nil
        rescue RedisUnavailableError => error
          cause = error
          sleep([PAUSE_S, [deadline - Connection.now, 0].max].min)
        end
        raise ResultTimeout, "the #{kind || "job"} #{jid} has not ended in the time", cause: cause if Connection.now >= deadline
      end
    end

    # Note the wait at Redis' time; the rights of a reader are not enough for it.
    def note(jid)
      now, = @connection.call("TIME")
      awaited = @keys.own("awaited")
      @connection.transaction([["ZADD", awaited, now, jid], ["EXPIRE", awaited, NOTES_LIFE_S]])
    rescue StoreError
      nil
    end
  end
end
