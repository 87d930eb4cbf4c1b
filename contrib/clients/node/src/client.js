/**
 * The client, the jobs that it knows by name, and what an enqueue call returns for those.
 * @module
 */
import { inspect } from "node:util";
import { Batch, Step, enqueueChain, openBatch } from "./batches.js";
import { draftEach, drafting } from "./envelope.js";
import { BadArgumentError, QueueFullError } from "./errors.js";
import { Keys, portions, push } from "./push.js";
import { Script, spoken, wireOf } from "./redis.js";
import { checkJid, look, result } from "./results.js";
import { Keyring } from "./sealing.js";

/** @typedef {Record<string, any>} Options */

const script = new Script(new URL("cancel.lua", import.meta.url));

export class Client {
  #wire;
  #keys;
  #encryption;
  #context;

  /** @param {any} redis @param {{ namespace?: string, encryption?: readonly (string | Uint8Array)[] }} [settings] */
  constructor(redis, { namespace = "", encryption, ...others } = {}) {
    const [unknown] = Object.keys(others);
    if (unknown) throw new BadArgumentError(`${unknown} is not a setting of a client: these are namespace and encryption`);
    if (typeof namespace !== "string" || !/^(\S*:)?$/.test(namespace)) {
      throw new BadArgumentError(`namespace must be empty or end with a colon, without white space, not ${inspect(namespace)}`);
    }
    this.#keys = new Keys(namespace);
    this.#wire = spoken(wireOf(redis), this.#keys.own("wire"));
    this.#encryption = encryption === undefined ? undefined : new Keyring(encryption);
    this.#context = { wire: this.#wire, keys: this.#keys, encryption: this.#encryption, now };
  }

  /** @param {string} queue @param {string} jobClass @param {readonly unknown[]} [args] @param {Options} [options] */
  async enqueue(queue, jobClass, args = [], options = {}) {
    const job = drafting(queue, jobClass, options, this.#encryption, now())(args);
    const others = await push(this.#wire, this.#keys, [job], options.signal);
    return others.get(job.jid) ?? job.jid;
  }

  /** @param {string} queue @param {string} jobClass @param {readonly unknown[]} [args] @param {Options} [options] */
  async tryEnqueue(queue, jobClass, args = [], options = {}) {
    try {
      return await this.enqueue(queue, jobClass, args, options);
    } catch (error) {
      if (error instanceof QueueFullError) return null;
      throw error;
    }
  }

  /** @param {number} delay @param {string} queue @param {string} jobClass @param {readonly unknown[]} [args] @param {Options} [options] */
  async enqueueIn(delay, queue, jobClass, args = [], options = {}) {
    return await this.enqueue(queue, jobClass, args, { ...options, delay });
  }

  /** @param {Date | number} at @param {string} queue @param {string} jobClass @param {readonly unknown[]} [args] @param {Options} [options] */
  async enqueueAt(at, queue, jobClass, args = [], options = {}) {
    return await this.enqueue(queue, jobClass, args, { ...options, at });
  }

  /** @param {string} queue @param {string} jobClass @param {Iterable<readonly unknown[]>} argsList @param {Options} [options] */
  async enqueueBulk(queue, jobClass, argsList, options = {}) {
    const jobs = draftEach(queue, jobClass, argsList, options, this.#encryption, now());
    /** @type {string[]} */
    const jids = [];
    for (const portion of portions(jobs)) {
      const others = await push(this.#wire, this.#keys, portion, options.signal);
      for (const { jid } of portion) jids.push(others.get(jid) ?? jid);
    }
    return jids;
  }

  /** @param {string} jid */
  async status(jid) {
    checkJid(jid);
    return (await look(this.#wire, this.#keys, jid)).status;
  }

  /** @param {string} jid @param {{ timeout?: number | null, signal?: AbortSignal }} [options] */
  async result(jid, options = {}) {
    return await result(this.#wire, this.#keys, jid, options);
  }

  /** @param {string} jid */
  async cancel(jid) {
    checkJid(jid);
    const { schedule, retry, queues, namespace } = this.#keys;
    const names = [this.#keys.own("cancelled"), schedule, retry, queues];
    const day = new Date().toISOString().slice(0, 10);
    let [about, place] = ["searching", ""];
    while (about === "searching") [about, place] = await script.call(this.#wire, names, [jid, place, day, namespace]);
    return /** @type {"removed" | "noted"} */ (about);
  }

  /** @param {Options} about @param {(members: any) => unknown} fill */
  async batch(about, fill) {
    return await openBatch(this.#context, about, fill);
  }

  /** @param {string} id */
  batchOf(id) {
    checkJid(id);
    return new Batch(this.#context, id);
  }

  /** @param {readonly Step[]} steps @param {Options} [callbacks] */
  async chain(steps, callbacks = {}) {
    return await enqueueChain(this.#context, steps, callbacks);
  }

  /** @param {string} jobClass @param {Options & { queue?: string }} [options] @returns {any} */
  call(jobClass, { queue = "default", ...options } = {}) {
    // Checked at once: the mistake is here, not where a job is enqueued.
    drafting(queue, jobClass, options, this.#encryption, now());
    return new Call(this, queue, jobClass, options);
  }
}

class Call {
  #client;

  /** @param {Client} client @param {string} queue @param {string} jobClass @param {Options} options */
  constructor(client, queue, jobClass, options) {
    this.#client = client;
    this.queue = queue;
    this.jobClass = jobClass;
    this.options = Object.freeze(options);
  }

  /** @param {Options & { queue?: string }} more */
  configure(more) {
    return this.#client.call(this.jobClass, { queue: this.queue, ...this.options, ...more });
  }

  /** @param {...unknown} args */
  async enqueue(...args) {
    return new Handle(this.#client, await this.#client.enqueue(this.queue, this.jobClass, args, this.options));
  }

  /** @param {number} delay @param {...unknown} args */
  async enqueueIn(delay, ...args) {
    return await this.configure({ delay }).enqueue(...args);
  }

  /** @param {Date | number} at @param {...unknown} args */
  async enqueueAt(at, ...args) {
    return await this.configure({ at }).enqueue(...args);
  }

  /** @param {Iterable<readonly unknown[]>} argsList */
  async enqueueBulk(argsList) {
    const jids = await this.#client.enqueueBulk(this.queue, this.jobClass, argsList, this.options);
    return jids.map((jid) => new Handle(this.#client, jid));
  }

  /** @param {...unknown} args */
  with(...args) {
    return new Step(this.queue, this.jobClass, args, this.options);
  }
}

class Handle {
  #client;

  /** @param {Client} client @param {string} jid */
  constructor(client, jid) {
    this.#client = client;
    this.jid = jid;
  }

  /** @param {{ timeout?: number | null, signal?: AbortSignal }} [options] */
  async result(options) {
    return await this.#client.result(this.jid, options);
  }

  async status() {
    return await this.#client.status(this.jid);
  }

  async cancel() {
    return await this.#client.cancel(this.jid);
  }
}

function now() {
  return Date.now() / 1000;
}
