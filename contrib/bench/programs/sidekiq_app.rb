# frozen_string_literal: true

# The application of Sidekiq: loaded by `sidekiq -r`, and the program that enqueues (peer.py).

require "json"
require "sidekiq"

URL = ENV.fetch("BENCH_URL")
FOLDER = ENV.fetch("BENCH_FOLDER")
LINE_LOG = ENV.fetch("BENCH_LINE_LOG", "")

Sidekiq.configure_server do |config|
  config.redis = { url: URL }
  config.options[:poll_interval_average] = 1
  unless LINE_LOG.empty?
    config.logger = Sidekiq::Logger.new(LINE_LOG, level: Logger::INFO)
    config.logger.formatter = Sidekiq::Logger::Formatters::JSON.new
  end
  config.logger.level = Logger::WARN if LINE_LOG.empty?
end
Sidekiq.configure_client { |config| config.redis = { url: URL } }

# Each thread has its own counts, because += is not atomic; one more thread writes them down.
class Tally
  def initialize
    @slots = {}
    @lock = Mutex.new
    @file = File.open(File.join(FOLDER, "count-#{Process.pid}"), "wb")
    @file.sync = true
    at_exit { write }
    Thread.new { loop { sleep 0.005; write } }
  end

  def slot
    Thread.current[:bench_slot] ||= @lock.synchronize { @slots[Thread.current] = [0] }
  end

  def write
    sum = @lock.synchronize { @slots.values.sum(&:first) }
    @file.pwrite([sum].pack("q<"), 0)
  end
end

class Bench
  include Sidekiq::Worker
  sidekiq_options queue: "bench", retry: true

  TALLY = Sidekiq.server? ? Tally.new : nil

  def perform(kind, value)
    case kind
    when "cpu" then use_cpu
    when "sleep" then sleep 0.01
    when "second" then sleep 1
    when "stamp" then stamp(Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond) - value)
    end
    TALLY.slot[0] += 1
  end

  def use_cpu
    finish = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond) + 1_000_000
    nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond) < finish
  end

  def stamp(nanoseconds)
    path = File.join(FOLDER, "stamps-#{Process.pid}-#{Thread.current.object_id}")
    File.open(path, "ab") { |file| file.write([nanoseconds].pack("q<")) }
  end
end

def values(kind, count)
  [kind == "blob" ? "x" * 1_000_000 : 0] * count
end

def push(kind, count, bulk)
  if bulk
    values(kind, count).each_slice(1000) do |slice|
      Sidekiq::Client.push_bulk("class" => Bench, "args" => slice.map { |value| [kind, value] })
    end
  else
    values(kind, count).each { |value| Bench.perform_async(kind, value) }
  end
end

def later(kind, count, seconds, interval)
  first = Time.now.to_f + seconds
  count.times do |number|
    at = first + number * interval
    Bench.perform_at(at, kind, (at * 1e9).to_i)
  end
end

def pace(count, interval)
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  count.times do |number|
    Bench.perform_async("stamp", Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond))
    rest = started + (number + 1) * interval - Process.clock_gettime(Process::CLOCK_MONOTONIC)
    sleep rest if rest.positive?
  end
end

unless Sidekiq.server?
  command, *rest = ARGV
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  case command
  when "push" then push(rest[0], Integer(rest[1]), rest[2] == "bulk")
  when "pace" then pace(Integer(rest[0]), Float(rest[1]) / 1000)
  when "later" then later(rest[0], Integer(rest[1]), Float(rest[2]), Float(rest[3]) / 1000)
  else abort "cannot #{ARGV.join(" ")}"
  end
  puts JSON.generate("seconds" => Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)
end
