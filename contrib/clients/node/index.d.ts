/**
 * A client of pyworkers: enqueues jobs that Python runs, and reads their status and their results.
 *
 * @packageDocumentation
 */

/** A value that a job takes and returns. An integer that a number does not hold is a bigint. */
export type Json = null | boolean | number | bigint | string | readonly Json[] | { readonly [name: string]: Json };

/** A connected client of the package `redis`, or of `ioredis` with `autoResendUnfulfilledCommands: false`. */
export type Redis =
  | { sendCommand(args: any, options?: any): any; multi(...args: any): any; duplicate(...args: any): any }
  | { call(...args: any): any; multi(...args: any): any; duplicate(...args: any): any };

/** Settings of a client. */
export interface ClientSettings {
  /** The prefix of all keys, with its colon, as `"app:"`. Default: none. */
  namespace?: string;
  /** The keys of jobs with `encrypt`: 32 bytes each, or their base64; the newest first. */
  encryption?: readonly (string | Uint8Array)[];
}

/** What a job has wherever it is pushed from. Times are in seconds. */
export interface JobOptions {
  /** A number of retries, `true` for 25, `false` to drop a failed job. Default: what the handler declares. */
  retry?: boolean | number;
  /** Retry for this time, instead of a number of times. */
  retryFor?: number;
  /** The queue of the retries. */
  retryQueue?: string;
  /** The number of retries if `retry` is `true`, instead of 25. */
  retryMax?: number;
  /** Keep the job in `dead` when its retries are used up. Default: `true`. */
  dead?: boolean;
  /** Lines of the traceback to store with a failed job. */
  backtrace?: boolean | number;
  /** The time that the job may run, instead of its handler's limit. */
  timeout?: number;
  /** The job is dropped if it has not started by this time after it is due. */
  expiresIn?: number | null;
  /** `status` and `result` know the job for this time after its end. Default: not at all. */
  track?: number | null;
  /** Keep the job as it was enqueued, and each run with its error, as long. */
  history?: boolean;
  /** Seal the arguments with the newest key of the client. */
  encrypt?: boolean;
  /** Labels, which Sidekiq's Web UI shows. */
  tags?: readonly string[];
  /** The id of the job, for a call that enqueues one. Default: a random one. */
  jid?: string;
  /** Fields of your own in the envelope. */
  extra?: { readonly [name: string]: Json };
}

/** Options of an enqueue call. */
export interface EnqueueOptions extends JobOptions {
  /** Seconds from now until the job is due. */
  delay?: number;
  /** The time at which the job is due: a Date, or epoch seconds. A time in the past is now. */
  at?: Date | number;
  /** For this time after its delay, a job with the same class, queue and arguments is a duplicate. */
  uniqueFor?: number | null;
  /** When that ends earlier: when the job is done or dead, at its start, or never. Default: `"success"`. */
  uniqueUntil?: "success" | "start" | "expiry";
  /** What counts as the same instead of all arguments: a function of the arguments, or its result. */
  uniqueBy?: Json | ((...args: any[]) => Json);
  /** For a duplicate: return the other's jid, throw DuplicateJobError, or replace a job that is still scheduled. */
  onDuplicate?: "skip" | "raise" | "replace";
  /** With this many jobs in the queue, a job that is due now throws QueueFullError. */
  maxWaiting?: number | null;
  /** Seconds to wait for room in the queue first. */
  wait?: number;
  /** Ends a wait for room. A job that was sent stays enqueued. */
  signal?: AbortSignal;
}

/** Options of a wait for a result. */
export interface ResultOptions {
  /** Seconds; `null`: without a limit. Default: 10. */
  timeout?: number | null;
  /** Ends the wait, with the reason of the signal. */
  signal?: AbortSignal;
}

/** Where a job is. `unknown`: it is not tracked, its status has expired, or there was no such job. */
export type JobState =
  | "waiting"
  | "scheduled"
  | "running"
  | "retrying"
  | "done"
  | "failed"
  | "dead"
  | "cancelled"
  | "expired"
  | "unknown";

