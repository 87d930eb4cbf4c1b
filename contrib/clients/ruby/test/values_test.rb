# frozen_string_literal: true

require "bigdecimal"
require "tmpdir"
require "test_helper"

class ValuesTest < Minitest::Test
  NOW = 1_700_000_000.0

  def test_the_canonical_form_is_that_of_rfc_8785_with_integers_of_any_size
    {
      2.0 => "2", -0.0 => "0", 1e20 => "100000000000000000000", 1e21 => "1e+21", 1e-7 => "1e-7", 0.000001 => "0.000001",
      10**21 => "1000000000000000000000",
      {"b" => 1, "a" => [nil, true], "\u{10000}" => 2, "\uffff" => 3} => "{\"a\":[null,true],\"b\":1,\"\u{10000}\":2,\"\uffff\":3}",
      "\"\\\b\f\n\r\t\u0001<\u2028\u007f" => "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001<\u2028\u007f\""
    }.each { |value, text| assert_equal text, Pyworkers::Json.canonical(value) }
  end

  def test_a_value_that_json_does_not_carry_is_refused_with_its_path
    cyclic = []
    cyclic << cyclic
    {
      [:a] => "args[0] is of type Symbol, which JSON does not carry",
      [{"a" => {"b" => Time.now}}] => 'args[0]["a"]["b"] is of type Time, which JSON does not carry',
      [{a: 1}] => "args[0] has the key :a; JSON keys are strings",
      [1, [Float::NAN]] => "args[1][0] is NaN, which is not a JSON number",
      [BigDecimal("1")] => "args[0] is of type BigDecimal, which JSON does not carry",
      ["ab\xED\xA0\x80"] => "args[0] holds a lone surrogate, or other invalid UTF-8, at character 2",
      ["\xff".b] => "args[0] is a text in ASCII-8BIT, which is not UTF-8",
      [10**4300] => "args[0] is an integer of more than 4,300 digits",
      [Pyworkers::RESULT] => "args[0] is of type Pyworkers::Placeholder, which JSON does not carry",
      cyclic => /is nested deeper than 500 levels/,
      "text" => "args is of type String, not a list of arguments"
    }.each { |args, message| assert_refused(message) { payload({}, args) } }
    assert_equal '["é"]', Pyworkers::Json.encode(["é".encode("ISO-8859-1")], "args")
  end

  def test_jobs_are_sent_a_thousand_or_16_mb_at_a_time
    redis = Answering.new { |args| args[1] =~ /create|add/ ? "ok" : ["pushed", "other", *[""] * (args.first.to_i - 1)] }
    client = Pyworkers::Client.new(redis)
    large = [["x" * (6 << 20)]] * 4
    jids = client.enqueue_bulk("mail", "send_mail", large, track: 60)
    assert_equal [true, false, false, true], jids.map { |jid| jid == "other" }
    client.enqueue_bulk("mail", "send_mail", [[]] * 1001, track: 60)
    client.batch { |members| members.enqueue_bulk("mail", "send_mail", large) }
    numbers = redis.calls.map { |args| args[1] =~ /create|add/ ? [args[1], args[6].to_i] : args.first.to_i }
    assert_equal [3, 1, 1000, 1, ["create", 0], ["add", 3], ["add", 1], ["add", 0]], numbers
  end

  def test_the_refusal_of_the_first_members_is_raised_though_the_batch_cannot_be_deleted
    redis = Answering.new do |args|
      raise Pyworkers::RedisUnavailableError, "away" if %w[delete add].include?(args[1])

      args[1] =~ /create|open/ ? "ok" : ["full", 1, 0]
    end
    client = Pyworkers::Client.new(redis)
    add = ->(members) { members.enqueue("mail", "send_mail", [], max_waiting: 1) }
    assert_raises(Pyworkers::QueueFullError) { client.batch(&add) }
    assert_raises(Pyworkers::QueueFullError) { client.batch_of("b").add(&add) }
    assert_equal %w[create 1 delete open 1 add], redis.calls.map { |args| args[1] }
  end

  def test_the_members_of_a_batch_are_any_enumerable_of_lists
    redis = Answering.new { "ok" }
    client = Pyworkers::Client.new(redis)
    client.batch { |members| members.enqueue_bulk("mail", "send_mail", (1..3).lazy.map { |number| [number] }) }
    assert_equal 3, redis.calls.last[6].to_i
    assert_refused("args_list is of type Integer, not a list of arguments") { client.batch { |members| members.enqueue_bulk("mail", "x", 7) } }
    assert_refused("jid cannot be given for several jobs") { client.batch { |members| members.enqueue_bulk("mail", "x", [], jid: "j") } }
  end

  def test_an_option_that_does_not_exist_or_has_an_invalid_value_is_refused_with_the_fix
    {
      {uniqe_for: 1} => "uniqe_for is not an option: did you mean unique_for?",
      {retry: "5"} => 'retry must be true, false or a number of retries, not "5"',
      {unique_for: 0} => "unique_for must be seconds above 0 and up to 1e+09, or nil, not 0",
      {history: true} => "history has no effect without track",
      {wait: 1} => "wait has no effect without max_waiting",
      {extra: {"jid" => "x"}} => 'extra["jid"] is not a field of your own: it is the option jid:',
      {extra: {"then" => 1}} => 'extra["then"] is not a field of your own: pyworkers writes it',
      {delay: 1, at: Time.now} => "delay and at exclude each other",
      {at: "tomorrow"} => 'at must be a Time, or epoch seconds up to the year 9999, not "tomorrow"',
      {delay: 1e12} => "1000000000000.0 from now is after the year 9999",
      {tags: ["\xff"]} => "tags[0] holds a lone surrogate, or other invalid UTF-8, at character 0",
      {extra: {"a" => :b}} => 'extra["a"] is of type Symbol, which JSON does not carry'
    }.each { |options, message| assert_refused(message) { payload(options) } }
    ["", "a b", "a|b", "queue:a", "backup::a", "a:inprogress", "x" * 129, "\u0085", :mail].each do |queue|
      assert_refused(/cannot be a queue: a queue name has 1 to 128/) { Pyworkers::Draft.new(queue, "Job", {}) }
    end
    assert_refused(/cannot be a job class: a name without/) { Pyworkers::Draft.new("mail", "a|b", {}) }
    ["app", "a p:", "a:\n", :"app:"].each do |namespace|
      assert_refused(/namespace must be empty or end with a colon, without white space, not /) do
        Pyworkers::Client.new(Answering.new { "ok" }, namespace: namespace)
      end
    end
  end

  def test_the_envelope_has_the_fields_and_their_order_of_the_python_client
    assert_equal(
      '{"retry":3,"queue":"mail","class":"send_mail","args":[1000000000000000000000000000000,{"b":"é","a":2.5}],' \
      '"track":60,"tenant":7,"jid":"j","created_at":1700000000.0,"enqueued_at":1700000000.0,"expiry":1700000010.0}',
      payload({retry: 3, track: 60, expires_in: 10, extra: {"tenant" => 7}}, [10**30, {"b" => "é", "a" => 2.5}])
    )
    assert_equal '{"queue":"mail","class":"send_mail","args":[],"jid":"j","created_at":1700000000.0}', payload({delay: 60})
  end

  def test_sealed_arguments_open_for_their_own_job_alone_with_each_key
    old = SecureRandom.bytes(32)
    fresh = [SecureRandom.bytes(32)].pack("m0")
    sealed = Pyworkers::Keyring.new([old]).seal('[7,"é"]', "jid", "Job")
    assert_equal [7, "é"], Pyworkers::Keyring.new([fresh, old]).open(sealed, "jid", "Job")
    assert_raises(Pyworkers::EncryptionKeyError) { Pyworkers::Keyring.new([old]).open(sealed, "other", "Job") }
    assert_raises(Pyworkers::EncryptionKeyError) { Pyworkers::Keyring.new([fresh]).open(sealed, "jid", "Job") }
    assert_refused("encryption[0]: a key of 3 bytes, not 32: make a key with: openssl rand -base64 32") { Pyworkers::Keyring.new(["AAAA"]) }
    assert_refused(/\Aencryption\[0\]: not base64/) { Pyworkers::Keyring.new([7]) }
    refute_includes Pyworkers::Keyring.new([fresh]).inspect, fresh
    assert_raises(Pyworkers::EncryptionKeyError) { payload({encrypt: true}) }
  end

  def test_a_script_of_another_version_of_the_wire_is_refused
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "push.lua"), "-- pyworkers push, wire 2\n")
      error = assert_raises(Pyworkers::StoreError) { Pyworkers::Script.new("push.lua", folder: folder) }
      assert_match(/\Apush.lua is of another version of the wire: "-- pyworkers push, wire 2", not wire 1/, error.message)
    end
  end

  # A Redis that was demoted, until its connection is closed.
  class Demoted
    attr_reader :calls

    def initialize = @calls = []

    def with = yield(self)

    def call(*command)
      @calls << command.first
      raise Redis::CommandError, "READONLY You can't write against a read only replica." if command.first == "LPUSH" && @calls.count("LPUSH") == 1

      []
    end

    def close = @calls << :close
  end

  def test_a_call_that_a_demoted_redis_refuses_is_sent_once_more_on_a_new_connection
    redis = Demoted.new
    Pyworkers::Connection.new(redis, "pyworkers:wire").call("LPUSH", "queue:mail", "{}")
    assert_equal ["ZRANGEBYSCORE", "PING", "LPUSH", :close, "LPUSH"], redis.calls
  end

  def test_a_redis_that_takes_no_more_connections_is_unavailable
    redis = Answering.new { raise Redis::CommandError, "ERR max number of clients reached" }
    error = assert_raises(Pyworkers::RedisUnavailableError) { Pyworkers::Connection.new(redis, "w").call("EVALSHA", "", 0) }
    assert_equal ["Redis takes no more connections: ERR max number of clients reached", "MAXCLIENTS"], [error.message, error.code]
  end

  private

  def payload(options, args = [])
    Pyworkers::Draft.new("mail", "send_mail", {jid: "j", **options}, now: NOW).job(args).payload
  end

  def assert_refused(message, &block)
    error = assert_raises(Pyworkers::BadArgumentError, &block)
    assert_kind_of ArgumentError, error
    message.is_a?(Regexp) ? assert_match(message, error.message) : assert_equal(message, error.message.lines.first.chomp)
  end
end
