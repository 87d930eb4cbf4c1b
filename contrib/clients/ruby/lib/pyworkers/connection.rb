# frozen_string_literal: true

require "openssl"

module Pyworkers
  # A connection of the gem redis or redis-client, or a pool of them, behind the calls that this gem needs.
  #
  # A call whose connection was lost is reported and never sent again: perhaps only its reply was lost, and then a job
  # would run twice. So the reconnecting of the gems is off during a push; a connection that has rested is asked before
  # whether it is still there.
  #
  # @api private
  class Connection
    RESTED_S = 10
    # How often sentinels are asked for the primary. After a planned failover, the former one takes writes for some ten
    # seconds, and they are lost.
    FOLLOWED_S = 1
    AWAY = {
      "LOADING" => "Redis is not ready",
      "MAXCLIENTS" => "Redis takes no more connections",
      "READONLY" => "Redis takes no writes now",
      "MASTERDOWN" => "Redis takes no writes now",
      "CLUSTERDOWN" => "Redis takes no writes now",
      "UNBLOCKED" => "Redis takes no writes now",
      "NOAUTH" => "Redis refused the login",
      "WRONGPASS" => "Redis refused the login"
    }.freeze
    HERE = {
      "OOM" => "the server's memory is full (maxmemory)",
      "MISCONF" => "Redis cannot save to its disk and takes no writes",
      "NOREPLICAS" => "Redis has too few replicas (min-replicas-to-write)",
      "EXECABORT" => "Redis refused a part of a transaction",
      "NOPERM" => "Redis does not permit this user to do that (`pyworkers acl`)",
      "WRONGTYPE" => "a key has the wrong type",
      "CROSSSLOT" => "on a cluster the namespace needs a hash tag, as {app}:"
    }.freeze
    # Replies without their own code.
    SENTENCES = {"max number of clients" => "MAXCLIENTS", "AUTH <password> called without" => "WRONGPASS"}.freeze
    REFUSALS = /\A(?:READONLY|NOREPLICAS|UNBLOCKED)/
    private_constant :RESTED_S, :FOLLOWED_S, :AWAY, :HERE, :SENTENCES, :REFUSALS

    def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @param redis [Redis, RedisClient, ConnectionPool]
    # @param wire [String] the key of the versions of the wire that the servers speak
    def initialize(redis, wire)
      unless redis.respond_to?(:with)
        raise BadArgumentError.new("#{redis.inspect} is not a connection to Redis", hint: "write Pyworkers::Client.new(Redis.new(url: url)), or a ConnectionPool of these")
      end

      @redis = redis
      @wire = wire
      @checked = false
    end

    # @return [Object] the reply to one command
    def call(*command) = once { |connection| connection.call(*command.map(&:to_s)) }

    # @return [Array] the replies; all commands are executed or none
    def transaction(commands)
      return [call(*commands.first)] if commands.one?

      once do |connection|
        connection.multi do |transaction|
          # A transaction of redis 4 has its own setting.
          pipeline = transaction.instance_variable_get(:@pipeline)
          pipeline.without_reconnect { nil } if pipeline.respond_to?(:without_reconnect)
          commands.each { |command| transaction.call(*command.map(&:to_s)) }
        end
      end
    end

    # Waits for the entry of a stream, on its own connection.
    #
    # @return [String, nil] the value of its field +v+
    def first_entry(key, seconds)
      own = translated { @redis.with { |connection| copy_of(connection) } }
      translated { read(own, key, (seconds * 1000).ceil) }
    ensure
      own&.close
    end

    private

    # Run a block once, on a connection that is there; once more if Redis has refused before anything was written: a new
    # connection may lead to the new primary.
    def once(&block)
      translated do
        @redis.with do |connection|
          check(connection)
          alone(connection) do
            follow(connection)
            @checked ||= check_versions(connection)
            connection.call("PING") if rested?(connection)
            send_twice_if_refused(connection, &block)
          end
        end
      end
    end

    def send_twice_if_refused(connection, &block)
      without_reconnecting(connection, &block)
    rescue StandardError => error
      raise unless refused?(error) && error.message.match?(REFUSALS)

      connection.close
      without_reconnecting(connection, &block)
    end

    # Threads may share a connection of the gem redis, which then has a lock. Version 5 does not hold it when it closes
    # or opens a connection, nor while reconnecting is off.
    def alone(connection, &block)
      of_gem_redis?(connection) ? connection.send(:synchronize, &block) : yield
    end

    # True if the connection may have been lost since its last use, or is another process'; it is used now. Noted at the
    # connection itself, because objects of this class may share a pool.
    def rested?(connection)
      pid, at = connection.instance_variable_get(:@pyworkers_used)
      now = Connection.now
      connection.instance_variable_set(:@pyworkers_used, [Process.pid, now])
      pid != Process.pid || now - at > RESTED_S
    end

    # Close a connection if the sentinels name another primary than a second ago; its next use leads there.
    def follow(connection)
      at, former = connection.instance_variable_get(:@pyworkers_primary)
      now = Connection.now
      return if at && now - at < FOLLOWED_S

      connection.instance_variable_set(:@pyworkers_primary, [now, former])
      return unless (primary = primary_of(connection))

      connection.instance_variable_set(:@pyworkers_primary, [now, primary])
      connection.close if former && former != primary
    end

    # @return [Array, nil] host and port of the primary as a sentinel names it; nil without one that answers
    def primary_of(connection)
      client = of_gem_redis?(connection) ? connection._client : connection
      if client.respond_to?(:config)
        return unless client.config.sentinel?

        client.config.reset
        [client.config.host, client.config.port]
      else
        connector = client.instance_variable_get(:@connector)
        connector.resolve.values_at(:host, :port) if connector.respond_to?(:sentinel_detect)
      end
    rescue StandardError
      nil # The call tells why.
    end

    # Ask the servers, once. Without a version, no server runs, or one that is older than the key.
    def check_versions(connection)
      versions = connection.call("ZRANGEBYSCORE", @wire, "-inf", "+inf")
      return true if versions.empty? || versions.include?(WIRE.to_s)

      raise StoreError.new(
        "the servers speak version #{versions.join(" and ")} of the wire, and this client version #{WIRE}",
        hint: "install a release of this gem that speaks theirs"
      )
    rescue StandardError => error
      # The rights of the user may be fewer than a producer's.
      raise unless refused?(error) && error.message.start_with?("NOPERM")

      true
    end

    def check(connection)
      return unless defined?(::Redis::Namespace) && ::Redis::Namespace === connection

      raise BadArgumentError.new("a connection of redis-namespace cannot be used", hint: "give the prefix to the client: namespace: \"app:\"")
    end

    def without_reconnecting(connection)
      if connection.respond_to?(:without_reconnect)
        connection.without_reconnect { yield connection }
      elsif connection.respond_to?(:disable_reconnection)
        connection.disable_reconnection { yield connection }
      else
        yield connection
      end
    end

    def copy_of(connection) = of_gem_redis?(connection) ? connection.dup : connection.config.new_client

    def of_gem_redis?(connection) = defined?(::Redis) && ::Redis === connection

    def read(own, key, milliseconds)
      if of_gem_redis?(own)
        own.xread(key, "0", count: 1, block: milliseconds).fetch(key, []).dig(0, 1, "v")
      else
        reply = own.blocking_call((milliseconds / 1000.0) + 5, "XREAD", "COUNT", "1", "BLOCK", milliseconds, "STREAMS", key, "0")
        fields = reply&.to_a&.dig(0, 1, 0, 1)
        fields.is_a?(Hash) ? fields["v"] : fields&.at(1)
      end
    end

    def translated
      yield
    rescue StandardError => error
      raise if error.is_a?(Error) || !of_redis?(error)

      raise of_pyworkers(error)
    end

    def of_redis?(error)
      error.is_a?(SystemCallError) || one_of?(error, %w[::Redis::BaseError ::RedisClient::Error ::ConnectionPool::TimeoutError])
    end

    def of_pyworkers(error)
      _, code = SENTENCES.find { |sentence, _| error.message.include?(sentence) }
      code ||= error.message[/\A([A-Z]{3,}) /, 1] || error.message[/@user_script:\s*\d+: -?([A-Z]{3,}) /, 1] || ""
      if refused?(error) && !AWAY.key?(code)
        meaning = HERE[code]
        return StoreError.new(meaning ? "#{meaning}: #{error.message}" : error.message, code: code)
      end
      RedisUnavailableError.new("#{AWAY.fetch(code, "Redis cannot be reached")}: #{error.message}", code: code)
    end

    # True for the reply of a Redis that was reached.
    def refused?(error)
      one_of?(error, %w[::Redis::CommandError ::RedisClient::CommandError])
    end

    # Only one of the gems may be loaded.
    def one_of?(error, names) = names.any? { |name| Object.const_defined?(name) && Object.const_get(name) === error }
  end

  # A Lua script, called by its digest, and by its text if the server does not know it.
  #
  # @api private
  class Script
    # @raise [StoreError] for a script of another version of the wire than this gem
    def initialize(name, folder: __dir__)
      @text = File.read(File.join(folder, name), encoding: Encoding::UTF_8).freeze
      about = @text.lines.first.to_s.chomp
      unless about.end_with?(", wire #{WIRE}")
        raise StoreError.new("#{name} is of another version of the wire: #{about.inspect}, not wire #{WIRE}", hint: "install the gem again: its files are of two versions")
      end

      @sha = OpenSSL::Digest.hexdigest("SHA1", @text)
    end

    def call(connection, keys, args)
      connection.call("EVALSHA", @sha, keys.size, *keys, *args)
    rescue StoreError => error
      raise unless error.code == "NOSCRIPT"

      connection.call("EVAL", @text, keys.size, *keys, *args)
    end
  end
end
