# frozen_string_literal: true

# Loaded by `sidekiq -r`: notes every job in PEER_LEDGER before it runs.
require_relative "jobs"

class Ledger
  def call(_worker, job, _queue)
    File.open(ENV.fetch("PEER_LEDGER"), "a") { |file| file.puts(Sidekiq.dump_json(job)) }
    Thread.current[:job] = job
    yield
  end
end

# Poll the sets at once, and then often: a Sidekiq alone would begin after 10 to 15 seconds.
Sidekiq::Scheduled::Poller.prepend(Module.new { def initial_wait = nil })

Sidekiq.configure_server do |config|
  (config.respond_to?(:options) ? config.options : config)[:poll_interval_average] = 0.2
  config.server_middleware { |chain| chain.add Ledger }
end
