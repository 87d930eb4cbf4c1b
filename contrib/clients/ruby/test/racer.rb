# frozen_string_literal: true

# Takes part in the race of tests/clients/test_races.py: prints the jid of each round, and the jobs that found room.
require "json"
require "redis"
require_relative "../lib/pyworkers"

client = Pyworkers::Client.new(Redis.new(url: ENV.fetch("REDIS_URL")))
$stdout.sync = true
puts "ready"
rounds, room = $stdin.gets.split.map(&:to_i)

jids = Array.new(rounds) do |round|
  client.enqueue("race", "Race", [{"round" => round, "é" => [1.0, 1e21]}], unique_for: 60)
end
accepted = 0
accepted += 1 while client.try_enqueue("bounded", "Race", [accepted], max_waiting: room)
puts JSON.generate("jids" => jids, "accepted" => accepted)
