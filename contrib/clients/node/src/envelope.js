/**
 * The envelope of a job, and the conditions of its push, from an enqueue call.
 * @module
 */
import { createHash, randomBytes } from "node:crypto";
import { BadArgumentError, EncryptionKeyError } from "./errors.js";
import { canonical, encode, float, kindOf } from "./json.js";
import { checkClass, checkOptions, checkQueue, dueAt, fieldsOf } from "./options.js";

/** How long the status of a job is kept that has not ended, after its last change. */
const ALIVE_S = 30 * 86_400;
const MAX_BYTES = 128 * 1024 * 1024;
// The most characters of a class or queue in a lock's name, and what remains of a longer one.
const SHOWN = 64;
const CUT = 47;
const HASH_DIGITS = 16;
const DIGITS = 32;

/**
 * A job to be pushed.
 * @typedef {object} Job
 * @property {string} jid
 * @property {string} queue
 * @property {string} payload
 * @property {number} [at] when it is due, in epoch seconds; undefined for now
 * @property {Conditions} [conditions] nearly all jobs have none
 */

/**
 * What a push depends on, and what is written with it.
 * @typedef {object} Conditions
 * @property {string} [key] of its lock
 * @property {number} [lockMs] life of the lock
 * @property {string} [onDuplicate]
 * @property {number} [maxWaiting]
 * @property {number} [wait] seconds to wait for room in the queue
 * @property {number} [statusS] life of the status until a server changes it
 * @property {boolean} [history]
 */

/** @returns {string} The id of a job or of a batch: twelve random bytes as hex, as Sidekiq makes them. */
export function newId() {
  return randomBytes(12).toString("hex");
}

/**
 * Check queue, class and options once, for any number of jobs; returns the function that makes a job.
 * @param {string} queue
 * @param {string} jobClass
 * @param {Record<string, any>} options
 * @param {import("./sealing.js").Keyring | undefined} keys
 * @param {number} now in epoch seconds
 * @returns {(args: readonly unknown[], path?: string) => Job}
 */
export function drafting(queue, jobClass, options, keys, now) {
  checkQueue(queue);
  checkClass(jobClass);
  checkOptions(options);
  if (options.encrypt && !keys) {
    throw new EncryptionKeyError("encrypt: true, but there are no keys", {
      hint: "give the client its keys: new Client(redis, { encryption: [key] })",
    });
  }
  const at = dueAt(options, now);
  const retry = options.retry === undefined ? {} : { retry: options.retry };
  const head = `${encode({ ...retry, queue, class: jobClass }, "job").slice(0, -1)},"args":`;
  const fields = fieldsOf(options);
  const middle = `${members(fields)},"jid":`;
  const due = at ?? now;
  const times =
    `,"created_at":${float(now)}` +
    (at === undefined ? `,"enqueued_at":${float(now)}` : "") +
    (options.expiresIn ? `,"expiry":${float(due + options.expiresIn)}` : "");

  return (args, path = "args") => {
    if (!Array.isArray(args)) {
      throw new BadArgumentError(`${path} is of type ${kindOf(args)}, not an array of arguments`, {
        hint: path === "args" ? "write [a, b]" : "write [[a, b], [c, d]], an array for each job",
      });
    }
    const jid = options.jid ?? newId();
    const conditions = conditionsOf(queue, jobClass, args, jid, options, { now, at, path, keys });
    const plain = encode(args, path);
    const written = options.encrypt && keys ? encode([keys.seal(plain, jid, jobClass)], path) : plain;
    const more = conditions?.key ? members({ unique_key: conditions.key }) : "";
    const payload = `${head}${written}${middle}${encode(jid, "jid")}${more}${times}}`;
    const size = Buffer.byteLength(payload);
    if (size > MAX_BYTES) throw new BadArgumentError(`${path}: a job of ${size} bytes; the limit is ${MAX_BYTES}`);
    return { jid, queue, payload, at, conditions };
  };
}

/** The members of an object, each with a comma in front. @param {Record<string, unknown>} fields */
function members(fields) {
  const text = encode(fields, "extra");
  return text === "{}" ? "" : `,${text.slice(1, -1)}`;
}

/**
 * @param {string} queue @param {string} jobClass @param {readonly unknown[]} args @param {string} jid
 * @param {Record<string, any>} options
 * @param {{ now: number, at?: number, path: string, keys?: import("./sealing.js").Keyring }} about
 * @returns {Conditions | undefined}
 */
function conditionsOf(queue, jobClass, args, jid, options, { now, at, path, keys }) {
  const later = at === undefined ? 0 : at - now;
  /** @type {Conditions} */
  const found = {};
  if (options.uniqueFor) {
    const sealed = options.encrypt ? keys : undefined;
    found.key = uniqueKey(queue, jobClass, args, { by: options.uniqueBy, path, keys: sealed });
    if (options.uniqueUntil === "expiry") found.key += "|expiry";
    found.lockMs = Math.max(1, Math.trunc((options.uniqueFor + later) * 1000));
    found.onDuplicate = options.onDuplicate ?? "skip";
  }
  if (options.maxWaiting) {
    found.maxWaiting = options.maxWaiting;
    found.wait = options.wait ?? 0;
  }
  if (options.track && canBeTracked(jid)) {
    found.statusS = Math.min(ALIVE_S + Math.trunc(later), 1e9);
    found.history = Boolean(options.history);
  }
  return Object.keys(found).length ? found : undefined;
}

/** False for an id that cannot be a part of the key of a status. @param {string} jid */
function canBeTracked(jid) {
  return [...jid].length <= 256 && /^(?:[^\p{C}\p{Z}]| )+$/u.test(jid);
}

/**
 * The name of the lock of a job. Every language computes the same.
 * @param {string} queue
 * @param {string} jobClass
 * @param {readonly unknown[]} args
 * @param {{ by?: unknown, path?: string, keys?: import("./sealing.js").Keyring }} [about] `by`: what counts as the same
 */
export function uniqueKey(queue, jobClass, args, { by, path = "args", keys } = {}) {
  const chosen = typeof by === "function" ? by(...args) : by;
  const isChosen = chosen !== undefined && chosen !== null;
  const text = canonical(isChosen ? chosen : args, isChosen ? "uniqueBy" : path);
  const digest = keys ? keys.digest(text) : sha256(text);
  return `${shown(jobClass)}|${shown(queue)}|${digest.slice(0, DIGITS)}`;
}

/** @param {string} name */
function shown(name) {
  const chars = [...name];
  if (chars.length <= SHOWN && !name.includes("|")) return name;
  return `${chars.slice(0, CUT).join("").replaceAll("|", "_")}…${sha256(name).slice(0, HASH_DIGITS)}`;
}

/** @param {string} text */
function sha256(text) {
  return createHash("sha256").update(text).digest("hex");
}
