import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import {
  BATCH_ID,
  BadArgumentError,
  Client,
  DuplicateJobError,
  JobFailedError,
  QueueFullError,
  RESULT,
  RedisUnavailableError,
  ResultTimeoutError,
  StoreError,
  UntrackedJobError,
  step,
} from "pyworkers";
import { apart, keys, losing, noServer, packages, send, url, waitFor } from "./support.js";

for (const [name, connect] of Object.entries(packages)) {
  describe(`with the package ${name}`, { skip: noServer }, () => {
    test("a job without options is a member of its queue's list, as Sidekiq pushes it", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      const jids = [await client.enqueue("mail", "send_mail", [7]), await client.enqueue("mail", "send_mail", [8])];
      assert.deepEqual(await send(redis, "SMEMBERS", `${namespace}queues`), ["mail"]);
      const jobs = (await send(redis, "LRANGE", `${namespace}queue:mail`, "0", "-1")).map((text) => JSON.parse(text));
      assert.deepEqual(jobs.map((job) => job.jid), [...jids].reverse());
      assert.equal((await send(redis, "KEYS", `${namespace}*`)).length, 2);
    });

    test("a job for later is in the schedule by its time", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      await client.enqueueIn(3600, "mail", "send_mail", [7]);
      await client.enqueueAt(new Date(4_000_000_000_500), "mail", "send_mail", [8]);
      const [, first, last, score] = await send(redis, "ZRANGE", `${namespace}schedule`, "0", "-1", "WITHSCORES").then((found) => found.flat());
      assert(Math.abs(first - Date.now() / 1000 - 3600) < 10);
      assert.equal(Number(score), 4_000_000_000.5);
      assert.equal("enqueued_at" in JSON.parse(last), false);
      assert.equal(await client.enqueueAt(1, "mail", "send_mail").then(() => send(redis, "LLEN", `${namespace}queue:mail`)), 1);
    });

    test("thousands of jobs are pushed in their order", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      const jids = await client.enqueueBulk("mail", "send_mail", Array.from({ length: 2500 }, (_, at) => [at]));
      const jobs = await send(redis, "LRANGE", `${namespace}queue:mail`, "0", "-1");
      assert.deepEqual(jobs.reverse().map((text) => JSON.parse(text).jid), jids);
      await assert.rejects(client.enqueueBulk("mail", "send_mail", [[1], 2]), /argsList\[1\] is of type number, not an array/);
      await assert.rejects(client.enqueueBulk("mail", "send_mail", [], { jid: "x" }), /jid cannot be given for several/);
    });

    test("a duplicate is answered with the other's jid, refused, or takes the place of a scheduled job", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      const options = { uniqueFor: 60, track: 60, onDuplicate: "replace", delay: 600 };
      const first = await client.enqueue("mail", "send_mail", [{ a: 1, b: 2 }], options);
      const second = await client.enqueue("mail", "send_mail", [{ b: 2, a: 1 }], options);
      assert.notEqual(second, first);
      assert.equal((await client.status(first)).state, "cancelled");
      assert.equal((await client.status(second)).state, "scheduled");
      assert.equal(await client.enqueue("mail", "send_mail", [{ b: 2, a: 1 }], { uniqueFor: 60 }), second);
      assert.deepEqual(
        await client.enqueueBulk("mail", "send_mail", [[{ a: 1, b: 2 }], [{ b: 2, a: 1 }]], { uniqueFor: 60 }),
        [second, second],
      );
      await assert.rejects(
        client.enqueue("mail", "send_mail", [{ a: 1, b: 2 }], { uniqueFor: 60, onDuplicate: "raise" }),
        (error) => error instanceof DuplicateJobError && error.jid === second,
      );
      assert.equal(await send(redis, "ZCARD", `${namespace}schedule`), 1);
      assert.equal(await send(redis, "LLEN", `${namespace}queue:mail`), 0);
    });

    test("a full queue refuses a job, a wait finds room, and a bulk is all or nothing", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      const options = { maxWaiting: 2 };
      await client.enqueueBulk("mail", "send_mail", [[1], [2]], options);
      await assert.rejects(
        client.enqueue("mail", "send_mail", [3], options),
        (error) => error instanceof QueueFullError && error.message === "the queue 'mail' is full: maxWaiting is 2",
      );
      assert.equal(await client.tryEnqueue("mail", "send_mail", [3], options), null);
      const waiting = client.enqueue("mail", "send_mail", [3], { ...options, wait: 20 });
      await send(redis, "RPOP", `${namespace}queue:mail`);
      await waiting;
      await send(redis, "RPOP", `${namespace}queue:mail`);
      await assert.rejects(client.enqueueBulk("mail", "send_mail", [[4], [5]], options), QueueFullError);
      assert.equal(await send(redis, "LLEN", `${namespace}queue:mail`), 1);
      await send(redis, "LPUSH", `${namespace}queue:mail`, "{}");
      const stopped = client.enqueue("mail", "send_mail", [6], { ...options, wait: 20, signal: AbortSignal.timeout(50) });
      await assert.rejects(stopped, { name: "AbortError" });
    });

    test("Python runs a typed call and returns its result", async () => {
      const client = new Client(await connect());
      const charge = client.call("charge", { queue: "clients", track: 60 });
      const handle = await charge.enqueue(7, "CHF");
      assert.deepEqual(await handle.result(), { order: 7, currency: "CHF", paid: true });
      assert.deepEqual(await client.result(handle.jid), await handle.result());
      const status = await handle.status();
      assert.equal(status.state, "done");
      assert(status.finishedAt >= status.startedAt);
      const handles = await charge.enqueueBulk([[1], [2, "USD"]]);
      assert.deepEqual(await Promise.all(handles.map(async (one) => (await one.result()).order)), [1, 2]);
      const big = [2n ** 70n, -0.5, "\u2028é\u{1f600}", { a: [] }];
      assert.deepEqual(await client.result(await client.enqueue("clients", "echo", big, { track: 60 })), big);
    });

    test("Python opens sealed arguments", { skip: !keys && "PYWORKERS_ENCRYPTION__KEYS is not set" }, async () => {
      const client = new Client(await connect(), { encryption: keys });
      const jid = await client.enqueue("clients", "echo", ["secret", 1], { encrypt: true, track: 60, uniqueFor: 60 });
      assert.deepEqual(await client.result(jid), ["secret", 1]);
    });

    test("a failure, a timeout, an abort and an unknown job end the wait for a result", async () => {
      const client = new Client(await connect());
      await assert.rejects(
        client.enqueue("clients", "fail", ["no money"], { track: 60 }).then((jid) => client.result(jid)),
        (error) => error instanceof JobFailedError && /is dead: ValueError: no money$/.test(error.message) && error.errorClass === "ValueError",
      );
      const jid = await client.enqueueIn(600, "clients", "echo", [], { track: 60 });
      await assert.rejects(client.result(jid, { timeout: 0.1 }), ResultTimeoutError);
      await assert.rejects(client.result(jid, { signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
      await assert.rejects(client.result(jid, { signal: AbortSignal.abort() }), { name: "AbortError" });
      await assert.rejects(client.result(randomUUID()), UntrackedJobError);
      assert.equal((await client.status(randomUUID())).state, "unknown");
      assert.equal(await client.cancel(jid), "removed");
      await assert.rejects(client.result(jid), (error) => error.state === "cancelled");
    });

    test("a running job is cancelled", async () => {
      const client = new Client(await connect());
      const nap = await client.call("nap", { queue: "slow", track: 60 }).enqueue(60);
      const status = await waitFor(async () => {
        const seen = await nap.status();
        return seen.progress && seen;
      });
      assert.deepEqual([status.state, status.progress], ["running", { done: 1, total: 2, text: "asleep" }]);
      assert.equal(await nap.cancel(), "noted");
      await assert.rejects(nap.result({ timeout: 20 }), (error) => error.state === "cancelled");
    });

    test("a batch counts its members, and its callback has its id", async () => {
      const client = new Client(await connect());
      const jid = randomUUID();
      const finish = step("clients", "echo", [BATCH_ID, '{"pyworkers":"RESULTS"}', { pyworkers: "RESULTS" }], { jid, track: 60, expiresIn: 600 });
      const batch = await client.batch({ description: "import", tags: ["tenant:7", 'é"'], onSuccess: finish }, async (members) => {
        members.enqueueBulk("clients", "add", [[1, 2], [3, 4]]);
        members.enqueue("clients", "add", [5, 6], { track: 60, uniqueFor: 60, uniqueBy: jid });
        members.enqueueBulk("clients", "echo", Array.from({ length: 1100 }, (_, at) => [at]));
      });
      assert.equal(await batch.result({ timeout: 30 }), null);
      const { state, done, total, description, tags } = await batch.status();
      assert.deepEqual(tags, ["tenant:7", 'é"']);
      assert.deepEqual([state, done, total, description], ["succeeded", 1103, 1103, "import"]);
      await waitFor(async () => (await client.status(jid)).state === "done");
      assert.deepEqual(await client.result(jid), [batch.id, '{"pyworkers":"RESULTS"}', { pyworkers: "RESULTS" }]);
      await assert.rejects(batch.add((members) => members.enqueue("clients", "echo")), /has ended: all its members are done/);
    });

    test("a batch that cannot be made leaves nothing behind", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      const make = (fill, options = {}) => client.batch(options, fill);
      const isEmpty = async () => assert.deepEqual(await send(redis, "KEYS", `${namespace}*`), []);
      await assert.rejects(make((members) => { members.enqueue("mail", "send_mail", [1]); throw new Error("stop"); }), /stop/);
      await assert.rejects(make((members) => members.enqueue("mail", "send_mail", [undefined])), BadArgumentError);
      await assert.rejects(make(() => {}, { tags: "tenant:7" }), /the tags of a batch are a list of texts/);
      await assert.rejects(make(() => {}, { onDone: step("mail", "x") }), /onDone is not an option of a batch/);
      await isEmpty();
      await send(redis, "LPUSH", `${namespace}queue:mail`, "{}");
      await assert.rejects(make((members) => members.enqueue("mail", "send_mail", [1], { maxWaiting: 1 })), QueueFullError);
      await send(redis, "DEL", `${namespace}queue:mail`);
      await isEmpty();
    });

    test("members are added to a batch while one of its jobs waits", async () => {
      const client = new Client(await connect());
      const batch = await client.batch({}, (members) => members.enqueue("clients", "echo", [], { delay: 1 }));
      await client.batchOf(batch.id).add((members) => members.enqueue("clients", "echo", [2]));
      assert.equal((await batch.status()).total, 2);
      await batch.result({ timeout: 20 });
      await assert.rejects(client.batchOf("unknown").add((members) => members.enqueue("clients", "echo")), /is unknown: it has expired/);
    });

    test("a step of a chain takes what the step before returned", async () => {
      const client = new Client(await connect());
      const add = client.call("add", { queue: "clients" });
      const chain = await client.chain([add.with(1, 2), add.with(RESULT, 10), step("clients", "echo", [{ sum: [RESULT] }, BATCH_ID])]);
      assert.deepEqual(await chain.result(), [{ sum: [13] }, chain.id]);
      assert.equal((await chain.status()).kind, "chain");
      const broken = await client.chain([step("clients", "fail", ["x"]), add.with(RESULT, 1)]);
      await assert.rejects(broken.result(), (error) => error instanceof JobFailedError && /^the chain .* is dead: a member is dead: /.test(error.message));
      await assert.rejects(client.chain([add.with(RESULT, 1)]), /has no step before it whose result it could take/);
      assert.throws(() => step("clients", "add", [1, 2], { uniqueFor: 1 }), /uniqueFor has no effect on a step/);
    });

    test("a push whose reply is lost is reported, and never repeated", async () => {
      const direct = await connect();
      for (const [command, options] of [["EXEC", {}], ["EVALSHA", { uniqueFor: 60 }]]) {
        const { namespace } = apart(direct);
        // The server knows the script, so that its first call is the one that counts.
        await new Client(direct, { namespace: `${namespace}0:` }).enqueue("mail", "send_mail", [0], { uniqueFor: 1 });
        const client = new Client(await connect(await losing(command)), { namespace });
        await assert.rejects(client.enqueue("mail", "send_mail", [1], options), RedisUnavailableError);
        await waitFor(async () => (await send(direct, "LLEN", `${namespace}queue:mail`)) === 1);
        // On the new connection.
        await waitFor(() => client.enqueue("mail", "send_mail", [2], options).catch(() => false));
        assert.equal(await send(direct, "LLEN", `${namespace}queue:mail`), 2);
      }
    });

    test("servers that speak another version of the wire are named, and nothing is written", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      await send(redis, "ZADD", `${namespace}pyworkers:wire`, "1", "2");
      const message = /^the servers speak version 2 of the wire, and this client version 1/;
      await assert.rejects(client.enqueue("mail", "send_mail"), (error) => error instanceof StoreError && message.test(error.message));
      assert.equal(await send(redis, "EXISTS", `${namespace}queue:mail`), 0);
      await send(redis, "ZADD", `${namespace}pyworkers:wire`, "1", "1");
      await client.enqueue("mail", "send_mail");
    });

    test("what Redis refuses is an error with its code", async () => {
      const redis = await connect();
      const { client, namespace } = apart(redis);
      await send(redis, "SET", `${namespace}queue:mail`, "text");
      for (const options of [{}, { track: 60 }]) {
        await assert.rejects(
          client.enqueue("mail", "send_mail", [], options),
          (error) => error instanceof StoreError && error.code === "WRONGTYPE",
        );
      }
      assert.equal(await send(redis, "EXISTS", `${namespace}schedule`), 0);
    });
  });
}

