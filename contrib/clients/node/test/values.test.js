import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { EventEmitter } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Redis } from "ioredis";
import { BadArgumentError, Client, EncryptionKeyError, Keyring, QueueFullError, RESULT, RedisUnavailableError, canonical, uniqueKey } from "pyworkers";
import { drafting } from "../src/envelope.js";
import { decode, encode } from "../src/json.js";
import { Script, spoken, wireOf } from "../src/redis.js";

const NOW = 1_700_000_000;

function payload(options, args = [], now = NOW) {
  return drafting("mail", "send_mail", { jid: "j", ...options }, undefined, now)(args).payload;
}

test("the canonical form is that of RFC 8785, with all digits of integers", () => {
  const cases = [
    [2.0, "2"],
    [-0, "0"],
    [1e20, "100000000000000000000"],
    [1e21, "1e+21"],
    [1e-7, "1e-7"],
    [10n ** 21n, "1000000000000000000000"],
    [{ b: 1, a: [null, true], "\u{10000}": 2, "\uffff": 3 }, '{"a":[null,true],"b":1,"\u{10000}":2,"\uffff":3}'],
    ['"\\\b\f\n\r\t\u0001<\u2028', '"\\"\\\\\\b\\f\\n\\r\\t\\u0001<\u2028"'],
  ];
  for (const [value, text] of cases) assert.equal(canonical(value, "value"), text);
});

/** A connection without a server. Notes the arguments of each script, and answers what a function makes of them. */
function answering(answer) {
  const calls = [];
  const sendCommand = async ([command, , keys, ...rest]) => {
    if (command !== "EVALSHA") return [];
    calls.push(rest.slice(Number(keys)));
    return answer(calls.at(-1));
  };
  return { calls, client: new Client({ isReady: true, sendCommand, multi() {} }) };
}

const isOfBatch = ([, mode]) => mode === "create" || mode === "add";

test("jobs are sent a thousand or 16 MB at a time", async () => {
  const { calls, client } = answering((args) => (isOfBatch(args) ? "ok" : ["pushed", "other", ...Array(Number(args[0]) - 1).fill("")]));
  const large = Array(4).fill(["x".repeat(6 << 20)]);
  const jids = await client.enqueueBulk("mail", "send_mail", large, { track: 60 });
  assert.deepEqual(jids.map((jid) => jid === "other"), [true, false, false, true]);
  await client.enqueueBulk("mail", "send_mail", Array(1001).fill([]), { track: 60 });
  await client.batch({}, (members) => members.enqueueBulk("mail", "send_mail", large));
  const numbers = calls.map((args) => (isOfBatch(args) ? `${args[1]} ${args[6]}` : Number(args[0])));
  assert.deepEqual(numbers, [3, 1, 1000, 1, "create 0", "add 3", "add 1", "add 0"]);
});

test("the refusal of the first members is thrown though the batch cannot be deleted", async () => {
  const { calls, client } = answering(([, mode]) => {
    if (mode === "delete" || mode === "add") throw new Error("away");
    return mode === "create" || mode === "open" ? "ok" : ["full", 1, 0];
  });
  const add = (members) => members.enqueue("mail", "send_mail", [], { maxWaiting: 1 });
  await assert.rejects(client.batch({}, add), QueueFullError);
  await assert.rejects(client.batchOf("b").add(add), QueueFullError);
  assert.deepEqual(calls.map(([, mode]) => mode), ["create", "1", "delete", "open", "1", "add"]);
});

test("the members of a batch are any iterable of arrays", async () => {
  const { calls, client } = answering(() => "ok");
  const add = (argsList, options) => client.batch({}, (members) => members.enqueueBulk("mail", "send_mail", argsList, options));
  await add(new Set([[1], [2], [3]]));
  assert.equal(calls.at(-1)[6], "3");
  await assert.rejects(add(7), /argsList is of type number, not an array of arguments/);
  await assert.rejects(add([], { jid: "j" }), /jid cannot be given for several jobs/);
});

test("a value that JSON does not carry is refused with its path", () => {
  const cyclic = [];
  cyclic.push(cyclic);
  const cases = [
    [[undefined], "args[0] is of type undefined, which JSON does not carry"],
    [[{ a: { b: new Date() } }], "args[0]['a']['b'] is of type Date, which JSON does not carry"],
    [[1, [NaN]], "args[1][0] is NaN, which is not a JSON number"],
    [[Infinity], "args[0] is Infinity, which is not a JSON number"],
    [["ab\ud800"], "args[0] holds a lone surrogate at character 2"],
    [[{ "\udc00": 1 }], /^args\[0\] key '.+' holds a lone surrogate at character 0$/],
    [[new Map()], "args[0] is of type Map, which JSON does not carry"],
    // A hole.
    [[[, 1]], "args[0][0] is of type undefined, which JSON does not carry"],
    [[() => 1], "args[0] is of type Function, which JSON does not carry"],
    [[Buffer.of(1)], "args[0] is of type Buffer, which JSON does not carry"],
    [[10n ** 4300n], "args[0] is an integer of more than 4,300 digits"],
    [[RESULT], "args[0] is of type symbol, which JSON does not carry"],
    [[cyclic], /nested deeper than 500 levels/],
    ["text", "args is of type string, not an array of arguments"],
  ];
  for (const [args, message] of cases) {
    assert.throws(() => payload({}, args), (error) => {
      assert(error instanceof BadArgumentError);
      if (message instanceof RegExp) assert.match(error.message, message);
      else assert.equal(error.message.split("\n")[0], message);
      return true;
    });
  }
});

