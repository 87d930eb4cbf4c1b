// The vectors that Python has made, with what this client computes from the same values.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Keyring, canonical, uniqueKey } from "pyworkers";
import { memberOf } from "../src/batches.js";
import { drafting } from "../src/envelope.js";
import { decode } from "../src/json.js";
import { Keys, push } from "../src/push.js";
import { readAnswer, readStatus } from "../src/results.js";

const WIRE = new URL("../../wire/", import.meta.url);
const vectors = decode(readFileSync(new URL("vectors.json", WIRE), "utf8"));

for (const script of ["push.lua", "batch.lua", "cancel.lua"]) {
  test(`${script} is the published script`, () => {
    assert.equal(
      readFileSync(new URL(`../src/${script}`, import.meta.url), "utf8"),
      readFileSync(new URL(script, WIRE), "utf8"),
    );
  });
}

test("canonical forms", () => {
  for (const { name, json, canonical: text } of vectors.canonical) {
    if (text === undefined) assert.throws(() => canonical(decode(json), "value"), /^(BadArgument|Syntax)Error/, name);
    else assert.equal(canonical(decode(json), "value"), text, name);
  }
});

test("keys of locks", () => {
  for (const { name, class: jobClass, queue, args, by, unique_until, key } of vectors.unique_keys) {
    const found = uniqueKey(queue, jobClass, decode(args), { by: by === undefined ? undefined : decode(by) });
    assert.equal(unique_until === "expiry" ? `${found}|expiry` : found, key, name);
  }
  for (const { name, key, args, canonical: text, sha256, hmac } of vectors.digests) {
    assert.equal(canonical(decode(args), "args"), text, name);
    assert.equal(uniqueKey("q", "C", decode(args)).split("|")[2], sha256, name);
    assert.equal(uniqueKey("q", "C", decode(args), { keys: new Keyring([key]) }).split("|")[2], hmac, name);
  }
});

test("sealed arguments", () => {
  for (const { name, keys, jid, class: jobClass, sealed, args } of vectors.sealed) {
    const keyring = new Keyring(keys);
    if (args === undefined) {
      assert.throws(() => keyring.open(sealed, jid, jobClass), { name: "EncryptionKeyError" }, name);
    } else {
      assert.deepEqual(keyring.open(sealed, jid, jobClass), decode(args), name);
      assert.deepEqual(keyring.open(keyring.seal(args, jid, jobClass), jid, jobClass), decode(args), name);
    }
  }
});

/** The job of an enqueue call of the vectors. */
function jobOf({ queue, class: jobClass, args, jid, now, at, batch, keys, options }) {
  const ours = Object.entries(options).map(([name, value]) => [name.replace(/_(.)/g, (_, char) => char.toUpperCase()), value]);
  const all = { ...Object.fromEntries(ours), jid, ...(at === undefined ? {} : { at }) };
  const job = drafting(queue, jobClass, all, keys && new Keyring(keys), now)(decode(args));
  return batch ? memberOf(job, batch) : job;
}

test("envelopes", () => {
  for (const { name, enqueue, payload, score, list, refused } of vectors.envelopes) {
    if (refused !== undefined) {
      assert.throws(() => jobOf(enqueue), (error) => {
        // Up to the names of types and options, which are each language's own.
        const head = (text) => text.replaceAll("_", "").toLowerCase().slice(0, 14);
        assert.equal(error.name, "BadArgumentError", name);
        assert.equal(head(error.message), head(refused), name);
        return true;
      });
      continue;
    }
    const job = jobOf(enqueue);
    assert.equal(job.at, score, name);
    assert.equal(list === undefined ? undefined : `queue:${job.queue}`, list, name);
    if (!enqueue.keys) {
      assert.equal(job.payload, payload, name);
      continue;
    }
    // Sealed with another nonce.
    const [mine, theirs] = [decode(job.payload), decode(payload)];
    const open = ({ args, jid }) => new Keyring(enqueue.keys).open(args[0], jid, enqueue.class);
    assert.deepEqual(open(mine), open(theirs), name);
    assert.deepEqual({ ...mine, args: [] }, { ...theirs, args: [] }, name);
  }
});

test("pushes", async () => {
  for (const { name, namespace, enqueue, keys, argv, plain, reply, error } of vectors.pushes) {
    if (!enqueue) continue;
    const sent = [];
    const wire = {
      send: async (command) => sent.push(command.map(String)) && (reply ?? ["pushed"]),
      transaction: async (commands) => sent.push(...commands.map((command) => command.map(String))),
    };
    const pushing = push(wire, new Keys(namespace), enqueue.map(jobOf));
    if (plain || error || reply[0] === "pushed") await pushing;
    else await assert.rejects(pushing, { name: { full: "QueueFullError", duplicate: "DuplicateJobError", batch: "BatchError" }[reply[0]] }, name);
    if (plain) assert.deepEqual(sent, plain, name);
    else assert.deepEqual(sent[0].slice(2), [String(keys.length), ...keys, ...argv], name);
  }
});

test("statuses and results", () => {
  const fields = ["state", "queue", "attempt", "progress", "started_at", "finished_at", "error"];
  for (const { name, hash, status } of vectors.statuses) {
    const { startedAt, finishedAt, progress, error, ...found } = readStatus(fields.map((field) => hash[field] ?? null));
    const about = progress && { done: progress.done, total: progress.total ?? null, text: progress.text };
    const ours = { ...found, progress: about ?? null, error: error ?? null };
    assert.deepEqual({ ...ours, started_at: startedAt ?? null, finished_at: finishedAt ?? null }, status, name);
  }
  for (const { name, value, answer } of vectors.answers) {
    const found = readAnswer(value);
    if (answer === undefined) assert.equal(found, undefined, name);
    else assert.deepEqual({ result: null, error_class: "", error: "", jid: "", reason: "", ...found }, answer, name);
  }
});
