/**
 * Batches, and chains of jobs, which are batches too: their members are counted, and callbacks follow.
 * @module
 */
import { inspect } from "node:util";
import { draftEach, drafting, newId } from "./envelope.js";
import { BadArgumentError, BatchError, DuplicateJobError, QueueFullError } from "./errors.js";
import { encode, float, isPlain } from "./json.js";
import { byQueue, isConditional, portions, push, refused } from "./push.js";
import { Script } from "./redis.js";
import { result } from "./results.js";

/** @typedef {import("./envelope.js").Job} Job */
/** @typedef {import("./push.js").Keys} Keys */
/** @typedef {import("./redis.js").Wire} Wire */

const MOST_STEPS = 1000;
const GONE = /** @type {const} */ (["dropped", "cancelled", "deleted", "expired", "missing", "skipped"]);
const EVENTS = /** @type {const} */ ({ onSuccess: "on_success", onComplete: "on_complete", onDeath: "on_death", onCancel: "on_cancel" });
// What an earlier form of a job that follows had in place of the results: a text that has it names their places.
const OLD_RESULTS = '{"pyworkers":"RESULTS"}';
// The options that act at a push: a step or a callback is pushed later, by a server.
const OF_A_PUSH = ["delay", "at", "uniqueFor", "maxWaiting", "signal"];

const script = new Script(new URL("batch.lua", import.meta.url));

export const RESULT = Symbol("RESULT");
export const BATCH_ID = Symbol("BATCH_ID");

/** A job that is pushed later: a step of a chain, or a callback. */
export class Step {
  /** @param {string} queue @param {string} jobClass @param {readonly unknown[]} args @param {Record<string, any>} options */
  constructor(queue, jobClass, args, options) {
    const acting = OF_A_PUSH.find((name) => options[name] !== undefined && options[name] !== null);
    if (acting) throw new BadArgumentError(`${acting} has no effect on a step or a callback, which a server pushes later`);
    this.queue = queue;
    this.jobClass = jobClass;
    this.args = args;
    this.options = options;
  }
}

/** @param {string} queue @param {string} jobClass @param {readonly unknown[]} [args] @param {Record<string, any>} [options] */
export function step(queue, jobClass, args = [], options = {}) {
  return new Step(queue, jobClass, args, options);
}

/**
 * What all batches of a client share.
 * @typedef {object} Context
 * @property {Wire} wire
 * @property {Keys} keys
 * @property {import("./sealing.js").Keyring | undefined} encryption
 * @property {() => number} now
 */

export class Batch {
  #context;

  /** @param {Context} context @param {string} id */
  constructor(context, id) {
    this.#context = context;
    this.id = id;
  }

