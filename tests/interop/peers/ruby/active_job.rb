# frozen_string_literal: true

# ActiveJob with Sidekiq's adapter for the recordings: reads {"call": "evaluate", "with": [RUBY]} from each line of
# standard input, and answers {"result": TEXT or true} or {"error": TEXT}.
require "active_job"
require "active_support/all"
require "global_id"
require "json"
require "sidekiq"

GlobalID.app = "shop"
Time.zone = "Europe/Paris"
ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = nil
# The class of the wrapper; a job that Ruby knows gives its options to it.
ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper

class User
  include GlobalID::Identification
  attr_reader :id

  def initialize(id) = @id = id
end

class Note < ActiveJob::Base
  queue_as :python

  def perform(*) = nil
end

# Sidekiq logs to standard output, which carries the answers.
answers = $stdout.dup
$stdout.reopen($stderr)
answers.sync = true
$stdin.each_line do |line|
  result = eval(JSON.parse(line).fetch("with").first) # rubocop:disable Security/Eval
  answers.puts JSON.generate(result: result.is_a?(String) ? result : true)
rescue => e
  answers.puts JSON.generate(error: "#{e.class}: #{e.message}".scrub)
end
