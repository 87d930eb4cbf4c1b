# frozen_string_literal: true

# Calls the job +charge+ of contrib/clients/application.py, and prints what Python returns.
#
#   pyworkers run --app application:worker     in contrib/clients
#   ruby -I lib examples/charge.rb             here, with REDIS_URL if Redis is not at redis://127.0.0.1:6379/0
require "redis"
require "pyworkers"

Pyworkers.configure(Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379/0")))
jid = Pyworkers.enqueue("clients", "charge", [7, "CHF"], track: 60)
puts "#{jid} #{Pyworkers.result(jid)}"