  /** @param {(members: Members) => unknown} fill */
  async add(fill) {
    const members = await gathered(this.#context, fill);
    await enlist(this.#context, { id: this.id, jobs: members });
    return this;
  }

  async status() {
    const { wire, keys } = this.#context;
    const key = keys.own(`batch:${this.id}`);
    const [facts, ...sizes] = await Promise.all([
      wire.send(["HGETALL", key]),
      ...["members", "failed", "dead"].map((part) => wire.send(["SCARD", `${key}:${part}`])),
    ]);
    const status = readBatch(this.id, asObject(facts), sizes);
    if (!status) throw new BatchError(`the batch ${this.id} is unknown: expired, deleted, or not sent yet`);
    return status;
  }

  /** @param {{ timeout?: number | null, signal?: AbortSignal }} [options] */
  async result(options = {}) {
    const { kind } = await this.status();
    return await result(this.#context.wire, this.#context.keys, this.id, options, kind);
  }
}

/** Collects the members of a batch until the end of the function that adds them. */
class Members {
  /** @type {Job[]} */
  jobs = [];
  #context;
  #isOpen = true;

  /** @param {Context} context */
  constructor(context) {
    this.#context = context;
  }

  /** @param {string} queue @param {string} jobClass @param {readonly unknown[]} [args] @param {Record<string, any>} [options] */
  enqueue(queue, jobClass, args = [], options = {}) {
    return this.#gather([drafting(queue, jobClass, options, this.#context.encryption, this.#context.now())(args)])[0];
  }

  /** @param {string} queue @param {string} jobClass @param {Iterable<readonly unknown[]>} argsList @param {Record<string, any>} [options] */
  enqueueBulk(queue, jobClass, argsList, options = {}) {
    return this.#gather([...draftEach(queue, jobClass, argsList, options, this.#context.encryption, this.#context.now())]);
  }

  /** @param {Job[]} jobs */
  #gather(jobs) {
    if (!this.#isOpen) throw new BatchError("the batch is closed: its members are added before the function ends");
    for (const job of jobs) this.jobs.push(job);
    return jobs.map((job) => job.jid);
  }

  close() {
    this.#isOpen = false;
  }
}

/** @param {Context} context @param {(members: Members) => unknown} fill */
async function gathered(context, fill) {
  if (typeof fill !== "function") {
    throw new BadArgumentError(`a function adds the members of a batch, not ${inspect(fill)}`, {
      hint: "write batch({ description }, (members) => { members.enqueue(queue, jobClass, args); })",
    });
  }
  const members = new Members(context);
  try {
    await fill(members);
  } finally {
    members.close();
  }
  return members.jobs;
}

/** @param {Context} context @param {Record<string, any>} about @param {(members: Members) => unknown} fill */
export async function openBatch(context, about, fill) {
  const id = newId();
  const { description = "", tags = [], missing = "fail", ...callbacks } = about;
  if (typeof description !== "string") {
    throw new BadArgumentError(`the description of a batch is a text, not ${inspect(description)}`);
  }
  if (!Array.isArray(tags) || !tags.every((tag) => typeof tag === "string" && tag)) {
    throw new BadArgumentError(`the tags of a batch are a list of texts, not ${inspect(tags)}`);
  }
  if (missing !== "fail" && missing !== "ignore") {
    throw new BadArgumentError(`missing is "fail" or "ignore", not ${inspect(missing)}`);
  }
  const fields = {
    answer: "1",
    description,
    ...(tags.length ? { tags: encode(tags, "tags") } : {}),
    ...(missing === "ignore" ? { if_missing: "ignore" } : {}),
    ...callbackFields(context, id, callbacks),
  };
  await enlist(context, { id, fields, jobs: await gathered(context, fill) });
  return new Batch(context, id);
}

/** @param {Context} context @param {readonly Step[]} steps @param {Record<string, any>} callbacks */
export async function enqueueChain(context, steps, callbacks) {
  if (!Array.isArray(steps) || steps.length === 0) throw new BadArgumentError("a chain has at least one step");
  if (steps.length > MOST_STEPS) {
    throw new BadArgumentError(`a chain of ${steps.length} steps; the limit is ${MOST_STEPS}`);
  }
  const id = newId();
  const now = context.now();
  const made = steps.map((one, place) => stepJob(context, one, { batch: id, now, place, isLast: place === steps.length - 1 }));
  const [first, ...rest] = made;
  const then = rest.length ? `,"then":{"v":2,"steps":[${rest.map(({ payload }) => payload).join(",")}]}` : "";
  const payload = `${first.payload.slice(0, -1)}${then},"enqueued_at":${float(now)}}`;
  const fields = { kind: "chain", ...callbackFields(context, id, callbacks), answer: "1" };
  await send(context, { id, mode: "create", fields, members: made.map(({ jid }) => jid), jobs: [{ ...first, payload }] });
  return new Batch(context, id);
}

/** @param {Context} context @param {unknown} one @param {{ batch: string, now: number, place: number, isLast: boolean }} about */
function stepJob(context, one, { batch, now, place, isLast }) {
  if (!(one instanceof Step)) {
    throw new BadArgumentError(`a step is made by step(queue, jobClass, args) or call.with(…), not ${inspect(one)}`);
  }
  /** @type {(string | number)[][]} */
  const paths = [];
  const args = filled(one.args, batch, paths);
  if (paths.length && place === 0) throw new BadArgumentError("the first step of a chain has no step before it whose result it could take");
  if (paths.length && one.options.encrypt) {
    throw new BadArgumentError("a result cannot become an argument of an encrypted job");
  }
  const job = laterJob(context, one, args, now);
  const fields = {
    ...(paths.length ? { fill: { RESULT: paths } } : {}),
    batch,
    ...(isLast ? { batch_index: 0 } : {}),
  };
  return { ...job, payload: `${job.payload.slice(0, -1)},${encode(fields, "step").slice(1)}` };
}

/** @param {Context} context @param {Step} one @param {readonly unknown[]} args @param {number} now */
function laterJob(context, one, args, now) {
  return drafting(one.queue, one.jobClass, one.options, context.encryption, now, true)(args);
}

/**
 * The arguments with the id of the batch; null where a result goes, whose path is added to `paths`.
 * @param {any} value @param {string} batch @param {(string | number)[][]} paths @param {(string | number)[]} [path]
 * @returns {any}
 */
function filled(value, batch, paths, path = []) {
  if (value === BATCH_ID) return batch;
  if (value === RESULT) {
    paths.push(path);
    return null;
  }
  if (Array.isArray(value)) return value.map((item, at) => filled(item, batch, paths, [...path, at]));
  if (!isPlain(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filled(item, batch, paths, [...path, name])]));
}

/** @param {Context} context @param {string} batch @param {Record<string, any>} callbacks */
function callbackFields(context, batch, callbacks) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const [event, call] of Object.entries(callbacks)) {
    if (!Object.hasOwn(EVENTS, event)) {
      throw new BadArgumentError(`${event} is not an option of a batch: these are description, tags, missing, ${Object.keys(EVENTS).join(", ")}`);
    }
    if (call === undefined || call === null) continue;
    if (!(call instanceof Step)) throw new BadArgumentError(`${event} is made by step(queue, jobClass, args) or call.with(…), not ${inspect(call)}`);
    /** @type {(string | number)[][]} */
    const paths = [];
    const args = filled(call.args, batch, paths);
    if (paths.length) throw new BadArgumentError(`${event} has no result to take: use a chain`);
    const { payload } = laterJob(context, call, args, context.now());
    const places = payload.includes(OLD_RESULTS) ? "- " : "";
    fields[EVENTS[/** @type {keyof typeof EVENTS} */ (event)]] = `${call.queue} ${places}${payload}`;
  }
  return fields;
}