/** The status of a tracked job. Times are in epoch seconds, and of the last run. */
export interface JobStatus {
  readonly state: JobState;
  readonly queue: string;
  /** The number of earlier failures. */
  readonly attempt: number;
  readonly progress?: { readonly done: number; readonly total?: number; readonly text: string };
  readonly startedAt?: number;
  readonly finishedAt?: number;
  /** Class and message of the last failure. */
  readonly error?: string;
}

/** The numbers and times of a batch at one moment. Times are in epoch seconds. */
export interface BatchStatus {
  readonly id: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly kind: "batch" | "chain" | "group";
  readonly state: "open" | "lost" | "succeeded" | "dead" | "failing" | "running";
  readonly total: number;
  /** Members that have not ended. */
  readonly pending: number;
  readonly done: number;
  /** Members that wait for a retry; they are pending, too. */
  readonly failed: number;
  readonly dead: number;
  readonly dropped: number;
  readonly cancelled: number;
  readonly deleted: number;
  readonly expired: number;
  readonly missing: number;
  readonly skipped: number;
  /** Members that Redis has forgotten. */
  readonly lost: number;
  readonly createdAt: number;
  readonly completeAt?: number;
  readonly successAt?: number;
  readonly deathAt?: number;
  /** How the first member ended that was not done, and its id. */
  readonly reason: string;
  readonly reasonJid: string;
}

/** A job that a server pushes later: a step of a chain, or a callback of a batch. */
export interface Step {
  readonly queue: string;
  readonly jobClass: string;
  readonly args: readonly unknown[];
}

/** In an argument of a step: what the step before returned. */
export const RESULT: unique symbol;
/** In an argument of a step or a callback: the id of its batch. */
export const BATCH_ID: unique symbol;

/** An argument of a step. */
export type StepArgument<T> = T | typeof RESULT | typeof BATCH_ID;

/** A step of a chain, or a callback. `call.with(…)` makes one of a typed call. */
export function step(queue: string, jobClass: string, args?: readonly unknown[], options?: JobOptions): Step;

/** The jobs that follow a batch or a chain. Each is pushed once. */
export interface Callbacks {
  /** When all members are done. */
  onSuccess?: Step;
  /** When each member has run at least once. */
  onComplete?: Step;
  /** When the first member has ended that is not done. */
  onDeath?: Step;
  /** When the batch is cancelled. */
  onCancel?: Step;
}

/** What a batch is made with. */
export interface BatchOptions extends Callbacks {
  /** For people. */
  description?: string;
  /** Texts by which people find the batch. */
  tags?: readonly string[];
  /** What cancelled, deleted, expired and missing members mean. Default: `"fail"`. */
  missing?: "fail" | "ignore";
}

/** Takes the members of a batch. They are sent when the function that adds them has ended. */
export interface Members {
  /** Add a job; returns its jid. */
  enqueue(queue: string, jobClass: string, args?: readonly unknown[], options?: EnqueueOptions): string;
  /** Add a job for each array of arguments; returns their jids. */
  enqueueBulk(
    queue: string,
    jobClass: string,
    argsList: Iterable<readonly unknown[]>,
    options?: EnqueueOptions,
  ): string[];
}

/** A batch, or a chain. */
export interface Batch<Out = unknown> {
  readonly id: string;
  /**
   * Add members to a batch that has not ended. If the function throws, none is added.
   * @throws BatchError if the batch is unknown or has ended
   */
  add(fill: (members: Members) => unknown): Promise<this>;
  /** @throws BatchError if the batch is unknown */
  status(): Promise<BatchStatus>;
  /**
   * What the last step of a chain returned; `null` for a batch. One blocking read waits for it.
   * @throws JobFailedError once a member has ended that is not done
   * @throws ResultTimeoutError
   */
  result(options?: ResultOptions): Promise<Out>;
}

