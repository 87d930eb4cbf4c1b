# frozen_string_literal: true

require "test_helper"

# The vectors that Python has made, with what this client computes from the same values.
class VectorsTest < Minitest::Test
  WIRE = File.expand_path("../../wire", __dir__)
  VECTORS = JSON.parse(File.read(File.join(WIRE, "vectors.json")), max_nesting: false)
  ERRORS = {
    "full" => Pyworkers::QueueFullError, "duplicate" => Pyworkers::DuplicateJobError, "batch" => Pyworkers::BatchError
  }.freeze

  # Keeps what is sent to it.
  class Recorder
    attr_reader :sent

    def initialize(reply)
      @reply = reply
      @sent = []
    end

    def call(*command)
      @sent << command.map(&:to_s)
      @reply
    end

    def transaction(commands) = @sent.concat(commands.map { |command| command.map(&:to_s) })
  end

  # Without those whose JSON Ruby's own parser refuses, or reads as another text: lone surrogates.
  def each_case(section)
    VECTORS.fetch(section).each do |vector|
      json = vector["json"] || vector.dig("enqueue", "args") unless vector["enqueue"].is_a?(Array)
      yield vector, vector["name"] unless vector.key?("refused") && json.to_s.match?(/\\u[dD][89a-fA-F]/)
    end
  end

  def test_the_scripts_are_those_that_are_published
    %w[push.lua batch.lua cancel.lua].each do |script|
      assert_equal File.read(File.join(WIRE, script)), File.read(File.expand_path("../lib/pyworkers/#{script}", __dir__))
    end
  end

  def test_canonical_forms
    each_case("canonical") do |vector, name|
      if vector.key?("refused")
        # A number that no double holds is infinite.
        assert_raises(Pyworkers::BadArgumentError, JSON::ParserError, name) { Pyworkers::Json.canonical(Pyworkers::Json.decode(vector["json"])) }
      else
        assert_equal vector["canonical"], Pyworkers::Json.canonical(Pyworkers::Json.decode(vector["json"])), name
      end
    end
  end

  def test_keys_of_locks
    each_case("unique_keys") do |vector, name|
      by = vector["by"] && Pyworkers::Json.decode(vector["by"])
      key = Pyworkers::Unique.key(vector["queue"], vector["class"], Pyworkers::Json.decode(vector["args"]), by: by)
      assert_equal vector["key"], vector["unique_until"] == "expiry" ? "#{key}|expiry" : key, name
    end
    each_case("digests") do |vector, name|
      args = Pyworkers::Json.decode(vector["args"])
      assert_equal vector["sha256"], Pyworkers::Unique.key("q", "C", args).split("|")[2], name
      keyring = Pyworkers::Keyring.new([vector["key"]])
      assert_equal vector["hmac"], Pyworkers::Unique.key("q", "C", args, keyring: keyring).split("|")[2], name
    end
  end

  def test_sealed_arguments
    each_case("sealed") do |vector, name|
      keyring = Pyworkers::Keyring.new(vector["keys"])
      about = vector.values_at("jid", "class")
      if vector.key?("refused")
        assert_raises(Pyworkers::EncryptionKeyError, name) { keyring.open(vector["sealed"], *about) }
      else
        args = Pyworkers::Json.decode(vector["args"])
        assert_equal args, keyring.open(vector["sealed"], *about), name
        assert_equal args, keyring.open(keyring.seal(vector["args"], *about), *about), name
      end
    end
  end

  def test_envelopes
    each_case("envelopes") do |vector, name|
      about = vector["enqueue"]
      if vector.key?("refused")
        error = assert_raises(Pyworkers::BadArgumentError, name) { job_of(about) }
        # Up to the names of types and the quotes of texts, which are each language's own.
        head = ->(message) { message.tr("'", '"').downcase[0, 14] }
        assert_equal head[vector["refused"]], head[error.message], name
        next
      end
      job = job_of(about)
      vector.key?("score") ? assert_equal(vector["score"], job.at, name) : assert_nil(job.at, name)
      next assert_equal(vector["payload"], job.payload, name) unless about.key?("keys")

      # Sealed with another nonce.
      mine, theirs = [job.payload, vector["payload"]].map { |text| JSON.parse(text) }
      opened = [mine, theirs].map { |one| Pyworkers::Keyring.new(about["keys"]).open(one.delete("args").first, one["jid"], one["class"]) }
      assert_equal opened.first, opened.last, name
      assert_equal theirs, mine, name
    end
  end

  def test_pushes
    each_case("pushes") do |vector, name|
      next unless vector.key?("enqueue")

      reply = vector.fetch("reply", ["pushed", ""])
      recorder = Recorder.new(reply)
      push = Pyworkers::Push.new(recorder, Pyworkers::Keys.new(vector["namespace"]))
      jobs = vector["enqueue"].map { |about| job_of(about) }
      error = ERRORS[reply.first]
      error ? assert_raises(error, name) { push.call(jobs) } : push.call(jobs)
      next assert_equal(vector["plain"], recorder.sent, name) if vector.key?("plain")

      assert_equal [vector["keys"].size.to_s, *vector["keys"], *vector["argv"]], recorder.sent.first.drop(2), name
    end
  end

  def test_statuses_and_results
    each_case("statuses") do |vector, name|
      status = Pyworkers::Results.read_status(vector["hash"].values_at(*Pyworkers::Results::FIELDS))
      found = status.to_h.transform_keys(&:to_s)
      found["state"] = found["state"].to_s
      found["progress"] &&= found["progress"].to_h.transform_keys(&:to_s)
      %w[started_at finished_at].each { |time| found[time] &&= found[time].to_r.to_f }
      assert_equal vector["status"], found, name
    end
    each_case("answers") do |vector, name|
      answer = Pyworkers::Results.read_answer(vector["value"])
      next assert_nil(answer, name) if vector.key?("refused")

      empty = {"result" => nil, "error_class" => "", "error" => "", "jid" => "", "reason" => ""}
      assert_equal vector["answer"], empty.merge(answer), name
    end
  end

  private

  # The job of an enqueue call of the vectors.
  def job_of(about)
    options = about["options"].transform_keys(&:to_sym)
    options[:jid] = about["jid"]
    options[:at] = about["at"] if about.key?("at")
    keyring = about["keys"] && Pyworkers::Keyring.new(about["keys"])
    draft = Pyworkers::Draft.new(about["queue"], about["class"], options, keyring: keyring, now: about["now"])
    job = draft.job(Pyworkers::Json.decode(about["args"]))
    about["batch"] ? Pyworkers::Enlisting.member(job, about["batch"]) : job
  end
end