/** A job as a member of a batch. @param {Job} job @param {string} batch */
export function memberOf(job, batch) {
  return { ...job, batch, payload: `${job.payload.slice(0, -1)},${encode({ batch }, "batch").slice(1)}` };
}

/**
 * Write a batch and push its members: in one script, or, if these are many or have conditions, in several, while a
 * hold keeps the callbacks back. If one of several fails, the batch stays open, and no callback fires.
 * @param {Context} context @param {{ id: string, jobs: Job[], fields?: Record<string, string> }} plan with the fields of a new batch
 */
async function enlist(context, { id, jobs, fields }) {
  const begin = { id, mode: fields ? "create" : "open", fields };
  const members = jobs.map((job) => memberOf(job, id));
  const plain = [...portions(members.filter((job) => !isConditional(job)))];
  const conditional = [...portions(members.filter(isConditional))];
  if (!conditional.length && plain.length <= 1) {
    await send(context, { ...begin, jobs: plain[0] });
    return;
  }
  const hold = newId();
  await send(context, { ...begin, hold });
  for (const portion of conditional) {
    try {
      await push(context.wire, context.keys, portion);
    } catch (error) {
      const isRefused = error instanceof DuplicateJobError || error instanceof QueueFullError;
      if (isRefused && portion === conditional[0]) {
        // Nothing is a member yet. If this fails, the batch stays open; the caller gets the error of the push nevertheless.
        await send(context, fields ? { id, mode: "delete" } : { id, mode: "add", release: hold }).catch(() => {});
      }
      throw error;
    }
  }
  for (const portion of plain) await send(context, { id, mode: "add", jobs: portion });
  await send(context, { id, mode: "add", release: hold });
}

