# frozen_string_literal: true

require "sidekiq"

module Pyworkers
  # A job of Sidekiq's client, with +sidekiq_options pyworkers: {…}+.
  #
  # @api private
  module SidekiqJob
    OPTIONS = %i[track history unique_for unique_until unique_by on_duplicate max_waiting wait expires_in timeout encrypt].freeze

    module_function

    # @return [Job]
    def of(payload, keyring)
      asked = payload["pyworkers"] || {}
      raise BadArgumentError, "pyworkers: #{asked.inspect} is not a hash of options" unless asked.is_a?(Hash)

      options = asked.transform_keys(&:to_sym)
      check(options, payload)
      at = payload["at"]
      at = nil if at && at <= Time.now.to_f
      draft = Draft.new(payload["queue"], payload["class"], options, keyring: keyring)
      draft.for_sidekiq(payload["args"], payload["jid"], at) do |fields|
        about = payload.except("pyworkers", "at").merge(fields)
        about["enqueued_at"] = now if at.nil?
        ::Sidekiq.dump_json(about)
      end
    end

    # Sidekiq 8 writes milliseconds.
    def now
      ::Sidekiq::VERSION.to_i >= 8 ? (Time.now.to_f * 1000).to_i : Time.now.to_f
    end

    def check(options, payload)
      if (other = options.keys.find { |name| Options::ALL.key?(name) && !OPTIONS.include?(name) })
        raise BadArgumentError, "#{other} is not an option here: write it in sidekiq_options itself, or in set"
      end
      return unless payload["wrapped"] && options[:unique_for] && options[:unique_by].nil?

      raise BadArgumentError, "unique_for needs unique_by in an ActiveJob, whose arguments have a new id each time"
    end
  end

  # Prepended to Sidekiq's client: pushes jobs with +sidekiq_options pyworkers: {…}+ by the enqueue script. The jid stays;
  # for a duplicate, +perform_async+ returns the jid of the job that is there. Other jobs are pushed by Sidekiq.
  #
  # @example
  #   class DailyMail
  #     include Sidekiq::Job
  #     sidekiq_options queue: "mail", pyworkers: {unique_for: 3600, track: 600}
  #   end
  module SidekiqPush
    private

    def raw_push(payloads)
      ours, others = payloads.partition { |payload| payload.key?("pyworkers") }
      return super if ours.empty?

      duplicates = Pyworkers.client_of(@redis_pool).push_for_sidekiq(ours)
      ours.each { |payload| payload["jid"] = duplicates.fetch(payload["jid"], payload["jid"]) }
      super(others) if others.any?
      true
    end
  end

  ::Sidekiq::Client.prepend(SidekiqPush)
end
