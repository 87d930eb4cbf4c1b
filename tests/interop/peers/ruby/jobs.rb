# frozen_string_literal: true

# The jobs of the Ruby peers; a job's class says what happens to it.
require "sidekiq"

class Note
  include Sidekiq::Worker
  sidekiq_options queue: "python"

  def perform(*) = nil
end

class Fail
  include Sidekiq::Worker
  sidekiq_options queue: "python"

  def perform(*) = raise(ArgumentError, "ruby failed")
end

class FailOnce
  include Sidekiq::Worker
  sidekiq_options queue: "python"

  def perform(*)
    raise ArgumentError, "ruby failed" unless Thread.current[:job].key?("retry_count")
  end
end

class Wait
  include Sidekiq::Worker
  sidekiq_options queue: "python"

  def perform(path)
    sleep 0.01 until File.exist?(path)
  end
end
