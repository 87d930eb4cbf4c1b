/**
 * JSON as pyworkers writes and reads it: every value checked, large integers as BigInt.
 * @module
 */
import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import { BadArgumentError } from "./errors.js";

/** Levels of lists and objects below an argument that a server reads. */
const MAX_DEPTH = 500;
/** Digits of an integer that a server reads. */
const MAX_DIGITS = 4300;
/** @type {Record<string, string>} */
const FIXES = {
  Date: "pass its text: value.toISOString()",
  Map: "pass Object.fromEntries(value)",
  Set: "pass a list: [...value]",
  Buffer: 'pass a text: value.toString(), or value.toString("base64")',
  Uint8Array: 'pass a text: Buffer.from(value).toString("base64")',
  URL: "pass its text: value.href",
  Promise: "await it, and pass the result",
  Function: "call it, and pass the result",
  AsyncFunction: "call it, and pass the result",
  symbol: "RESULT and BATCH_ID are for steps: chain([first, step(queue, jobClass, [RESULT])])",
};

/**
 * The compact JSON text of a value. A Number without a fraction is written as its digits, as a BigInt is.
 * @param {unknown} value
 * @param {string} path names the value in the BadArgumentError for one that JSON does not carry
 */
export function encode(value, path) {
  return write(value, path, false, 0);
}

/**
 * The canonical text of a value (RFC 8785), which every language computes alike: `encode` with sorted names.
 * @param {unknown} value
 * @param {string} path
 */
export function canonical(value, path) {
  return write(value, path, true, 0);
}

/** @param {unknown} value @param {string} path @param {boolean} sorted @param {number} depth @returns {string} */
function write(value, path, sorted, depth) {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return text(value, path);
  if (typeof value === "bigint") return integer(value, path);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new BadArgumentError(`${path} is ${value}, which is not a JSON number`);
    return JSON.stringify(value);
  }
  if (depth > MAX_DEPTH) {
    throw new BadArgumentError(`${path.slice(0, 60)}… is nested deeper than ${MAX_DEPTH} levels`);
  }
  if (Array.isArray(value)) {
    // Not map, which skips the holes of a sparse array.
    return `[${Array.from(value, (item, at) => write(item, `${path}[${at}]`, sorted, depth + 1)).join(",")}]`;
  }
  if (isPlain(value)) {
    const names = Object.keys(value);
    if (sorted) names.sort();
    const members = names.map((name) => {
      const inner = `${path}[${inspect(name)}]`;
      return `${text(name, `${path} key ${inspect(name)}`)}:${write(value[name], inner, sorted, depth + 1)}`;
    });
    return `{${members.join(",")}}`;
  }
  const kind = kindOf(value);
  throw new BadArgumentError(`${path} is of type ${kind}, which JSON does not carry`, {
    hint: FIXES[kind] ?? "JSON carries null, boolean, number, BigInt, string, array and plain object",
  });
}

/** The name of the class of a value, or of its type. @param {unknown} value */
export function kindOf(value) {
  const isObject = (typeof value === "object" && value !== null) || typeof value === "function";
  return isObject ? (value.constructor?.name ?? "Object") : value === null ? "null" : typeof value;
}

/** @param {bigint} value @param {string} path */
function integer(value, path) {
  const digits = value.toString();
  if (digits.replace("-", "").length > MAX_DIGITS) {
    throw new BadArgumentError(`${path} is an integer of more than 4,300 digits`, { hint: "pass it as a text: value.toString(16)" });
  }
  return digits;
}

/** @param {string} value @param {string} path */
function text(value, path) {
  if (!value.isWellFormed()) {
    const place = [...value].findIndex((char) => !char.isWellFormed());
    throw new BadArgumentError(`${path} holds a lone surrogate at character ${place}`);
  }
  return JSON.stringify(value);
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export function isPlain(value) {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/**
 * Epoch seconds as a float: Sidekiq 8 takes whole numbers for milliseconds.
 * @param {number} seconds
 */
export function float(seconds) {
  const digits = String(seconds);
  return Number.isInteger(seconds) && !digits.includes("e") ? `${digits}.0` : digits;
}

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * The value of a JSON text; an integer that a Number does not hold is a BigInt.
 * @param {string} json
 * @returns {any}
 */
export function decode(json) {
  if (!/\d{16}/.test(json)) return JSON.parse(json);
  // Random, so that no text of a user's begins like it.
  const mark = `${randomBytes(12).toString("hex")}:`;
  const marked = json.replace(TOKENS, (token) =>
    /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${mark}${token}"` : token,
  );
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}
