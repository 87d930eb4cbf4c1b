/**
 * The options of an enqueue call: each with its rule and its field of the envelope.
 * @module
 */
import { inspect } from "node:util";
import { BadArgumentError } from "./errors.js";
import { encode, isPlain } from "./json.js";

/** The last second of the year 9999: pages of Sidekiq fail on a later score. */
const LATEST = 253_402_300_799;
const LIFE = "seconds above 0 and up to 1e9, or null";

/** @param {unknown} value @returns {value is number} */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
/** @param {unknown} value */
const isFlag = (value) => typeof value === "boolean";
/** @param {unknown} value */
const isCount = (value) => Number.isSafeInteger(value) && Number(value) >= 0;
/** @param {unknown} value */
const isFlagOrCount = (value) => isFlag(value) || isCount(value);
/** @param {unknown} value */
const isLife = (value) => value === null || (isNumber(value) && value > 0 && value <= 1e9);
/** @param {...string} words */
const oneOf = (...words) => (/** @type {unknown} */ value) => words.includes(/** @type {string} */ (value));

/**
 * @typedef {object} Rule
 * @property {(value: any) => boolean} fits
 * @property {string} rule the valid values, in words
 * @property {string} [field] the field of the envelope
 * @property {string} [needs] the option without which it has no effect
 */

/** @type {Record<string, Rule>} */
const OPTIONS = {
  retry: { fits: isFlagOrCount, rule: "true, false or a number of retries", field: "retry" },
  backtrace: { fits: isFlagOrCount, rule: "true, false or a number of lines", field: "backtrace" },
  dead: { fits: isFlag, rule: "true or false", field: "dead" },
  tags: {
    fits: (value) => Array.isArray(value) && value.every((tag) => typeof tag === "string"),
    rule: "an array of strings",
    field: "tags",
  },
  retryFor: { fits: (value) => isNumber(value) && value >= 0 && value <= 1e9, rule: "seconds up to 1e9", field: "retry_for" },
  retryQueue: { fits: isQueueName, rule: "the name of a queue", field: "retry_queue" },
  retryMax: { fits: isCount, rule: "a number of retries", field: "retry_max" },
  timeout: { fits: (value) => isNumber(value) && value > 0, rule: "seconds above 0", field: "timeout" },
  track: { fits: isLife, rule: LIFE, field: "track" },
  history: { fits: isFlag, rule: "true or false", field: "history", needs: "track" },
  uniqueFor: { fits: isLife, rule: LIFE, field: "unique_for" },
  uniqueUntil: {
    fits: oneOf("success", "start", "expiry"),
    rule: "success, start or expiry",
    field: "unique_until",
    needs: "uniqueFor",
  },
  uniqueBy: { fits: () => true, rule: "", needs: "uniqueFor" },
  onDuplicate: { fits: oneOf("skip", "raise", "replace"), rule: "skip, raise or replace", needs: "uniqueFor" },
  maxWaiting: {
    fits: (value) => value === null || (isCount(value) && value >= 1),
    rule: "a number of jobs from 1, or null",
  },
  wait: { fits: (value) => isNumber(value) && value >= 0, rule: "seconds from 0", needs: "maxWaiting" },
  encrypt: { fits: isFlag, rule: "true or false" },
  expiresIn: { fits: isLife, rule: LIFE },
  jid: { fits: (value) => typeof value === "string" && value !== "", rule: "a string that is not empty" },
  extra: { fits: isPlain, rule: "an object with fields of your own" },
  delay: { fits: (value) => isNumber(value) && value >= 0, rule: "seconds from 0" },
  at: { fits: isMoment, rule: "a Date, or epoch seconds up to the year 9999" },
  signal: { fits: (value) => value instanceof AbortSignal, rule: "an AbortSignal" },
};

/** Fields of the envelope that no producer sets, in `extra` either. */
const RESERVED = new Set(
  `args class queue at created_at enqueued_at expiry cron unique_key encrypted failed_at retried_at discarded_at
  retry_count crash_count misfits misfit_at error_class error_message error_backtrace batch batch_index then fill
  checkpoint`.split(/\s+/),
);