/** A job that was enqueued by a typed call. */
export interface Handle<Out> {
  readonly jid: string;
  /** As `Client.result`. */
  result(options?: ResultOptions): Promise<Out>;
  /** As `Client.status`. */
  status(): Promise<JobStatus>;
  /** As `Client.cancel`. */
  cancel(): Promise<"removed" | "noted">;
}

/** A job of the application, with the types of its arguments and of its result. */
export interface Call<In extends readonly unknown[], Out> {
  readonly queue: string;
  readonly jobClass: string;
  /** Enqueue it now. */
  enqueue(...args: In): Promise<Handle<Out>>;
  /** Enqueue it for `delay` seconds from now. */
  enqueueIn(delay: number, ...args: In): Promise<Handle<Out>>;
  /** Enqueue it for a time. */
  enqueueAt(at: Date | number, ...args: In): Promise<Handle<Out>>;
  /** Enqueue a job for each array of arguments. */
  enqueueBulk(argsList: Iterable<In>): Promise<Handle<Out>[]>;
  /** The same job with more options. */
  configure(options: EnqueueOptions & { queue?: string }): Call<In, Out>;
  /** A step of a chain, or a callback. */
  with(...args: { readonly [At in keyof In]: StepArgument<In[At]> }): Step;
}

/**
 * Enqueues jobs, and reads their status and their results.
 *
 * @example
 * ```js
 * import { createClient } from "redis";
 * import { Client } from "pyworkers";
 *
 * const redis = await createClient({ url: process.env.REDIS_URL }).connect();
 * const client = new Client(redis);
 * const jid = await client.enqueue("pay", "charge", [7], { track: 3600 });
 * console.log(await client.result(jid));
 * ```
 */
export class Client {
  /**
   * @param redis stays the caller's, who closes it; a wait for a result opens a connection like it
   * @throws BadArgumentError
   */
  constructor(redis: Redis, settings?: ClientSettings);

  /**
   * Enqueue one job and return its jid. When the promise is fulfilled, Redis has the job. For a duplicate
   * (`uniqueFor`), the jid of the job that is there is returned.
   *
   * @throws BadArgumentError with the path of an invalid value
   * @throws QueueFullError, DuplicateJobError, or StoreError if Redis refused the job
   * @throws RedisUnavailableError after which it is unknown whether Redis has the job
   */
  enqueue(queue: string, jobClass: string, args?: readonly unknown[], options?: EnqueueOptions): Promise<string>;

  /** `enqueue`, or `null` if the queue is full (`maxWaiting`). */
  tryEnqueue(
    queue: string,
    jobClass: string,
    args?: readonly unknown[],
    options?: EnqueueOptions,
  ): Promise<string | null>;

  /** `enqueue` for `delay` seconds from now. */
  enqueueIn(
    delay: number,
    queue: string,
    jobClass: string,
    args?: readonly unknown[],
    options?: EnqueueOptions,
  ): Promise<string>;

  /** `enqueue` for a time: a Date, or epoch seconds. */
  enqueueAt(
    at: Date | number,
    queue: string,
    jobClass: string,
    args?: readonly unknown[],
    options?: EnqueueOptions,
  ): Promise<string>;

  /**
   * Enqueue one job for each array of arguments; returns their jids in that order.
   *
   * Sent 1000 or 16 MB at a time: if it throws, the portions before the failing one are in Redis.
   */
  enqueueBulk(
    queue: string,
    jobClass: string,
    argsList: Iterable<readonly unknown[]>,
    options?: EnqueueOptions,
  ): Promise<string[]>;

  /** The status of a job that is enqueued with `track`; `unknown` for any other. */
  status(jid: string): Promise<JobStatus>;

  /**
   * What a job returned that is enqueued with `track`, or what a batch or a chain returned. The wait is one
   * blocking read on its own connection.
   *
   * @throws JobFailedError if it has ended without a result
   * @throws ResultTimeoutError
   * @throws UntrackedJobError at once if nothing is known of the job
   */
  result<Out = unknown>(jid: string, options?: ResultOptions): Promise<Out>;