test("a connection that cannot be used is refused with the fix", { skip: noServer }, async () => {
  assert.throws(() => new Client("redis://127.0.0.1"), /is not a connection of the package redis or ioredis/);
  const { Redis } = await import("ioredis");
  assert.throws(() => new Client(new Redis(url, { lazyConnect: true })), /write new Redis\(url, \{ autoResendUnfulfilledCommands: false \}\)/);
  const sentinels = { name: "mymaster", sentinels: [{ host: "127.0.0.1", port: 1 }], lazyConnect: true, autoResendUnfulfilledCommands: false };
  assert.throws(() => new Client(new Redis(sentinels)), /write new Redis\(\{ sentinels, name, failoverDetector: true/);
  new Client(new Redis({ ...sentinels, failoverDetector: true }));
  const { createClient, createClientPool, createSentinel } = await import("redis");
  for (const redis of [new Redis(url, { lazyConnect: true, keyPrefix: "app:" }), createClient({ url, keyPrefix: "app:" })]) {
    assert.throws(() => new Client(redis), /give the prefix to the client: new Client\(redis, \{ namespace: "app:" \}\)/);
  }
  assert.throws(() => new Client(createSentinel({ name: "mymaster", sentinelRootNodes: sentinels.sentinels })), /sentinels with ioredis/);
  assert.throws(() => new Client(createClientPool({ url })), /is not a connection of the package redis or ioredis/);
  await assert.rejects(new Client(createClient({ url })).enqueue("mail", "x"), /Redis cannot be reached: the connection is not ready/);
});

test("the example prints what Python returns", { skip: noServer }, async () => {
  const example = fileURLToPath(new URL("../examples/charge.js", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [example]);
  assert.match(stdout, /^[0-9a-f]{24} \{ order: 7, currency: 'CHF', paid: true \}\n$/);
});
