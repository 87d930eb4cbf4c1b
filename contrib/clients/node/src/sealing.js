/**
 * Sealed arguments: AES-256-GCM as the Python client seals them.
 * @module
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, randomBytes } from "node:crypto";
import { BadArgumentError, EncryptionKeyError } from "./errors.js";
import { decode, encode } from "./json.js";

const VERSION = Buffer.of(1);
const NAME_BYTES = 8;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const HEAD_BYTES = VERSION.length + NAME_BYTES;
const MAKE_ONE = "make a key with: openssl rand -base64 32";

/** Keys: the first one seals, each of them opens. */
export class Keyring {
  /** @type {Map<string, Buffer>} */
  #keys;
  #newest;
  #digestKey;

  /** @param {readonly (string | Uint8Array)[]} keys 32 bytes each, or their base64; the newest first */
  constructor(keys) {
    if (!Array.isArray(keys) || keys.length === 0) throw new BadArgumentError("encryption: no key in the list");
    const parsed = keys.map(parseKey);
    this.#keys = new Map(parsed.map((key) => [nameOf(key).toString("hex"), key]));
    this.#newest = parsed[0];
    this.#digestKey = createHash("sha256").update("pyworkers unique:").update(parsed[0]).digest();
  }

  /** The JSON text of arguments, encrypted with the newest key. @param {string} args @param {string} jid @param {string} jobClass */
  seal(args, jid, jobClass) {
    const head = Buffer.concat([VERSION, nameOf(this.#newest)]);
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#newest, nonce).setAAD(about(head, jid, jobClass));
    const sealed = Buffer.concat([cipher.update(args, "utf8"), cipher.final(), cipher.getAuthTag()]);
    return Buffer.concat([head, nonce, sealed]).toString("base64");
  }

  /** The arguments that the text of a sealed job holds. @param {string} text @param {string} jid @param {string} jobClass @returns {any[]} */
  open(text, jid, jobClass) {
    const packed = Buffer.from(text, "base64");
    if (packed[0] !== 1 || packed.length < HEAD_BYTES + NONCE_BYTES + TAG_BYTES) {
      throw new EncryptionKeyError("the job is marked as encrypted, but its arguments are not sealed");
    }
    const head = packed.subarray(0, HEAD_BYTES);
    const name = head.subarray(VERSION.length).toString("hex");
    const key = this.#keys.get(name);
    if (!key) {
      throw new EncryptionKeyError(`the arguments need the key ${name}; there are: ${[...this.#keys.keys()].join(", ")}`);
    }
    const decipher = createDecipheriv("aes-256-gcm", key, packed.subarray(HEAD_BYTES, HEAD_BYTES + NONCE_BYTES))
      .setAAD(about(head, jid, jobClass))
      .setAuthTag(packed.subarray(-TAG_BYTES));
    try {
      const opened = [decipher.update(packed.subarray(HEAD_BYTES + NONCE_BYTES, -TAG_BYTES)), decipher.final()];
      return decode(Buffer.concat(opened).toString());
    } catch (cause) {
      throw new EncryptionKeyError("the arguments were changed, or belong to a job of another id or class", { cause });
    }
  }

  /** A digest that needs the newest key, in hex. @param {string} text */
  digest(text) {
    return createHmac("sha256", this.#digestKey).update(text).digest("hex");
  }
}

/** @param {string | Uint8Array} key @param {number} place */
function parseKey(key, place) {
  if (key instanceof Uint8Array && key.length === KEY_BYTES) return Buffer.from(key);
  if (typeof key !== "string" || !/^[A-Za-z0-9+/_-]*={0,2}$/.test(key.trim())) {
    throw new BadArgumentError(`encryption[${place}]: not base64: ${MAKE_ONE}`);
  }
  // Buffer reads the alphabet of URLs as well.
  const bytes = Buffer.from(key.trim(), "base64");
  if (bytes.length !== KEY_BYTES) {
    throw new BadArgumentError(`encryption[${place}]: a key of ${bytes.length} bytes, not ${KEY_BYTES}: ${MAKE_ONE}`);
  }
  return bytes;
}

/** The name of a key, which tells nothing about it. @param {Buffer} key */
function nameOf(key) {
  return createHash("sha256").update("pyworkers key name:").update(key).digest().subarray(0, NAME_BYTES);
}

/** @param {Buffer} head @param {string} jid @param {string} jobClass */
function about(head, jid, jobClass) {
  return Buffer.concat([head, Buffer.from(encode([jid, jobClass], "jid"))]);
}
