/**
 * The envelope of a job, and what it asks of the enqueue script, from an enqueue call.
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
 * @property {Asked} asked options of the enqueue script; nearly all jobs have none
 * @property {string} [lock] the key of its lock
 * @property {number} [wait] seconds to wait for room in its queue
 */

/** @typedef {{ max_waiting?: number, lock?: number, on_duplicate?: string, status?: number, history?: 1 }} Asked */

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
 * @param {boolean} [isLater] a server pushes the job later, and adds the time of its enqueue
 * @returns {(args: readonly unknown[], path?: string) => Job}
 */
export function drafting(queue, jobClass, options, keys, now, isLater = false) {
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
    (at === undefined && !isLater ? `,"enqueued_at":${float(now)}` : "") +
    (options.expiresIn ? `,"expiry":${float(due + options.expiresIn)}` : "");

  return (args, path = "args") => {
    if (!Array.isArray(args)) {
      throw new BadArgumentError(`${path} is of type ${kindOf(args)}, not an array of arguments`, {
        hint: path === "args" ? "write [a, b]" : "write [[a, b], [c, d]], an array for each job",
      });
    }
    const jid = options.jid ?? newId();
    const lock = options.uniqueFor ? lockOf(queue, jobClass, args, options, path, keys) : undefined;
    const plain = encode(args, path);
    const written = options.encrypt && keys ? encode([keys.seal(plain, jid, jobClass)], path) : plain;
    const more = lock ? members({ unique_key: lock }) : "";
    const payload = `${head}${written}${middle}${encode(jid, "jid")}${more}${times}}`;
    const size = Buffer.byteLength(payload);
    if (size > MAX_BYTES) throw new BadArgumentError(`${path}: a job of ${size} bytes; the limit is ${MAX_BYTES}`);
    return { jid, queue, payload, at, asked: askedOf(jid, lock, options, due - now), lock, wait: options.wait };
  };
}

/**
 * A job for each list of arguments, made when it is asked for.
 * @param {string} queue
 * @param {string} jobClass
 * @param {Iterable<readonly unknown[]>} argsList
 * @param {Record<string, any>} options
 * @param {import("./sealing.js").Keyring | undefined} keys
 * @param {number} now in epoch seconds
 * @returns {Generator<Job, void>}
 */
export function* draftEach(queue, jobClass, argsList, options, keys, now) {
  const make = drafting(queue, jobClass, options, keys, now);
  if (options.jid !== undefined) throw new BadArgumentError("jid cannot be given for several jobs");
  if (typeof argsList?.[Symbol.iterator] !== "function") {
    throw new BadArgumentError(`argsList is of type ${kindOf(argsList)}, not an array of arguments`, {
      hint: "write [[a, b], [c, d]], an array for each job",
    });
  }
  let at = 0;
  for (const args of argsList) yield make(args, `argsList[${at++}]`);
}

/** The members of an object, each with a comma in front. @param {Record<string, unknown>} fields */
function members(fields) {
  const text = encode(fields, "extra");
  return text === "{}" ? "" : `,${text.slice(1, -1)}`;
}

/**
 * @param {string} queue @param {string} jobClass @param {readonly unknown[]} args @param {Record<string, any>} options
 * @param {string} path @param {import("./sealing.js").Keyring | undefined} keys
 */
function lockOf(queue, jobClass, args, options, path, keys) {
  const key = uniqueKey(queue, jobClass, args, { by: options.uniqueBy, path, keys: options.encrypt ? keys : undefined });
  return options.uniqueUntil === "expiry" ? `${key}|expiry` : key;
}

/**
 * @param {string} jid @param {string | undefined} lock @param {Record<string, any>} options
 * @param {number} later the seconds until the job is due
 */
function askedOf(jid, lock, options, later) {
  /** @type {Asked} */
  const asked = {};
  if (options.maxWaiting) asked.max_waiting = options.maxWaiting;
  if (lock) {
    asked.lock = Math.max(1, Math.trunc((options.uniqueFor + later) * 1000));
    asked.on_duplicate = options.onDuplicate ?? "skip";
  }
  if (options.track && canBeTracked(jid)) {
    asked.status = Math.min(ALIVE_S + Math.trunc(later), 1e9);
    if (options.history) asked.history = 1;
  }
  return asked;
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
