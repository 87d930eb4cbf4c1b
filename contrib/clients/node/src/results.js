/**
 * The status and the result of a tracked job; the wait for a result polls nothing.
 * @module
 */
import { setTimeout as pause } from "node:timers/promises";
import { inspect } from "node:util";
import {
  BadArgumentError,
  JobFailedError,
  RedisUnavailableError,
  ResultTimeoutError,
  StoreError,
  UntrackedJobError,
} from "./errors.js";
import { decode } from "./json.js";

/** @typedef {import("./redis.js").Wire} Wire */
/** @typedef {import("./push.js").Keys} Keys */
/** @typedef {{ state: string, result?: any, error_class?: string, error?: string, jid?: string, reason?: string }} Answer */

const FIELDS = ["state", "queue", "attempt", "progress", "started_at", "finished_at", "error"];
const STATES = new Set("waiting scheduled running retrying done failed dead cancelled expired unknown".split(" "));
const FINAL = new Set(["done", "failed", "dead", "cancelled", "expired"]);
// A wait of this time is noted: a server then looks for the job, and ends the wait if the job is nowhere.
const UNNOTED_S = 5;
const LONGEST_BLOCK_S = 30;
const NOTES_LIFE_S = 3600;
const PAUSE_MS = 200;
// How much later than the timeout Redis may answer that the job has not ended.
const LATE_MS = 1000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** @param {unknown} jid @returns {asserts jid is string} */
export function checkJid(jid) {
  if (typeof jid !== "string" || !/^(?:[^\p{C}\p{Z}]| )+$/u.test(jid)) {
    throw new BadArgumentError(`a jid is a text that is not empty, not ${inspect(jid)}`);
  }
}

/** @param {Wire} wire @param {Keys} keys @param {string} jid */
export async function look(wire, keys, jid) {
  const [values, entries, answers] = await Promise.all([
    wire.send(["HMGET", keys.own(`job:${jid}`), ...FIELDS]),
    wire.send(["XRANGE", keys.own(`result:${jid}`), "-", "+", "COUNT", "1"]),
    wire.send(["HEXISTS", keys.own(`batch:${jid}`), "answer"]),
  ]);
  return { status: readStatus(values), answer: answerIn(entries), isBatch: Boolean(answers) };
}

/**
 * @param {(string | null)[]} values the values of `FIELDS`; invalid ones count as missing
 * @returns {import("../index.js").JobStatus}
 */
export function readStatus(values) {
  const [state, queue, attempt, progress, startedAt, finishedAt, error] = values;
  if (!state || !STATES.has(state)) return { state: "unknown", queue: "", attempt: 0 };
  return {
    state: /** @type {import("../index.js").JobState} */ (state),
    queue: queue ?? "",
    attempt: /^\d+$/.test(attempt ?? "") ? Number(attempt) : 0,
    progress: readProgress(progress),
    startedAt: readTime(startedAt),
    finishedAt: readTime(finishedAt),
    error: error || undefined,
  };
}

/** @param {string | null} text */
function readProgress(text) {
  try {
    const [done, total, note] = JSON.parse(text ?? "");
    const isValid = Number.isFinite(done) && (total === null || Number.isFinite(total)) && typeof note === "string";
    return isValid ? { done, total: total ?? undefined, text: note } : undefined;
  } catch {
    return undefined;
  }
}

/** @param {string | null} text */
function readTime(text) {
  const seconds = Number(text || NaN);
  return Number.isFinite(seconds) ? seconds : undefined;
}

/** The end of a job from the entry of its stream. @param {any} entries */
function answerIn(entries) {
  const fields = entries?.[0]?.[1];
  return readAnswer(Array.isArray(fields) ? fields[1] : fields?.v);
}

/** The end of a job from its JSON; an invalid one counts as missing. @param {any} text @returns {Answer | undefined} */
export function readAnswer(text) {
  try {
    const answer = decode(text);
    return STATES.has(answer.state) ? answer : undefined;
  } catch {
    return undefined;
  }
}

/**
 * What a job or a batch returned; waits for its end.
 * @param {Wire} wire
 * @param {Keys} keys
 * @param {string} jid
 * @param {{ timeout?: number | null, signal?: AbortSignal }} options
 * @param {string} [kind] of a batch that is asked for its result
 */
