# frozen_string_literal: true

module Pyworkers
  # Stands for an argument of a step or of a callback that is known later.
  Placeholder = Struct.new(:name) do
    def inspect = name
    alias_method :to_s, :inspect
  end
  # In an argument of a step: what the step before returned.
  RESULT = Placeholder.new("RESULT").freeze
  # In an argument of a step or a callback: the id of its batch.
  BATCH_ID = Placeholder.new("BATCH_ID").freeze

  # A job that a server pushes later: a step of a chain, or a callback. {Pyworkers.step} makes it.
  Step = Struct.new(:queue, :job_class, :args, :options)

  # The numbers and times of a batch at one moment.
  #
  # @!attribute tags [Array<String>] texts by which people find the batch
  # @!attribute kind [String] +batch+, +chain+ or +group+
  # @!attribute state [Symbol] +:open+, +:lost+, +:succeeded+, +:dead+, +:failing+ or +:running+: the first that is true
  # @!attribute pending [Integer] the members that have not ended
  # @!attribute failed [Integer] the members that wait for a retry; they are pending, too
  # @!attribute gone [Hash{Symbol => Integer}] the members that have ended, are not done, and are not kept, by kind
  # @!attribute lost [Integer] the members that Redis has forgotten
  # @!attribute reason_jid [String] the first member that ended and was not done; +reason+ says how
  BatchStatus = Struct.new(
    :id, :description, :tags, :kind, :state, :total, :pending, :done, :failed, :dead, :gone, :lost,
    :created_at, :complete_at, :success_at, :death_at, :reason, :reason_jid, keyword_init: true
  )

  # A batch, or a chain. {Client#batch}, {Client#chain} and {Client#batch_of} make it.
  class Batch
    GONE = %i[dropped cancelled deleted expired missing skipped].freeze
    private_constant :GONE

    # @return [String]
    attr_reader :id

    # @api private
    def initialize(enlisting, id)
      @enlisting = enlisting
      @id = id
    end

    # Add members to a batch that has not ended. If the block raises, none is added.
    #
    # @yieldparam members [Members]
    # @return [self]
    # @raise [BatchError] if the batch is unknown or has ended
    def add(&block)
      @enlisting.add(id, &block)
      self
    end

    # @return [BatchStatus]
    # @raise [BatchError] if the batch is unknown
    def status
      facts, *sizes = @enlisting.facts(id)
      holds, total, done, created_at = %w[open total done created_at].map { |name| Float(facts[name], exception: false) }
      raise BatchError, "the batch #{id} is unknown: expired, deleted, or not sent yet" unless holds && total && done && created_at

      holds, total, done = [holds, total, done].map(&:to_i)
      waiting, failed, dead = sizes
      gone = GONE.to_h { |kind| [kind, facts[kind.to_s].to_i] }
      lost = total - done - (waiting - holds) - failed - dead - gone.values.sum
      times = %i[created_at complete_at success_at death_at].to_h { |name| [name, Results.read_time(facts[name.to_s])] }
      BatchStatus.new(
        id: id, description: facts["description"].to_s, tags: tags(facts["tags"]), kind: facts.fetch("kind", "batch"),
        state: state(holds, lost, times[:success_at], dead + gone.values.sum, failed),
        total: total, pending: waiting - holds + failed, done: done, failed: failed, dead: dead, gone: gone, lost: lost,
        **times, reason: facts["reason"].to_s, reason_jid: facts["reason_jid"].to_s
      )
    end

    # What the last step of a chain returned; nil for a batch. One blocking read waits for it.
    #
    # @param timeout [Numeric, nil] seconds; nil: without a limit
    # @raise [JobFailedError] once a member has ended that is not done
    # @raise [ResultTimeout]
    def result(timeout: 10)
      @enlisting.result(id, timeout, status.kind)
    end

    private

    # None of a field that another program has written otherwise.
    def tags(text)
      found = JSON.parse(text || "[]")
      found.is_a?(Array) ? found.grep(String) : []
    rescue JSON::ParserError
      []
    end

    def state(holds, lost, success_at, ended, failed)
      return :open if holds.positive?
      return :lost unless lost.zero?
      return :succeeded if success_at
      return :dead if ended.positive?

      failed.positive? ? :failing : :running
    end
  end

  # Takes the members of a batch. They are sent when the block that adds them has ended.
  class Members
    # @api private
    attr_reader :jobs

    # @api private
    def initialize(keyring)
      @keyring = keyring
      @jobs = []
      @open = true
    end

    # Add a job.
    #
    # @param (see Client#enqueue)
    # @return [String] its jid
    def enqueue(queue, job_class, args = [], **options)
      gather([Draft.new(queue, job_class, options, keyring: @keyring).job(args)]).first
    end

    # Add a job for each list of arguments.
    #
    # @param (see Client#enqueue_bulk)
    # @return [Array<String>] their jids
    def enqueue_bulk(queue, job_class, args_list, **options)
      gather(Draft.new(queue, job_class, options, keyring: @keyring).jobs(args_list).to_a)
    end

    # @api private
    def close = @open = false

    private

    def gather(jobs)
      raise BatchError, "the batch is closed: its members are added before the block ends" unless @open

      @jobs.concat(jobs)
      jobs.map(&:jid)
    end
  end

  # Writes batches and chains, and reads them.
  #
  # @api private
  class Enlisting
    MOST_STEPS = 1000
    SCRIPT = Script.new("batch.lua")
    EVENTS = %i[on_success on_complete on_death on_cancel].freeze
    # What an earlier form of a job that follows had in place of the results: a text that has it names their places.
    OLD_RESULTS = '{"pyworkers":"RESULTS"}'
    # The options that act at a push: a step or a callback is pushed later.
    OF_A_PUSH = %i[delay at unique_for max_waiting].freeze

    # @return [Step]
    def self.step(queue, job_class, args, options)
      acting = OF_A_PUSH.find { |name| options[name] }
      raise BadArgumentError, "#{acting} has no effect on a step or a callback, which a server pushes later" if acting

      Step.new(queue, job_class, args, options).freeze
    end

    # A job as a member of a batch.
    #
    # @return [Job]
    def self.member(job, batch)
      job.dup.tap do |member|
        member.payload = "#{job.payload.chop},#{Json.encode({"batch" => batch}, "batch")[1..]}"
        member.batch = batch
      end
    end

    def initialize(connection, keys, keyring)
      @connection = connection
      @keys = keys
      @keyring = keyring
    end

    def open(description, tags, missing, callbacks, &block)
      raise BadArgumentError, "the description of a batch is a text, not #{description.inspect}" unless description.is_a?(String)
      unless tags.is_a?(Array) && tags.all? { |tag| tag.is_a?(String) && !tag.empty? }
        raise BadArgumentError, "the tags of a batch are a list of texts, not #{tags.inspect}"
      end
      unless %w[fail ignore].include?(missing.to_s)
        raise BadArgumentError, "missing is \"fail\" or \"ignore\", not #{missing.inspect}"
      end

      id = SecureRandom.hex(12)
      fields = {"answer" => "1", "description" => description}
      fields["tags"] = Json.encode(tags, "tags") if tags.any?
      fields["if_missing"] = "ignore" if missing.to_s == "ignore"
      fields.merge!(callback_fields(id, callbacks))
      write(id, members(&block), fields: fields)
      Batch.new(self, id)
    end

    def add(id, &block) = write(id, members(&block), exists: true)

    def chain(steps, callbacks)
      raise BadArgumentError, "a chain has at least one step" if steps.empty?
      raise BadArgumentError, "a chain of #{steps.size} steps; the limit is #{MOST_STEPS}" if steps.size > MOST_STEPS

      id = SecureRandom.hex(12)
      first, *rest = made = steps.each_with_index.map { |step, place| step_job(step, id, place, place == steps.size - 1) }
      following = ",\"then\":{\"v\":2,\"steps\":[#{rest.map(&:payload).join(",")}]}" if rest.any?
      first.payload = "#{first.payload.chop}#{following},\"enqueued_at\":#{Time.now.to_f}}"
      fields = {"kind" => "chain", **callback_fields(id, callbacks), "answer" => "1"}
      send_script(id, "create", fields: fields, members: made.map(&:jid), jobs: [first])
      Batch.new(self, id)
    end

    # The hash of a batch, and the sizes of its sets.
    def facts(id)
      Results.check_jid(id)
      key = @keys.own("batch:#{id}")
      facts, *sizes = @connection.transaction([["HGETALL", key], *%w[members failed dead].map { |part| ["SCARD", "#{key}:#{part}"] }])
      [facts.is_a?(Hash) ? facts : facts.each_slice(2).to_h, *sizes]
    end

    def result(id, timeout, kind) = Results.new(@connection, @keys).result(id, timeout, kind)

    private

    def members
      raise BadArgumentError.new("a block adds the members of a batch", hint: "write batch { |members| members.enqueue(queue, job_class, args) }") unless block_given?

      gathered = Members.new(@keyring)
      begin
        yield gathered
      ensure
        gathered.close
      end
      gathered.jobs
    end

    def step_job(step, batch, place, last)
      raise BadArgumentError, "a step is made by Pyworkers.step(queue, job_class, args), not #{step.inspect}" unless step.is_a?(Step)

      paths = []
      args = filled(step.args, batch, paths)
      raise BadArgumentError, "the first step of a chain has no step before it whose result it could take" if paths.any? && place.zero?
      raise BadArgumentError, "a result cannot become an argument of an encrypted job" if paths.any? && step.options[:encrypt]

      job = later_job(step, args)
      fields = paths.any? ? {"fill" => {"RESULT" => paths}} : {}
      fields["batch"] = batch
      fields["batch_index"] = 0 if last
      job.payload = "#{job.payload.chop},#{Json.encode(fields, "step")[1..]}"
      job
    end

    def later_job(step, args) = Draft.new(step.queue, step.job_class, step.options, keyring: @keyring).job(args, later: true)

    # The arguments with the id of the batch; nil where a result goes, whose path is added to +paths+.
    def filled(value, batch, paths, path = [])
      case value
      when BATCH_ID then batch
      when RESULT
        paths << path
        nil
      when Array then value.each_with_index.map { |item, at| filled(item, batch, paths, [*path, at]) }
      when Hash then value.to_h { |name, item| [name, filled(item, batch, paths, [*path, name])] }
      else value
      end
    end

    def callback_fields(batch, callbacks)
      callbacks.each_with_object({}) do |(event, step), fields|
        unless EVENTS.include?(event)
          raise BadArgumentError, "#{event} is not an option of a batch: these are description, tags, missing, #{EVENTS.join(", ")}"
        end
        next if step.nil?
        raise BadArgumentError, "#{event} is made by Pyworkers.step(queue, job_class, args), not #{step.inspect}" unless step.is_a?(Step)

        paths = []
        payload = later_job(step, filled(step.args, batch, paths)).payload
        raise BadArgumentError, "#{event} has no result to take: use a chain" if paths.any?

        fields[event.to_s] = "#{step.queue} #{"- " if payload.include?(OLD_RESULTS)}#{payload}"
      end
    end

    # Write a batch and push its members: in one script, or, if these are many or have conditions, in several, while a
    # hold keeps the callbacks back. If one of several fails, the batch stays open, and no callback fires.
    def write(id, jobs, fields: {}, exists: false)
      conditional, plain = jobs.map { |job| Enlisting.member(job, id) }.partition { |job| job.asked.any? }
      mode = exists ? "open" : "create"
      portions = Push.portions(plain).to_a
      return send_script(id, mode, fields: fields, jobs: plain) if conditional.empty? && portions.size <= 1

      hold = SecureRandom.hex(12)
      send_script(id, mode, fields: fields, hold: hold)
      push_conditional(id, conditional, exists, hold)
      portions.each { |portion| send_script(id, "add", jobs: portion) }
      send_script(id, "add", release: hold)
    end

    def push_conditional(id, jobs, exists, hold)
      Push.portions(jobs).with_index do |portion, number|
        Push.new(@connection, @keys).call(portion)
      rescue DuplicateJobError, QueueFullError => error
        delete_or_close(id, exists, hold) if number.zero?
        raise error
      end
    end

    # Nothing is a member yet. If this fails, the batch stays open; the caller gets the error of the push nevertheless.
    def delete_or_close(id, exists, hold)
      exists ? send_script(id, "add", release: hold) : send_script(id, "delete")
    rescue Error
      nil
    end

    def send_script(id, mode, fields: {}, hold: "", release: "", jobs: [], members: jobs.map(&:jid))
      names = [@keys.queues, @keys.schedule, @keys.own("batches")]
      rows = jobs.group_by { |job| job.at ? "" : job.queue }.flat_map do |queue, some|
        parts = some.flat_map { |job| job.at ? [job.at, job.payload] : [job.payload] }
        names << @keys.queue(queue) unless queue.empty?
        [queue, queue.empty? ? 2 : names.size, parts.size, *parts]
      end
      args = [id, mode, hold, release, fields.size, 0, members.size, *fields.flatten, *members, *rows, @keys.namespace]
      answer = SCRIPT.call(@connection, names, args)
      raise Push.refused(id, answer) unless answer == "ok"
    end
  end
end