test("an option that does not exist, or has an invalid value, is refused with the fix", () => {
  const cases = [
    [{ uniqeFor: 1 }, "uniqeFor is not an option: did you mean uniqueFor?"],
    [{ unique_for: 1 }, "unique_for is not an option: did you mean uniqueFor?"],
    [{ retry: "5" }, "retry must be true, false or a number of retries, not '5'"],
    [{ uniqueFor: 0 }, "uniqueFor must be seconds above 0 and up to 1e9, or null, not 0"],
    [{ history: true }, "history has no effect without track"],
    [{ wait: 1 }, "wait has no effect without maxWaiting"],
    [{ extra: { jid: "x" } }, "extra['jid'] is not a field of your own: it is the option jid"],
    [{ extra: { unique_for: 1 } }, "extra['unique_for'] is not a field of your own: it is the option uniqueFor"],
    [{ extra: { then: 1 } }, "extra['then'] is not a field of your own: pyworkers writes it"],
    [{ delay: 1, at: new Date() }, "delay and at exclude each other"],
    [{ at: new Date("no") }, "at must be a Date, or epoch seconds up to the year 9999, not Invalid Date"],
    [{ at: Date.now() }, /is not a time: write epoch seconds up to the year 9999, or a Date$/],
    [{ delay: 1e12 }, "1000000000000 from now is after the year 9999"],
    [{ extra: { a: undefined } }, "extra['a'] is of type undefined, which JSON does not carry"],
  ];
  for (const [options, message] of cases) {
    assert.throws(() => payload(options), (error) => {
      assert(error instanceof BadArgumentError);
      if (message instanceof RegExp) assert.match(error.message.split("\n")[0], message);
      else assert.equal(error.message.split("\n")[0], message);
      return true;
    });
  }
  for (const queue of ["", "a b", "a|b", "queue:a", "backup::a", "a:inprogress", "x".repeat(129), "\u0085", 7]) {
    assert.throws(() => drafting(queue, "Job", {}, undefined, NOW), /cannot be a queue: a queue name has 1 to 128/);
  }
  for (const name of ["", "a|b", null]) {
    assert.throws(() => drafting("mail", name, {}, undefined, NOW), /cannot be a job class: a name without/);
  }
});

test("a setting, an option of a batch and one of a wait that do not exist are refused", async () => {
  const { client } = answering(() => "ok");
  for (const namespace of ["app", "a p:", 7, null]) {
    assert.throws(() => new Client(fakeOfIoredis("ready"), { namespace }), /^BadArgumentError: namespace must be empty or end with a colon, without white space, not /);
  }
  await assert.rejects(client.batch({ toString: "x" }, () => {}), /^BadArgumentError: toString is not an option of a batch: these are /);
  await assert.rejects(client.result("j", { timout: 1 }), /^BadArgumentError: timout is not an option of a wait: these are timeout and signal/);
});

test("the envelope has the fields and their order of the Python client", () => {
  assert.equal(
    payload({ retry: 3, track: 60, expiresIn: 10, extra: { tenant: 7 } }, [10n ** 30n, { b: "é", a: 2.5 }]),
    '{"retry":3,"queue":"mail","class":"send_mail","args":[1000000000000000000000000000000,{"b":"é","a":2.5}],' +
      '"track":60,"tenant":7,"jid":"j","created_at":1700000000.0,"enqueued_at":1700000000.0,"expiry":1700000010.0}',
  );
  assert.equal(
    payload({ delay: 60 }, [], NOW + 0.5),
    '{"queue":"mail","class":"send_mail","args":[],"jid":"j","created_at":1700000000.5}',
  );
});

test("the key of a lock is made of the class, the queue and what counts as the same", () => {
  const { lock, asked, payload: text } = drafting(
    "mail",
    "send_mail",
    { uniqueFor: 60, uniqueBy: (user) => user, uniqueUntil: "expiry", delay: 10 },
    undefined,
    NOW,
  )([7, "hello"]);
  assert.equal(lock, "send_mail|mail|7902699be42c8a8e46fbbb4501726517|expiry");
  assert.deepEqual(asked, { lock: 70_000, on_duplicate: "skip" });
  assert.match(text, /"unique_key":"send_mail\|mail\|7902699be42c8a8e46fbbb4501726517\|expiry"/);
  assert.equal(uniqueKey("mail", "send_mail", [7], { by: 7 }), "send_mail|mail|7902699be42c8a8e46fbbb4501726517");
});

