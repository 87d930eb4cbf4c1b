/**
 * Pushing jobs: by two commands, as Sidekiq does, or by the enqueue script if the jobs have conditions.
 * @module
 */
import { setTimeout as pause } from "node:timers/promises";
import { BatchError, DuplicateJobError, QueueFullError, StoreError } from "./errors.js";
import { float } from "./json.js";
import { Script } from "./redis.js";

/** @typedef {import("./envelope.js").Job & { batch?: string }} Job */
/** @typedef {import("./redis.js").Wire} Wire */

// Jobs that one script pushes, all or none. A gigabyte of them would block Redis for seconds.
const PORTION = 1000;
const PORTION_BYTES = 16 * 1024 * 1024;
const FIRST_PAUSE_S = 0.01;
const LONGEST_PAUSE_S = 0.25;
const PAUSE_GROWTH = 1.5;

const script = new Script(new URL("push.lua", import.meta.url));

/** Names of the keys under one namespace. */
export class Keys {
  /** @param {string} namespace */
  constructor(namespace) {
    this.namespace = namespace;
    this.queues = `${namespace}queues`;
    this.schedule = `${namespace}schedule`;
    this.retry = `${namespace}retry`;
  }

  /** @param {string} name */
  queue(name) {
    return `${this.namespace}queue:${name}`;
  }

  /** @param {string} name */
  own(name) {
    return `${this.namespace}pyworkers:${name}`;
  }
}

/**
 * The jobs in portions: each ends with the job with which it has `PORTION` jobs, or `PORTION_BYTES`.
 * @param {Iterable<Job>} jobs
 */
export function* portions(jobs) {
  /** @type {Job[]} */
  let portion = [];
  let bytes = 0;
  for (const job of jobs) {
    portion.push(job);
    bytes += Buffer.byteLength(job.payload);
    if (portion.length < PORTION && bytes < PORTION_BYTES) continue;
    yield portion;
    portion = [];
    bytes = 0;
  }
  if (portion.length) yield portion;
}

/**
 * Push jobs, all but the duplicates or none. Returns the duplicates: jid → jid of the job that holds its lock.
 * @param {Wire} wire
 * @param {Keys} keys
 * @param {readonly Job[]} jobs of one portion
 * @param {AbortSignal} [signal] ends the wait for room in a full queue
 * @returns {Promise<Map<string, string>>}
 */
export async function push(wire, keys, jobs, signal) {
  signal?.throwIfAborted();
  if (jobs.some((job) => isConditional(job) || job.batch)) return await pushByScript(wire, keys, jobs, signal);
  const commands = [];
  for (const [queue, parts] of byQueue(jobs)) {
    if (queue) commands.push(["SADD", keys.queues, queue], ["LPUSH", keys.queue(queue), ...parts]);
    else commands.push(["ZADD", keys.schedule, ...parts]);
  }
  if (commands.length === 1) await wire.send(commands[0]);
  else if (commands.length) await wire.transaction(commands);
  return new Map();
}

/** True if the job asks for more than to be a member of its batch. @param {Job} job */
export function isConditional({ asked }) {
  return Object.keys(asked).length > 0;
}

/** The jobs of each queue; under "" time and job in turn, for the schedule. @param {readonly Job[]} jobs */
export function byQueue(jobs) {
  /** @type {Map<string, string[]>} */
  const queues = new Map();
  for (const { queue, payload, at } of jobs) {
    const name = at === undefined ? queue : "";
    const parts = queues.get(name) ?? [];
    queues.set(name, parts);
    if (at !== undefined) parts.push(float(at));
    parts.push(payload);
  }
  return queues;
}

/** @param {Wire} wire @param {Keys} keys @param {readonly Job[]} jobs @param {AbortSignal} [signal] */
async function pushByScript(wire, keys, jobs, signal) {
  const { names, args } = callOf(keys, jobs);
  const until = performance.now() + 1000 * Math.max(...jobs.map((job) => job.wait ?? 0));
  const pauses = pausesS();
  for (;;) {
    const reply = await script.call(wire, names, args);
    if (reply[0] !== "full") return read(reply, jobs);
    const queue = keys.queue(jobs[reply[1] - 1].queue);
    // The jobs are sent again when there is room for them.
    do {
      const left = (until - performance.now()) / 1000;
      if (left <= 0 || reply[2] < 0) return read(reply, jobs);
      await pause(1000 * Math.min(pauses.next().value, left), undefined, { signal });
    } while (Number(await wire.send(["LLEN", queue])) > reply[2]);
  }
}

/** Random ones: many producers may wait for the same queue. @returns {Generator<number, never>} */
function* pausesS() {
  for (let pauseS = FIRST_PAUSE_S; ; pauseS = Math.min(pauseS * PAUSE_GROWTH, LONGEST_PAUSE_S)) {
    yield pauseS * (0.5 + Math.random() / 2);
  }
}

/** KEYS and ARGV of the script, which describes them. @param {Keys} keys @param {readonly Job[]} jobs */
function callOf(keys, jobs) {
  const queues = [...new Set(jobs.map((job) => job.queue))];
  const locks = [];
  const rows = [];
  for (const { queue, jid, payload, at, asked, lock, batch } of jobs) {
    const options = { ...(at === undefined ? {} : { at: float(at) }), ...asked, ...(batch ? { batch } : {}) };
    const parts = Object.entries(options);
    if (lock) locks.push(keys.own(`unique:${lock}`), keys.own(`unique:${lock}:at`));
    rows.push(queues.indexOf(queue) + 1, jid, payload, parts.length, ...parts.flat());
  }
  const names = [keys.queues, keys.schedule, ...queues.map((queue) => keys.queue(queue)), ...locks];
  return { names, args: /** @type {(string | number)[]} */ ([jobs.length, queues.length, ...queues, ...rows, keys.namespace]) };
}

/** @param {[string, ...any[]]} reply @param {readonly Job[]} jobs */
function read([about, ...rest], jobs) {
  if (about === "pushed") {
    return new Map(jobs.flatMap(({ jid }, place) => (rest[place] ? [[jid, rest[place]]] : [])));
  }
  const job = jobs[Number(rest[0]) - 1];
  if (about === "duplicate") throw new DuplicateJobError(rest[1]);
  if (about === "batch") throw refused(job.batch ?? "", rest[1]);
  if (about === "full") throw new QueueFullError(job.queue, job.asked.max_waiting ?? 0);
  throw new StoreError(`the enqueue script has answered ${about}, which this client does not know`);
}

/** @param {string} batch @param {string} why */
export function refused(batch, why) {
  const reason =
    { ended: "has ended: all its members are done", exists: "exists already", cancelled: "is cancelled: it takes no more members" }[why] ??
    "is unknown: it has expired, or was deleted";
  return new BatchError(`the batch ${batch} ${reason}`);
}