/**
 * One call of the script. `members` are the ids, if they are more than those of the jobs.
 * @param {Context} context
 * @param {{ id: string, mode: string, fields?: Record<string, string>, hold?: string, release?: string, jobs?: Job[], members?: string[] }} call
 */
async function send({ wire, keys }, { id, mode, fields = {}, hold = "", release = "", jobs = [], members = jobs.map(({ jid }) => jid) }) {
  const names = [keys.queues, keys.schedule, keys.own("batches")];
  const about = Object.entries(fields).flat();
  const rows = [...byQueue(jobs)].flatMap(([queue, parts]) => {
    if (queue) names.push(keys.queue(queue));
    return [queue, queue ? names.length : 2, parts.length, ...parts];
  });
  const args = [id, mode, hold, release, about.length / 2, 0, members.length, ...about, ...members, ...rows];
  const answer = await script.call(wire, names, [...args, keys.namespace]);
  if (answer !== "ok") throw refused(id, answer);
}

/** @param {any} reply a map in RESP3, else names and values in turn @returns {Record<string, string>} */
function asObject(reply) {
  if (reply instanceof Map) return Object.fromEntries(reply);
  if (!Array.isArray(reply)) return { ...reply };
  return Object.fromEntries(reply.flatMap((name, at) => (at % 2 ? [] : [[name, reply[at + 1]]])));
}

/** The tags in a field of a batch; none in one that another program has written otherwise. @param {string | undefined} text */
function readTags(text) {
  try {
    const tags = JSON.parse(text ?? "[]");
    return Array.isArray(tags) ? tags.filter((tag) => typeof tag === "string") : [];
  } catch {
    return [];
  }
}

/**
 * @param {string} id @param {Record<string, string>} about @param {number[]} sizes
 * @returns {import("../index.js").BatchStatus | undefined}
 */
function readBatch(id, about, [waiting, failed, dead]) {
  const time = (/** @type {string} */ name) => (Number.isFinite(Number(about[name] ?? NaN)) ? Number(about[name]) : undefined);
  const [holds, total, done, createdAt] = [time("open"), time("total"), time("done"), time("created_at")];
  if (holds === undefined || total === undefined || done === undefined || createdAt === undefined) return undefined;
  const gone = /** @type {Record<typeof GONE[number], number>} */ (
    Object.fromEntries(GONE.map((kind) => [kind, time(kind) ?? 0]))
  );
  const lost = total - done - (waiting - holds) - failed - dead - Object.values(gone).reduce((sum, one) => sum + one, 0);
  const successAt = time("success_at");
  const hasGone = dead > 0 || Object.values(gone).some((one) => one > 0);
  const state =
    holds > 0 ? "open"
    : lost ? "lost"
    : successAt !== undefined ? "succeeded"
    : hasGone ? "dead"
    : failed ? "failing"
    : "running";
  return {
    id,
    description: about.description ?? "",
    tags: readTags(about.tags),
    kind: /** @type {"batch" | "chain" | "group"} */ (about.kind ?? "batch"),
    state,
    total,
    pending: waiting - holds + failed,
    done,
    failed,
    dead,
    lost,
    ...gone,
    createdAt,
    completeAt: time("complete_at"),
    successAt,
    deathAt: time("death_at"),
    reason: about.reason ?? "",
    reasonJid: about.reason_jid ?? "",
  };
}
