# frozen_string_literal: true

# Takes part in tests/clients/test_races.py: adds members to a batch, one after the other, and prints the number of each.
require "redis"
require_relative "../lib/pyworkers"

id, number = ARGV
batch = Pyworkers::Client.new(Redis.new(url: ENV.fetch("REDIS_URL"))).batch_of(id)
$stdout.sync = true
1.upto(number.to_i) do |one|
  batch.add { |members| members.enqueue("clients", "add", [one, 1]) }
  puts one
end
