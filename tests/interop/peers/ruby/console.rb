# frozen_string_literal: true

# Sidekiq's client and its API for the tests: reads {"call": NAME, "with": [ARGUMENTS]} from each line of
# standard input, and answers {"result": VALUE} or {"error": TEXT}.
require "sidekiq/api"
require_relative "jobs"

SETS = {"retry" => Sidekiq::RetrySet, "schedule" => Sidekiq::ScheduledSet, "dead" => Sidekiq::DeadSet}.freeze

module Calls
  module_function

  def push(item) = Sidekiq::Client.push(item)

  def push_bulk(item) = Sidekiq::Client.push_bulk(item)

  def perform_async(job_class, options, *args) = Object.const_get(job_class).set(options).perform_async(*args)

  def perform_in(job_class, seconds, *args) = Object.const_get(job_class).perform_in(seconds, *args)

  def queues = Sidekiq::Queue.all.map(&:name)

  def queue(name)
    queue = Sidekiq::Queue.new(name)
    {size: queue.size, latency: queue.latency, jobs: queue.map { |job| about(job) }}
  end

  def set(name)
    SETS.fetch(name).new.map { |job| about(job).merge(score: job.score, at: job.at.to_f) }
  end

  # retry, kill, delete, add_to_queue or reschedule for one job of a set.
  def act(name, jid, action, *args) = SETS.fetch(name).new.find_job(jid).public_send(action, *args) && true

  # retry or kill for all jobs of a set.
  def act_on_all(name, action) = SETS.fetch(name).new.public_send("#{action}_all") && true

  def stats
    stats = Sidekiq::Stats.new
    %i[processed failed enqueued scheduled_size retry_size dead_size processes_size workers_size queues]
      .to_h { |name| [name, stats.public_send(name)] }
  end

  def processes
    names = %w[identity hostname pid tag concurrency queues busy rss]
    Sidekiq::ProcessSet.new.map do |process|
      names.to_h { |name| [name, process[name]] }.merge(quiet: process.stopping?)
    end
  end

  def works
    Sidekiq::WorkSet.new.map do |process, tid, work|
      payload = work.is_a?(Hash) ? work["payload"] : work.job.item # an object since Sidekiq 7.2
      {process: process, tid: tid, jid: payload["jid"], class: payload["class"], args: payload["args"]}
    end
  end

  def about(job)
    {
      item: job.item, jid: job.jid, klass: job.display_class, args: job.display_args, queue: job.queue, tags: job.tags,
      latency: job.latency, created_at: job.created_at.to_f, enqueued_at: job.enqueued_at&.to_f,
      error_class: job["error_class"], error_message: job["error_message"], error_backtrace: job.error_backtrace
    }
  end
end

# Sidekiq logs to standard output, which carries the answers.
answers = $stdout.dup
$stdout.reopen($stderr)
answers.sync = true
$stdin.each_line do |line|
  request = JSON.parse(line)
  answer =
    begin
      JSON.generate(result: Calls.public_send(request.fetch("call"), *request.fetch("with")))
    rescue => e
      JSON.generate(error: "#{e.class}: #{e.message}".scrub)
    end
  answers.puts(answer)
end
