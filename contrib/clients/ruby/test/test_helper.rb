# frozen_string_literal: true

# What the tests share: a Redis with a running server of pyworkers, as the environment names it, and a wait.
require "json"
require "minitest/autorun"
require "redis"
require "securerandom"
require "socket"
require "uri"
require "pyworkers"

# A connection without a server. Notes the arguments of each script, and answers what a block makes of them.
class Answering
  attr_reader :calls

  def initialize(&answer)
    @answer = answer
    @calls = []
  end

  def with = yield(self)

  def call(command, *rest)
    return [] unless command == "EVALSHA"

    _, keys, *rest = rest
    @calls << rest.drop(keys.to_i)
    @answer.call(@calls.last)
  end
end

module Served
  URL = ENV["REDIS_URL"]
  KEYS = ENV["PYWORKERS_ENCRYPTION__KEYS"]&.then { |path| File.readlines(path, chomp: true) }

  def setup
    return if URL

    reason = "REDIS_URL is not set: it names a Redis with a server of contrib/clients/application.py"
    ENV["CI"] ? flunk(reason) : skip(reason)
  end

  def redis = @redis ||= Redis.new(url: URL)

  # A client that the server runs jobs of.
  def client = @client ||= Pyworkers::Client.new(redis, encryption: KEYS)

  # A client that no server reads from, with the prefix of its keys.
  def apart = @apart ||= Pyworkers::Client.new(redis, namespace: namespace)

  def namespace = @namespace ||= "test:#{SecureRandom.hex(6)}:"

  def key(name) = "#{namespace}#{name}"

  def jobs(queue = "mail") = redis.lrange(key("queue:#{queue}"), 0, -1).map { |text| JSON.parse(text) }

  # Wait until the block returns a value that is true.
  def wait_for(seconds = 20)
    till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    until (found = yield)
      flunk("not seen in #{seconds} s") if Process.clock_gettime(Process::CLOCK_MONOTONIC) > till
      sleep(0.02)
    end
    found
  end

  # A proxy that passes the first call of a command on and then loses the connection; its URL.
  def losing(command)
    server = TCPServer.new("127.0.0.1", 0)
    far_end = URI(URL)
    lost = false
    Thread.new do
      while (near = server.accept)
        far = TCPSocket.new(far_end.host, far_end.port)
        forward(far, near)
        forward(near, far) do |data|
          loses = !lost && data.upcase(:ascii).include?("\r\n#{command}\r\n")
          lost ||= loses
          # Before the reply comes.
          near.close if loses
        end
      end
    end
    "redis://127.0.0.1:#{server.addr[1]}"
  end

  # Pass on what comes, in a thread; not by IO.copy_stream, which writes to a descriptor that may be another's by then.
  def forward(from, to)
    Thread.new do
      loop do
        data = from.readpartial(65_536)
        yield data if block_given?
        to.write(data)
      end
    rescue IOError, SystemCallError
      to.close
    end
  end
end
