/**
 * The errors of this package, with the names and the sentences that the Python client has.
 * @module
 */

/** Base of all errors that this package throws on purpose. */
export class PyworkersError extends Error {
  /**
   * @param {string} message
   * @param {{ hint?: string, code?: string, cause?: unknown }} [about]
   */
  constructor(message, { hint = "", code = "", cause } = {}) {
    super(hint ? `${message}\n${hint}` : message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.hint = hint;
    this.code = code;
  }
}

export class BadArgumentError extends PyworkersError {}

export class RedisUnavailableError extends PyworkersError {}

export class StoreError extends PyworkersError {}

export class QueueFullError extends PyworkersError {
  /** @param {string} queue @param {number} limit */
  constructor(queue, limit) {
    super(`the queue '${queue}' is full: maxWaiting is ${limit}`);
    this.queue = queue;
    this.limit = limit;
  }
}

export class DuplicateJobError extends PyworkersError {
  /** @param {string} jid */
  constructor(jid) {
    super(`the same job is enqueued already, with the id ${jid}`);
    this.jid = jid;
  }
}

export class BatchError extends PyworkersError {}

export class JobFailedError extends PyworkersError {
  /**
   * @param {string} jid
   * @param {{ state: string, errorClass?: string, error?: string, kind?: string, whole?: string }} about
   */
  constructor(jid, { state, errorClass = "", error = "", kind = "job", whole = "" }) {
    const reason = [errorClass, error].filter(Boolean).join(": ");
    // `whole` is the id of the batch; `jid` is then the id of a member.
    super(
      whole
        ? `the ${kind} ${whole} is dead: a member is ${state}: ${jid}`
        : `the ${kind} ${jid} is ${state}${reason ? `: ${reason}` : ""}`,
    );
    Object.assign(this, { jid, state, errorClass, error });
  }
}

export class ResultTimeoutError extends PyworkersError {}

export class UntrackedJobError extends PyworkersError {}

export class EncryptionKeyError extends PyworkersError {}
