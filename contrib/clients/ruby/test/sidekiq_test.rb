# frozen_string_literal: true

require "sidekiq"
require "test_helper"
require "pyworkers/sidekiq"

class SidekiqTest < Minitest::Test
  include Served

  class Plain
    include Sidekiq::Worker
    sidekiq_options queue: "sidekiq"
  end

  class Unique
    include Sidekiq::Worker
    sidekiq_options queue: "sidekiq", retry: 3, pyworkers: {unique_for: 60, track: 60, expires_in: 600}
  end

  def setup
    super
    Sidekiq.logger.level = Logger::WARN
    Sidekiq.redis = {url: URL}
    redis.del("queue:sidekiq")
  end

  def teardown
    redis.del("queue:sidekiq") if URL
  end

  def waiting = redis.lrange("queue:sidekiq", 0, -1).map { |text| JSON.parse(text) }

  def test_an_ordinary_job_is_pushed_by_sidekiq
    jid = Plain.perform_async(1)
    assert_equal [jid], waiting.map { |job| job["jid"] }
    refute waiting.first.key?("unique_key")
  end

  def test_perform_async_keeps_the_jid_of_the_job_and_returns_that_of_the_one_that_is_there
    mark = SecureRandom.hex
    first = Unique.perform_async(mark)
    assert_equal first, Unique.perform_async(mark)
    assert_equal first, Unique.perform_in(60, mark)
    assert_equal [first, first], Unique.perform_bulk([[mark], [mark]])
    job, = waiting
    assert_equal 1, waiting.size
    assert_equal [first, "SidekiqTest::Unique", [mark], 3, "sidekiq"], job.values_at("jid", "class", "args", "retry", "queue")
    refute job.key?("pyworkers")
    assert_equal Pyworkers::Unique.key("sidekiq", "SidekiqTest::Unique", [mark]), job["unique_key"]
    assert_in_delta job["enqueued_at"] + 600, job["expiry"], 1
    assert_equal :waiting, Pyworkers::Client.new(redis).status(first).state
  end

  def test_options_of_one_push_and_a_job_for_later
    mark = SecureRandom.hex
    jid = Plain.set(pyworkers: {unique_for: 60, on_duplicate: "raise"}).perform_in(600, mark)
    assert_raises(Pyworkers::DuplicateJobError) { Plain.set(pyworkers: {unique_for: 60, on_duplicate: "raise"}).perform_async(mark) }
    scheduled = redis.zrange("schedule", 0, -1).map { |text| JSON.parse(text) }.find { |job| job["jid"] == jid }
    assert_equal %w[args class created_at jid queue retry unique_for unique_key], scheduled.keys.sort
    error = assert_raises(Pyworkers::BadArgumentError) { Plain.set(pyworkers: {retry: 5}).perform_async(1) }
    assert_equal "retry is not an option here: write it in sidekiq_options itself, or in set", error.message
    assert_raises(Pyworkers::BadArgumentError) { Plain.set(pyworkers: {unique_fr: 5}).perform_async(1) }
    assert_raises(Pyworkers::BadArgumentError) { Plain.set(pyworkers: {track: 5}).perform_async(:symbol) }
    assert_empty waiting
  ensure
    redis.zrem("schedule", redis.zrange("schedule", 0, -1).select { |text| text.include?(jid) }) if jid
  end

  def test_python_runs_a_job_of_sidekiqs_client
    jid = Sidekiq::Client.push("class" => "charge", "queue" => "clients", "args" => [7], "pyworkers" => {"track" => 60})
    assert_equal({"order" => 7, "currency" => "EUR", "paid" => true}, Pyworkers::Client.new(redis).result(jid))
  end
end