test("sealed arguments open for their own job alone, with each key of the client", () => {
  const [old, fresh] = [randomBytes(32), randomBytes(32).toString("base64")];
  const sealed = new Keyring([old]).seal(encode([7, "é"], "args"), "jid", "Job");
  assert.deepEqual(new Keyring([fresh, old]).open(sealed, "jid", "Job"), [7, "é"]);
  assert.throws(() => new Keyring([old]).open(sealed, "other", "Job"), /were changed, or belong to a job of another id/);
  assert.throws(() => new Keyring([fresh]).open(sealed, "jid", "Job"), EncryptionKeyError);
  assert.throws(() => new Keyring(["short"]), /encryption\[0\]: a key of 3 bytes, not 32/);
  assert.throws(() => drafting("mail", "Job", { encrypt: true }, undefined, NOW), EncryptionKeyError);
  // The order of an HMAC, and not a hash that a list of possible arguments would find.
  const keyed = uniqueKey("mail", "Job", [7], { keys: new Keyring([old]) });
  assert.notEqual(keyed, uniqueKey("mail", "Job", [7]));
});

test("a script of another version of the wire is refused", () => {
  const file = pathToFileURL(join(mkdtempSync(join(tmpdir(), "wire-")), "push.lua"));
  writeFileSync(file, "-- pyworkers push, wire 2\n");
  assert.throws(() => new Script(file), /^StoreError: push.lua is of another version of the wire: '-- pyworkers push, wire 2', not wire 1/);
});

test("a call that a demoted Redis refuses is sent once more on a new connection", async () => {
  const refused = () => Promise.reject(new RedisUnavailableError("Redis takes no writes now", { code: "READONLY" }));
  const closed = [];
  const fresh = { send: async ([name]) => `${name} done`, close: () => closed.push("closed") };
  const old = { send: ([name]) => (name === "EVALSHA" ? refused() : Promise.resolve([])), apart: async () => ({ wire: fresh, close: fresh.close }) };
  assert.equal(await spoken(old, "pyworkers:wire").send(["EVALSHA"]), "EVALSHA done");
  assert.deepEqual(closed, ["closed"]);
  fresh.send = refused;
  await assert.rejects(spoken(old, "pyworkers:wire").send(["EVALSHA"]), { code: "READONLY" });
});

/** What the client uses of ioredis; its transactions are answered by `exec`. */
function fakeOfIoredis(status, exec) {
  const sent = [];
  const multi = () => ({ call: (...command) => sent.push(command), exec });
  const call = (...command) => Promise.resolve(sent.push(command));
  const options = { autoResendUnfulfilledCommands: false, connectTimeout: 10_000 };
  return Object.assign(new EventEmitter(), { status, options, call, multi, sent, duplicate() {} });
}

test("a transaction that ioredis reports as aborted has the code of the first refusal", async () => {
  const previousErrors = [new Error("READONLY You can't write against a read only replica.")];
  const redis = fakeOfIoredis("ready", () => Promise.reject(Object.assign(new Error("EXECABORT Transaction discarded"), { previousErrors })));
  await assert.rejects(wireOf(redis).transaction([["SADD"], ["LPUSH"]]), { name: "RedisUnavailableError", code: "READONLY" });
});

test("a Redis that takes no more connections is unavailable", async () => {
  const redis = fakeOfIoredis("ready", () => Promise.reject(new Error("ERR max number of clients reached")));
  const expected = { name: "RedisUnavailableError", code: "MAXCLIENTS", message: "Redis takes no more connections: ERR max number of clients reached" };
  await assert.rejects(wireOf(redis).transaction([["SADD"], ["LPUSH"]]), expected);
});

test("a call during a connect of ioredis that fails is not sent by the next one", async () => {
  const redis = fakeOfIoredis("connecting");
  const calls = Array.from({ length: 20 }, () => wireOf(redis).send(["LPUSH"]));
  assert.equal(redis.listenerCount("close"), 1);
  redis.emit("close");
  for (const call of calls) await assert.rejects(call, /the connection was lost/);
  redis.emit("ready");
  assert.deepEqual(redis.sent, []);
  const call = wireOf(redis).send(["LPUSH"]);
  redis.emit("ready");
  assert.equal(await call, 1);
});

test("a wait that is over opens no connection", async () => {
  let connects = 0;
  const own = Object.assign(new EventEmitter(), { connect: async () => (connects += 1), disconnect() {} });
  const redis = Object.assign(fakeOfIoredis("ready"), { duplicate: () => own });
  await assert.rejects(wireOf(redis).apart(AbortSignal.abort()));
  assert.equal(connects, 0);
});

test("a wait for a result ends in its time, also if Redis hangs", async () => {
  const silent = net.createServer(() => {});
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const redis = new Redis(silent.address().port, { autoResendUnfulfilledCommands: false, retryStrategy: null });
  redis.on("error", () => {});
  const client = new Client(redis);
  await assert.rejects(client.result("a", { timeout: 0.1 }), { name: "ResultTimeoutError" });
  await assert.rejects(client.result("a", { signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
  redis.disconnect();
  silent.close();
});

test("integers that a Number does not hold are read as BigInt", () => {
  assert.deepEqual(decode('{"a":[9007199254740993,-1e3,"9007199254740993",9007199254740991]}'), {
    a: [9007199254740993n, -1000, "9007199254740993", 9007199254740991],
  });
});