export async function result(wire, keys, jid, { timeout = 10, signal, ...others }, kind) {
  checkJid(jid);
  const [unknown] = Object.keys(others);
  if (unknown) throw new BadArgumentError(`${unknown} is not an option of a wait: these are timeout and signal`);
  if (timeout !== null && !(typeof timeout === "number" && timeout >= 0)) {
    throw new BadArgumentError(`timeout must be seconds from 0, or null, not ${inspect(timeout)}`);
  }
  signal?.throwIfAborted();
  const over = new AbortController();
  const abort = () => over.abort(signal?.reason);
  signal?.addEventListener("abort", abort);
  // A Redis that hangs answers nothing.
  const lateMs = timeout === null ? Infinity : timeout * 1000 + LATE_MS;
  const timer = lateMs > LONGEST_TIMER_MS ? undefined : setTimeout(() => over.abort(notEnded(jid, kind)), lateMs);
  const ended = new Promise((_, reject) => over.signal.addEventListener("abort", () => reject(over.signal.reason)));
  try {
    return valueOf(jid, await Promise.race([answerOf(wire, keys, jid, timeout, over.signal, kind), ended]), kind);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    over.abort();
  }
}

/** @param {string} jid @param {string} [kind] @param {unknown} [cause] */
function notEnded(jid, kind = "job", cause) {
  return new ResultTimeoutError(`the ${kind} ${jid} has not ended in the time`, { cause });
}

/** @param {Wire} wire @param {Keys} keys @param {string} jid @param {number | null} timeout @param {AbortSignal} signal @param {string} [kind] */
async function answerOf(wire, keys, jid, timeout, signal, kind) {
  const deadline = timeout === null ? Infinity : performance.now() + timeout * 1000;
  const { status, answer, isBatch } = await look(wire, keys, jid);
  if (answer) return answer;
  if (FINAL.has(status.state)) throw new UntrackedJobError(`the job ${jid} is ${status.state}, but its result is gone`);
  if (status.state === "unknown" && !isBatch) {
    throw new UntrackedJobError(`no result of the job ${jid}: its status has expired, or there was no such job`, {
      hint: "a job has a result if it is enqueued with track: SECONDS",
    });
  }
  return await wait(wire, keys, jid, deadline, signal, kind);
}

/** @param {string} jid @param {Answer} answer @param {string} [kind] */
function valueOf(jid, answer, kind) {
  if (answer.jid) {
    throw new JobFailedError(answer.jid, { state: answer.reason || answer.state, kind: kind ?? "batch", whole: jid });
  }
  if (answer.state !== "done") {
    throw new JobFailedError(jid, { state: answer.state, errorClass: answer.error_class, error: answer.error, kind });
  }
  return answer.result;
}

/**
 * @param {Wire} wire @param {Keys} keys @param {string} jid @param {number} deadline @param {AbortSignal} signal @param {string} [kind]
 * @returns {Promise<Answer>}
 */
async function wait(wire, keys, jid, deadline, signal, kind) {
  let isNoted = false;
  let cause;
  do {
    const longest = isNoted ? LONGEST_BLOCK_S : UNNOTED_S;
    const blockMs = Math.ceil(Math.min(Math.max(deadline - performance.now(), 1), longest * 1000));
    try {
      const answer = await announced(wire, keys, jid, blockMs, signal);
      if (answer) return answer;
      await note(wire, keys, jid);
      isNoted = true;
      cause = undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof RedisUnavailableError)) throw error;
      cause = error;
      await pause(Math.min(PAUSE_MS, Math.max(0, deadline - performance.now())), undefined, { signal });
    }
  } while (performance.now() < deadline);
  throw notEnded(jid, kind, cause);
}

/** One blocking read on its own connection. @param {Wire} wire @param {Keys} keys @param {string} jid @param {number} blockMs @param {AbortSignal} signal */
async function announced(wire, keys, jid, blockMs, signal) {
  const own = await wire.apart(signal);
  try {
    signal.throwIfAborted();
    const key = keys.own(`result:${jid}`);
    const reply = await own.wire.send(["XREAD", "COUNT", "1", "BLOCK", blockMs, "STREAMS", key, "0"]);
    if (reply === null) return undefined;
    // A map in RESP3, and then an object or a Map.
    const entries = Array.isArray(reply) ? (Array.isArray(reply[0]) ? reply[0][1] : reply[1]) : reply instanceof Map ? reply.get(key) : reply[key];
    return answerIn(entries);
  } finally {
    own.close();
  }
}

/** Note the wait at Redis' time; the rights of a reader are not enough for it. @param {Wire} wire @param {Keys} keys @param {string} jid */
async function note(wire, keys, jid) {
  try {
    const [now] = await wire.send(["TIME"]);
    await wire.transaction([
      ["ZADD", keys.own("awaited"), now, jid],
      ["EXPIRE", keys.own("awaited"), NOTES_LIFE_S],
    ]);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
  }
}