  /**
   * Cancel a job, and say what was done. `"removed"`: it was waiting. `"noted"`: it is not waiting; a running one is
   * asked to end within a second, and its worker is killed if it still runs two seconds later; an unknown one is not
   * started for a day. Reads all waiting jobs.
   */
  cancel(jid: string): Promise<"removed" | "noted">;

  /** Make a batch of the jobs that a function adds. If the function throws, nothing is enqueued. */
  batch(options: BatchOptions, fill: (members: Members) => unknown): Promise<Batch<null>>;

  /** A batch by its id, for its status and its result, and to add members. */
  batchOf(id: string): Batch;

  /** Enqueue jobs that run one after the other; the first one now. */
  chain<Out = unknown>(steps: readonly Step[], callbacks?: Callbacks): Promise<Batch<Out>>;

  /**
   * A job of the application by its name, with the types of its arguments and of its result.
   *
   * @example
   * ```ts
   * const charge = client.call<[order: number], { paid: boolean }>("charge", { queue: "pay", track: 3600 });
   * const { paid } = await (await charge.enqueue(7)).result();
   * ```
   */
  call<In extends readonly unknown[] = unknown[], Out = unknown>(
    jobClass: string,
    options?: EnqueueOptions & { queue?: string },
  ): Call<In, Out>;
}

/** Keys: the first one seals arguments, each of them opens. */
export class Keyring {
  constructor(keys: readonly (string | Uint8Array)[]);
  /** The JSON text of arguments, sealed for one job. */
  seal(args: string, jid: string, jobClass: string): string;
  /**
   * The arguments that a sealed text holds.
   * @throws EncryptionKeyError
   */
  open(text: string, jid: string, jobClass: string): any[];
}

/** The canonical text of a value (RFC 8785, integers with all their digits), which every language computes alike. */
export function canonical(value: unknown, path: string): string;

/** The name of the lock of a job (`unique_key`). */
export function uniqueKey(
  queue: string,
  jobClass: string,
  args: readonly unknown[],
  about?: { by?: unknown; path?: string; keys?: Keyring },
): string;

/** Base of all errors that this package throws on purpose. */
export class PyworkersError extends Error {
  /** The fix; it is in the message, too. */
  readonly hint: string;
  /** The code of an error of Redis, as `OOM`, or empty. */
  readonly code: string;
}
/** A job cannot be enqueued with these arguments or options; the message names the invalid one. */
export class BadArgumentError extends PyworkersError {}
/** Redis is unreachable, refused the login, or the connection was lost during the call. */
export class RedisUnavailableError extends PyworkersError {}
/** Redis answered a call with an error; the message is from Redis. */
export class StoreError extends PyworkersError {}
/** The queue holds `limit` jobs (`maxWaiting`) or more; the job is not enqueued. */
export class QueueFullError extends PyworkersError {
  readonly queue: string;
  readonly limit: number;
}
/** A job with the same class, queue and arguments is there (`uniqueFor`): `jid` is its id. */
export class DuplicateJobError extends PyworkersError {
  readonly jid: string;
}
/** A batch is unknown, or can no longer be used in this way. */
export class BatchError extends PyworkersError {}
/** The job, batch or chain whose result was asked for has ended without one. */
export class JobFailedError extends PyworkersError {
  /** The id of the job, or of the first member that ended and is not done. */
  readonly jid: string;
  readonly state: string;
  /** Of its exception; empty if there was none, or if it is a member. */
  readonly errorClass: string;
  readonly error: string;
}
/** The job whose result was asked for has not ended in the time. */
export class ResultTimeoutError extends PyworkersError {}
/** The job whose result was asked for is not tracked, has expired, or is unknown. */
export class UntrackedJobError extends PyworkersError {}
/** Arguments cannot be sealed or opened: their key is missing, or they were changed. */
export class EncryptionKeyError extends PyworkersError {}