/** Check all options. @param {Record<string, any>} options */
export function checkOptions(options) {
  if (!isPlain(options)) {
    throw new BadArgumentError(`the options are ${inspect(options)}, not an object`, {
      hint: 'write enqueue("queue", "class", [argument], { track: 600 })',
    });
  }
  for (const [name, value] of Object.entries(options)) {
    const option = Object.hasOwn(OPTIONS, name) ? OPTIONS[name] : undefined;
    if (option === undefined) throw unknown(name);
    if (value === undefined) continue;
    if (!option.fits(value)) throw new BadArgumentError(`${name} must be ${option.rule}, not ${inspect(value)}`);
    if (option.needs && options[option.needs] === undefined) {
      throw new BadArgumentError(`${name} has no effect without ${option.needs}`);
    }
  }
  for (const name of Object.keys(options.extra ?? {})) {
    const option = Object.keys(OPTIONS).find((known) => OPTIONS[known].field === name || known === name);
    if (option) throw new BadArgumentError(`extra['${name}'] is not a field of your own: it is the option ${option}`);
    if (RESERVED.has(name)) {
      throw new BadArgumentError(`extra['${name}'] is not a field of your own: pyworkers writes it`);
    }
  }
  if (options.delay !== undefined && options.at !== undefined) {
    throw new BadArgumentError("delay and at exclude each other");
  }
}

/**
 * The options as fields of the envelope, in the order of the call.
 * @param {Record<string, any>} options
 */
export function fieldsOf(options) {
  /** @type {Record<string, any>} */
  const fields = {};
  for (const [name, value] of Object.entries(options)) {
    const field = OPTIONS[name].field;
    const isOff = value === undefined || value === null || (name === "history" && !value);
    if (field && name !== "retry" && !isOff && !(name === "uniqueUntil" && options.uniqueFor === null)) {
      encode(value, name);
      fields[field] = value;
    }
  }
  if (options.encrypt) fields.encrypted = true;
  return { ...fields, ...options.extra };
}

/**
 * The time at which a job is due, in epoch seconds; undefined if it is not in the future.
 * @param {{ delay?: number, at?: Date | number }} options
 * @param {number} now
 */
export function dueAt({ delay, at }, now) {
  const due = delay !== undefined ? now + delay : at instanceof Date ? at.getTime() / 1000 : at;
  if (due !== undefined && due > LATEST) {
    if (delay !== undefined) throw new BadArgumentError(`${delay} from now is after the year 9999`);
    throw new BadArgumentError(`${due} is not a time: write epoch seconds up to the year 9999, or a Date`, {
      hint: "a Date has milliseconds: pass the Date itself, or date.getTime() / 1000",
    });
  }
  return due !== undefined && due > now ? due : undefined;
}

/** @param {unknown} at */
function isMoment(at) {
  return at instanceof Date ? !Number.isNaN(at.getTime()) : isNumber(at) && at >= 0;
}

// What Python's \s matches, which is not quite what JavaScript's does.
const QUEUE = /^[^\x00-\x20\x7f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000|]{1,128}$/u;

/** @param {unknown} name @returns {name is string} */
export function isQueueName(name) {
  return (
    typeof name === "string" &&
    QUEUE.test(name) &&
    name.isWellFormed() &&
    !/^(?:queue:|backup::)|:inprogress$/.test(name)
  );
}

/** @param {unknown} queue */
export function checkQueue(queue) {
  if (isQueueName(queue)) return;
  throw new BadArgumentError(
    `queue ${inspect(queue)} cannot be a queue: a queue name has 1 to 128 characters, no white space, control ` +
      "character or '|', does not start with 'queue:' or 'backup::', and does not end with ':inprogress'",
  );
}

/** @param {unknown} jobClass */
export function checkClass(jobClass) {
  // Sidekiq's metrics separate their fields by "|".
  if (typeof jobClass !== "string" || !jobClass || jobClass.includes("|")) {
    throw new BadArgumentError(`${inspect(jobClass)} cannot be a job class: a name without '|'`);
  }
  encode(jobClass, "jobClass");
}

/** @param {string} name */
function unknown(name) {
  const folded = fold(name);
  const near = Object.keys(OPTIONS)
    .map((option) => ({ option, distance: distanceOf(fold(option), folded) }))
    .sort((one, other) => one.distance - other.distance)[0];
  const message = `${name} is not an option`;
  return new BadArgumentError(near.distance <= 3 ? `${message}: did you mean ${near.option}?` : message, {
    hint: `a field of your own goes into extra: { ${name}: … }`,
  });
}

/** `unique_for` and `uniqueFor` are one word. @param {string} name */
function fold(name) {
  return name.replaceAll("_", "").toLowerCase();
}

/** The number of letters to change, add or remove. @param {string} one @param {string} other */
function distanceOf(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[other.length];
}
