# frozen_string_literal: true

require "timeout"

module Pyworkers
  # In every error that this gem raises on purpose: +rescue Pyworkers::Error+ rescues all of them.
  module Error
    # @return [String] the fix, which is in the message, too; empty if the message names it
    attr_reader :hint
    # @return [String] the code of an error of Redis, as +OOM+, or empty
    attr_reader :code

    # @param message [String]
    def initialize(message = nil, hint: "", code: "")
      super(hint.empty? ? message : "#{message}\n#{hint}")
      @hint = hint
      @code = code
    end
  end

  # A job cannot be enqueued with these arguments or options; the message names the invalid one.
  class BadArgumentError < ::ArgumentError
    include Error
  end

  # Redis is unreachable, refused the login, or the connection was lost during the call.
  class RedisUnavailableError < StandardError
    include Error
  end

  # Redis answered a call with an error; the message is from Redis.
  class StoreError < StandardError
    include Error
  end

  # The queue holds +limit+ jobs (+max_waiting+) or more; the job is not enqueued.
  class QueueFullError < StandardError
    include Error
    # @return [String]
    attr_reader :queue
    # @return [Integer]
    attr_reader :limit

    def initialize(queue, limit)
      super("the queue '#{queue}' is full: max_waiting is #{limit}")
      @queue = queue
      @limit = limit
    end
  end

  # A job with the same class, queue and arguments is there (+unique_for+).
  class DuplicateJobError < StandardError
    include Error
    # @return [String] the id of that job
    attr_reader :jid

    def initialize(jid)
      super("the same job is enqueued already, with the id #{jid}")
      @jid = jid
    end
  end

  # A batch is unknown, or can no longer be used in this way.
  class BatchError < StandardError
    include Error
  end

  # The job, batch or chain whose result was asked for has ended without one.
  class JobFailedError < StandardError
    include Error
    # @return [String] the id of the job, or of the first member that ended and is not done
    attr_reader :jid
    # @return [String] +failed+, +dead+, +cancelled+ or +expired+; of a member also +dropped+, +deleted+ or +missing+
    attr_reader :state
    # @return [String] the class of its exception, in Python; empty if there was none, or if it is a member
    attr_reader :error_class
    # @return [String] the message of its exception
    attr_reader :error

    # @param whole [String] the id of the batch, if +jid+ is a member's
    def initialize(jid, state, error_class: "", error: "", kind: "job", whole: "")
      reason = [error_class, error].reject(&:empty?).join(": ")
      super(
        if whole.empty?
          "the #{kind} #{jid} is #{state}#{": #{reason}" unless reason.empty?}"
        else
          "the #{kind} #{whole} is dead: a member is #{state}: #{jid}"
        end
      )
      @jid = jid
      @state = state
      @error_class = error_class
      @error = error
    end
  end

  # The job whose result was asked for has not ended in the time.
  class ResultTimeout < Timeout::Error
    include Error
  end

  # The job whose result was asked for is not tracked, has expired, or is unknown.
  class UntrackedJobError < StandardError
    include Error
  end

  # Arguments cannot be sealed or opened: their key is missing, or they were changed.
  class EncryptionKeyError < StandardError
    include Error
  end
end
