# frozen_string_literal: true

require "open3"
require "test_helper"

class ClientTest < Minitest::Test
  include Served

  def test_a_job_without_options_is_a_member_of_its_queues_list_as_sidekiq_pushes_it
    jids = [apart.enqueue("mail", "send_mail", [7]), apart.enqueue("mail", "send_mail", [8])]
    assert_equal ["mail"], redis.smembers(key("queues"))
    assert_equal jids.reverse, jobs.map { |job| job["jid"] }
    assert_equal 2, redis.keys(key("*")).size
  end

  def test_a_job_for_later_is_in_the_schedule_by_its_time
    apart.enqueue_in(3600, "mail", "send_mail", [7])
    apart.enqueue_at(Time.at(4_000_000_000, 500, :millisecond), "mail", "send_mail", [8])
    (_, first), (last, score) = redis.zrange(key("schedule"), 0, -1, with_scores: true)
    assert_in_delta Time.now.to_f + 3600, first, 10
    assert_equal 4_000_000_000.5, score
    refute JSON.parse(last).key?("enqueued_at")
    apart.enqueue_at(1, "mail", "send_mail")
    assert_equal 1, jobs.size
  end

  def test_thousands_of_jobs_are_pushed_in_their_order
    jids = apart.enqueue_bulk("mail", "send_mail", (0...2500).map { |at| [at] })
    assert_equal jids, jobs.reverse.map { |job| job["jid"] }
    error = assert_raises(Pyworkers::BadArgumentError) { apart.enqueue_bulk("mail", "send_mail", [[1], 2]) }
    assert_match(/\Aargs_list\[1\] is of type Integer, not a list of arguments/, error.message)
    assert_raises(Pyworkers::BadArgumentError) { apart.enqueue_bulk("mail", "send_mail", [], jid: "x") }
  end

  def test_a_duplicate_is_answered_with_the_others_jid_or_refused_or_replaces_a_scheduled_job
    options = {unique_for: 60, track: 60, on_duplicate: :replace, delay: 600}
    first = apart.enqueue("mail", "send_mail", [{"a" => 1, "b" => 2}], **options)
    second = apart.enqueue("mail", "send_mail", [{"b" => 2, "a" => 1}], **options)
    refute_equal first, second
    assert_equal %i[cancelled scheduled], [apart.status(first).state, apart.status(second).state]
    assert_equal second, apart.enqueue("mail", "send_mail", [{"b" => 2, "a" => 1}], unique_for: 60)
    assert_equal [second] * 2, apart.enqueue_bulk("mail", "send_mail", [[{"a" => 1, "b" => 2}]] * 2, unique_for: 60)
    error = assert_raises(Pyworkers::DuplicateJobError) do
      apart.enqueue("mail", "send_mail", [{"a" => 1, "b" => 2}], unique_for: 60, on_duplicate: "raise")
    end
    assert_equal second, error.jid
    assert_equal [1, 0], [redis.zcard(key("schedule")), jobs.size]
  end

  def test_a_full_queue_refuses_a_job_and_a_wait_finds_room_and_a_bulk_is_all_or_nothing
    apart.enqueue_bulk("mail", "send_mail", [[1], [2]], max_waiting: 2)
    error = assert_raises(Pyworkers::QueueFullError) { apart.enqueue("mail", "send_mail", [3], max_waiting: 2) }
    assert_equal "the queue 'mail' is full: max_waiting is 2", error.message
    assert_nil apart.try_enqueue("mail", "send_mail", [3], max_waiting: 2)
    waiting = Thread.new do
      Pyworkers::Client.new(Redis.new(url: URL), namespace: namespace).enqueue("mail", "send_mail", [3], max_waiting: 2, wait: 20)
    end
    redis.rpop(key("queue:mail"))
    assert_equal 24, waiting.value.size
    redis.rpop(key("queue:mail"))
    assert_raises(Pyworkers::QueueFullError) { apart.enqueue_bulk("mail", "send_mail", [[4], [5]], max_waiting: 2) }
    assert_equal 1, jobs.size
  end

  def test_python_runs_a_job_and_returns_its_result
    jid = client.enqueue("clients", "charge", [7, "CHF"], track: 60)
    assert_equal({"order" => 7, "currency" => "CHF", "paid" => true}, client.result(jid))
    assert_equal client.result(jid), client.result(jid)
    status = client.status(jid)
    assert_equal :done, status.state
    assert_operator status.finished_at, :>=, status.started_at
    values = [2**70, -0.5, "\u2028é\u{1f600}", {"a" => []}]
    assert_equal values, client.result(client.enqueue("clients", "echo", values, track: 60))
  end

  def test_python_opens_sealed_arguments
    skip("PYWORKERS_ENCRYPTION__KEYS is not set") unless KEYS
    jid = client.enqueue("clients", "echo", ["secret", 1], encrypt: true, track: 60, unique_for: 60, unique_by: SecureRandom.hex)
    assert_equal ["secret", 1], client.result(jid)
  end

  def test_a_failure_and_a_timeout_and_an_unknown_job_end_the_wait_for_a_result
    error = assert_raises(Pyworkers::JobFailedError) { client.result(client.enqueue("clients", "fail", ["no money"], track: 60)) }
    assert_match(/is dead: ValueError: no money\z/, error.message)
    assert_equal "ValueError", error.error_class
    jid = client.enqueue_in(600, "clients", "echo", [], track: 60)
    assert_kind_of Timeout::Error, assert_raises(Pyworkers::ResultTimeout) { client.result(jid, timeout: 0.1) }
    assert_raises(Pyworkers::UntrackedJobError) { client.result(SecureRandom.hex) }
    assert_equal :unknown, client.status(SecureRandom.hex).state
    assert_equal :removed, client.cancel(jid)
    assert_equal "cancelled", assert_raises(Pyworkers::JobFailedError) { client.result(jid) }.state
  end

  def test_a_running_job_is_cancelled
    jid = client.enqueue("slow", "nap", [60], track: 60)
    status = wait_for { client.status(jid).then { |seen| seen.progress && seen } }
    assert_equal [:running, Pyworkers::Progress.new(1, 2, "asleep")], [status.state, status.progress]
    assert_equal :noted, client.cancel(jid)
    assert_equal "cancelled", assert_raises(Pyworkers::JobFailedError) { client.result(jid, timeout: 20) }.state
  end

  def test_a_batch_counts_its_members_and_its_callback_has_its_id
    jid = SecureRandom.uuid
    marks = ['{"pyworkers":"RESULTS"}', {"pyworkers" => "RESULTS"}]
    finish = Pyworkers.step("clients", "echo", [Pyworkers::BATCH_ID, *marks], jid: jid, track: 60, expires_in: 600)
    batch = client.batch(description: "import", tags: ["tenant:7", 'é"'], on_success: finish) do |members|
      members.enqueue_bulk("clients", "add", [[1, 2], [3, 4]])
      members.enqueue("clients", "add", [5, 6], track: 60, unique_for: 60, unique_by: jid)
      members.enqueue_bulk("clients", "echo", (0...1100).map { |at| [at] })
    end
    assert_nil batch.result(timeout: 30)
    status = batch.status
    assert_equal [:succeeded, 1103, 1103, "import"], [status.state, status.done, status.total, status.description]
    wait_for { client.status(jid).state == :done }
    assert_equal ["tenant:7", 'é"'], status.tags
    assert_equal [batch.id, *marks], client.result(jid)
    error = assert_raises(Pyworkers::BatchError) { batch.add { |members| members.enqueue("clients", "echo") } }
    assert_match(/has ended: all its members are done/, error.message)
  end

  def test_a_batch_that_cannot_be_made_leaves_nothing_behind
    assert_raises(RuntimeError) { apart.batch { |members| members.enqueue("mail", "send_mail", [1]) && raise("stop") } }
    assert_raises(Pyworkers::BadArgumentError) { apart.batch { |members| members.enqueue("mail", "send_mail", [:a]) } }
    assert_raises(Pyworkers::BadArgumentError) { apart.batch(on_done: Pyworkers.step("mail", "x")) { nil } }
    assert_raises(Pyworkers::BadArgumentError) { apart.batch(tags: "tenant:7") { nil } }
    assert_raises(Pyworkers::BadArgumentError) { apart.batch(description: "no block") }
    assert_empty redis.keys(key("*"))
    redis.lpush(key("queue:mail"), "{}")
    assert_raises(Pyworkers::QueueFullError) { apart.batch { |members| members.enqueue("mail", "send_mail", [1], max_waiting: 1) } }
    redis.del(key("queue:mail"))
    assert_empty redis.keys(key("*"))
  end

  def test_members_are_added_to_a_batch_while_one_of_its_jobs_waits
    batch = client.batch { |members| members.enqueue("clients", "echo", [], delay: 1) }
    client.batch_of(batch.id).add { |members| members.enqueue("clients", "echo", [2]) }
    assert_equal 2, batch.status.total
    assert_nil batch.result(timeout: 20)
    assert_raises(Pyworkers::BatchError) { client.batch_of("unknown").add { |members| members.enqueue("clients", "echo") } }
  end

  def test_a_step_of_a_chain_takes_what_the_step_before_returned
    add = ->(*args) { Pyworkers.step("clients", "add", args) }
    last = Pyworkers.step("clients", "echo", [{"sum" => [Pyworkers::RESULT]}, Pyworkers::BATCH_ID])
    chain = client.chain(add[1, 2], add[Pyworkers::RESULT, 10], last)
    assert_equal [{"sum" => [13]}, chain.id], chain.result
    assert_equal "chain", chain.status.kind
    broken = client.chain(Pyworkers.step("clients", "fail", ["x"]), add[Pyworkers::RESULT, 1])
    assert_match(/\Athe chain .* is dead: a member is dead: /, assert_raises(Pyworkers::JobFailedError) { broken.result }.message)
    assert_raises(Pyworkers::BadArgumentError) { client.chain(add[Pyworkers::RESULT, 1]) }
    assert_raises(Pyworkers::BadArgumentError) { Pyworkers.step("clients", "add", [1, 2], unique_for: 1) }
  end

  def test_a_push_whose_reply_is_lost_is_reported_and_never_repeated
    # The gem writes the commands of a transaction one by one: the last one.
    {"EXEC" => {}, "EVALSHA" => {unique_for: 60}}.each_with_index do |(command, options), number|
      # The server knows the script, so that its first call is the one that counts.
      Pyworkers::Client.new(redis, namespace: key("0:")).enqueue("mail", "send_mail", [number], unique_for: 1)
      cut = Pyworkers::Client.new(Redis.new(url: losing(command)), namespace: key("#{command}:"))
      assert_raises(Pyworkers::RedisUnavailableError) { cut.enqueue("mail", "send_mail", [1], **options) }
      wait_for { redis.llen(key("#{command}:queue:mail")) == 1 }
      # On a new connection.
      cut.enqueue("mail", "send_mail", [2], **options)
      assert_equal 2, redis.llen(key("#{command}:queue:mail"))
    end
  end

  def test_a_connection_that_was_lost_in_a_rest_is_opened_again
    resting = Redis.new(url: URL)
    number = resting.call("CLIENT", "ID")
    redis.call("CLIENT", "KILL", "ID", number)
    Pyworkers::Client.new(resting, namespace: namespace).enqueue("mail", "send_mail", [1])
    assert_equal 1, jobs.size
  end

  def test_a_connection_leaves_the_former_primary_although_it_takes_writes
    here, there = URI(URL), URI(losing("NOTHING"))
    primary = here
    sentinel = TCPServer.new("127.0.0.1", 0)
    Thread.new do
      while (asking = sentinel.accept)
        asking.gets("get-master-addr-by-name\r\n")
        asking.write("*2\r\n$#{primary.host.size}\r\n#{primary.host}\r\n$#{primary.port.to_s.size}\r\n#{primary.port}\r\n")
        asking.close
      end
    end
    redis = Redis.new(url: "redis://mymaster", sentinels: [{host: "127.0.0.1", port: sentinel.addr[1]}])
    followed = Pyworkers::Client.new(redis, namespace: namespace)
    followed.enqueue("mail", "send_mail")
    assert_equal here.port, redis.connection[:port].to_i
    primary = there
    wait_for { followed.enqueue("mail", "send_mail") && redis.connection[:port].to_i == there.port }
  end

  def test_a_fork_has_a_connection_of_its_own
    apart.enqueue("mail", "send_mail", [1])
    pid = fork do
      apart.enqueue("mail", "send_mail", [2])
    ensure
      exit!($!.nil?)
    end
    assert_predicate Process.wait2(pid).last, :success?
    apart.enqueue("mail", "send_mail", [3])
    assert_equal 3, jobs.size
  end

  def test_servers_that_speak_another_version_of_the_wire_are_named_and_nothing_is_written
    redis.zadd(key("pyworkers:wire"), 1, "2")
    error = assert_raises(Pyworkers::StoreError) { apart.enqueue("mail", "send_mail") }
    assert_match(/\Athe servers speak version 2 of the wire, and this client version 1/, error.message)
    assert_empty jobs
    redis.zadd(key("pyworkers:wire"), 1, "1")
    apart.enqueue("mail", "send_mail")
  end

  def test_what_redis_refuses_is_an_error_with_its_code
    redis.set(key("queue:mail"), "text")
    [{}, {track: 60}].each do |options|
      assert_equal "WRONGTYPE", assert_raises(Pyworkers::StoreError) { apart.enqueue("mail", "send_mail", [], **options) }.code
    end
    away = Pyworkers::Client.new(Redis.new(url: "redis://127.0.0.1:1", reconnect_attempts: 0))
    assert_match(/\ARedis cannot be reached: /, assert_raises(Pyworkers::RedisUnavailableError) { away.enqueue("mail", "send_mail") }.message)
    assert_raises(Pyworkers::BadArgumentError) { Pyworkers::Client.new(7) }
  end

  def test_the_example_prints_what_python_returns
    example = File.expand_path("../examples/charge.rb", __dir__)
    out, status = Open3.capture2(RbConfig.ruby, "-w", "-I", File.expand_path("../lib", __dir__), example)
    assert_predicate status, :success?
    assert_match(/\A\h{24} \{"order"=>7, "currency"=>"CHF", "paid"=>true\}\n\z/, out)
  end
end
