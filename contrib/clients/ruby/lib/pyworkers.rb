# frozen_string_literal: true

require_relative "pyworkers/version"
require_relative "pyworkers/errors"
require_relative "pyworkers/json"
require_relative "pyworkers/options"
require_relative "pyworkers/keyring"
require_relative "pyworkers/envelope"
require_relative "pyworkers/connection"
require_relative "pyworkers/push"
require_relative "pyworkers/results"
require_relative "pyworkers/batch"
require_relative "pyworkers/client"
require_relative "pyworkers/sidekiq" if defined?(Sidekiq)

# Enqueues jobs that Python runs, and reads their status and their results.
#
# @example
#   Pyworkers.configure(Redis.new(url: ENV["REDIS_URL"]))
#   jid = Pyworkers.enqueue("pay", "charge", [7], track: 3600)
#   Pyworkers.result(jid)
module Pyworkers
  @client = nil
  @encryption = nil
  @of_pools = {}.compare_by_identity
  @lock = Mutex.new

  class << self
    # Set the default client. Its keys are also used for jobs of Sidekiq's client.
    #
    # @param (see Client#initialize)
    # @return [Client]
    def configure(redis, namespace: "", encryption: nil)
      @client = Client.new(redis, namespace: namespace, encryption: encryption)
      @encryption = encryption
      @of_pools.clear
      @client
    end

    # @return [Client] the one that was configured; otherwise one of Sidekiq's pool
    # @raise [BadArgumentError] without both
    def client
      @client ||= Client.new(default_redis)
    end

    # @api private
    # @return [Client] the client of a pool of Sidekiq's: there are few of them
    def client_of(pool) = @lock.synchronize { @of_pools[pool] ||= Client.new(pool, encryption: @encryption) }

    # A step of a chain, or a callback.
    #
    # @return [Step]
    def step(queue, job_class, args = [], **options) = Enlisting.step(queue, job_class, args, options)

    # @!method enqueue(queue, job_class, args = [], **options)
    #   @see Client#enqueue
    # @!method try_enqueue(queue, job_class, args = [], **options)
    #   @see Client#try_enqueue
    # @!method enqueue_in(delay, queue, job_class, args = [], **options)
    #   @see Client#enqueue_in
    # @!method enqueue_at(at, queue, job_class, args = [], **options)
    #   @see Client#enqueue_at
    # @!method enqueue_bulk(queue, job_class, args_list, **options)
    #   @see Client#enqueue_bulk
    # @!method status(jid)
    #   @see Client#status
    # @!method result(jid, timeout: 10)
    #   @see Client#result
    # @!method cancel(jid)
    #   @see Client#cancel
    # @!method batch(description: "", tags: [], missing: "fail", **callbacks, &block)
    #   @see Client#batch
    # @!method batch_of(id)
    #   @see Client#batch_of
    # @!method chain(*steps, **callbacks)
    #   @see Client#chain
    %i[enqueue try_enqueue enqueue_in enqueue_at enqueue_bulk status result cancel batch batch_of chain].each do |name|
      define_method(name) { |*args, **options, &block| client.public_send(name, *args, **options, &block) }
    end

    private

    def default_redis
      return ::Sidekiq.redis_pool if defined?(::Sidekiq)

      raise BadArgumentError, "no Redis: call Pyworkers.configure(Redis.new(url: url)) first"
    end
  end
end
