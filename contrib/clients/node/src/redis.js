/**
 * A connection of the package `redis` or `ioredis`, behind the three calls that this package needs.
 *
 * A call whose connection was lost is reported and never sent again: perhaps only its reply was lost, and then a
 * job would run twice.
 * @module
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { inspect } from "node:util";
import { BadArgumentError, PyworkersError, RedisUnavailableError, StoreError } from "./errors.js";

/** @typedef {readonly (string | number)[]} Command */

/**
 * @typedef {object} Wire
 * @property {(command: Command) => Promise<any>} send
 * @property {(commands: readonly Command[]) => Promise<any[]>} transaction all or none
 * @property {(signal?: AbortSignal) => Promise<{ wire: Wire, close: () => void }>} apart a separate connection, for a command
 *   that blocks; the signal closes it, too
 */

/** The version of the contract between producers and servers that this client speaks. */
const WIRE = 1;
// Errors of Redis after which another server, or this one soon, takes the command.
/** @type {Record<string, string>} */
const AWAY = {
  LOADING: "Redis is not ready",
  MAXCLIENTS: "Redis takes no more connections",
  READONLY: "Redis takes no writes now",
  MASTERDOWN: "Redis takes no writes now",
  CLUSTERDOWN: "Redis takes no writes now",
  UNBLOCKED: "Redis takes no writes now",
  NOAUTH: "Redis refused the login",
  WRONGPASS: "Redis refused the login",
};
/** @type {Record<string, string>} */
const HERE = {
  OOM: "the server's memory is full (maxmemory)",
  MISCONF: "Redis cannot save to its disk and takes no writes",
  NOREPLICAS: "Redis has too few replicas (min-replicas-to-write)",
  EXECABORT: "Redis refused a part of a transaction",
  NOPERM: "Redis does not permit this user to do that (`pyworkers acl`)",
  WRONGTYPE: "a key has the wrong type",
  CROSSSLOT: "on a cluster the namespace needs a hash tag, as {app}:",
};

// Replies without their own code.
const SENTENCES = { "max number of clients": "MAXCLIENTS", "AUTH <password> called without": "WRONGPASS" };
const SENTINELS = "new Redis({ sentinels, name, failoverDetector: true, autoResendUnfulfilledCommands: false })";
const REFUSALS = new Set(["READONLY", "NOREPLICAS", "UNBLOCKED"]);

/** @param {any} redis @returns {Wire} */
export function wireOf(redis) {
  if (typeof redis?.isCluster === "boolean" ? redis.isCluster : redis?.slots !== undefined) {
    throw new BadArgumentError("a connection to a Redis Cluster is not supported: connect to one server");
  }
  if (typeof redis?.getMasterNode === "function") {
    throw new BadArgumentError("a connection of createSentinel would send a command again whose reply was lost: the job would run twice", {
      hint: `connect to sentinels with ioredis: ${SENTINELS}`,
    });
  }
  if (redis?.options?.keyPrefix) {
    throw new BadArgumentError("a connection with keyPrefix cannot be used: the scripts build names of keys", {
      hint: 'give the prefix to the client: new Client(redis, { namespace: "app:" })',
    });
  }
  if (typeof redis?.call === "function" && typeof redis.duplicate === "function") return ioredis(redis);
  if (typeof redis?.sendCommand === "function" && typeof redis.isReady === "boolean") return nodeRedis(redis);
  throw new BadArgumentError(`${inspect(redis, { depth: 0 })} is not a connection of the package redis or ioredis`, {
    hint: 'write new Client(await createClient({ url }).connect()), with createClient of "redis"',
  });
}

/**
 * The same connection; at its first use, the servers are asked which versions of the wire they speak. What Redis
 * refuses before anything is written is sent once more on a new connection, which may lead to the new primary.
 * @param {Wire} wire
 * @param {string} key of these versions
 * @returns {Wire}
 */
export function spoken(wire, key) {
  /** @type {Promise<void> | undefined} */
  let known;
  const check = () => {
    known ??= checkVersions(wire, key).catch((error) => {
      known = undefined;
      throw error;
    });
    return known;
  };
  /** @param {(wire: Wire) => Promise<any>} call */
  const first = async (call) => {
    await check();
    try {
      return await call(wire);
    } catch (error) {
      if (!(error instanceof PyworkersError) || !REFUSALS.has(error.code)) throw error;
      const own = await wire.apart();
      return await call(own.wire).finally(own.close);
    }
  };
  return {
    send: (command) => first((one) => one.send(command)),
    transaction: (commands) => first((one) => one.transaction(commands)),
    apart: wire.apart,
  };
}

/** @param {Wire} wire @param {string} key */
async function checkVersions(wire, key) {
  /** @type {string[]} */
  let versions = [];
  try {
    versions = await wire.send(["ZRANGEBYSCORE", key, "-inf", "+inf"]);
  } catch (error) {
    // The rights of the user may be fewer than a producer's.
    if (!(error instanceof StoreError)) throw error;
  }
  // Without one, no server runs, or one that is older than the key.
  if (versions.length && !versions.includes(String(WIRE))) {
    throw new StoreError(`the servers speak version ${versions.join(" and ")} of the wire, and this client version ${WIRE}`, {
      hint: "install a release of this package that speaks theirs",
    });
  }
}

/** @param {any} redis @returns {Wire} */
function nodeRedis(redis) {
  return {
    send: (command) => attempt(redis.isReady, () => redis.sendCommand(command.map(String))),
    transaction: (commands) =>
      attempt(redis.isReady, () => {
        const multi = redis.multi();
        for (const command of commands) multi.addCommand(command.map(String));
        return multi.exec();
      }),
    apart: (signal) => {
      const own = redis.duplicate({ socket: { ...redis.options?.socket, reconnectStrategy: false } });
      return attempt(true, () => opened(own, nodeRedis, signal));
    },
  };
}

/**
 * @param {any} own a connection that is not open
 * @param {(redis: any) => Wire} wireOf
 * @param {AbortSignal} [signal]
 */
async function opened(own, wireOf, signal) {
  // Without a listener, a lost connection would end the process.
  own.on("error", () => {});
  const end = () => (own.destroy ?? own.disconnect).call(own);
  // A signal that is aborted calls no listener.
  signal?.throwIfAborted();
  signal?.addEventListener("abort", end);
  try {
    await own.connect();
  } catch (error) {
    signal?.removeEventListener("abort", end);
    throw error;
  }
  const close = () => {
    signal?.removeEventListener("abort", end);
    if (!signal?.aborted) end();
  };
  return { wire: wireOf(own), close };
}

/**
 * The calls that are under way on each connection of ioredis, by what they do when it is ready, or lost: one listener
 * for all of them.
 * @type {WeakMap<object, Set<(isReady: boolean) => void>>}
 */
const underWay = new WeakMap();

/** @param {any} redis */
function callsOn(redis) {
  const calls = underWay.get(redis) ?? new Set();
  if (!underWay.has(redis)) {
    underWay.set(redis, calls);
    for (const event of ["ready", "close"]) {
      redis.on(event, () => {
        for (const tell of [...calls]) tell(event === "ready");
      });
    }
  }
  return calls;
}

/** @param {any} redis @returns {Wire} */
function ioredis(redis) {
  if (redis.options?.autoResendUnfulfilledCommands !== false) {
    throw new BadArgumentError("this connection would send a command again whose reply was lost: the job would run twice", {
      hint: "write new Redis(url, { autoResendUnfulfilledCommands: false })",
    });
  }
  if (redis.options.sentinels && !redis.options.failoverDetector) {
    throw new BadArgumentError("this connection would stay with the former primary after a failover: jobs would be lost", {
      hint: `write ${SENTINELS}`,
    });
  }
  const calls = callsOn(redis);
  const isReady = () => ["wait", "connecting", "connect", "ready"].includes(redis.status);
  /**
   * ioredis keeps a call whose connection is lost waiting, and sends one later that was made while it connects, also
   * when that has failed; while no sentinel answers, it connects for ever. So such a call begins when the connection is
   * ready, and ends with its loss.
   * @param {() => Promise<any>} call
   */
  const send = (call) =>
    attempt(isReady(), () => {
      /** @type {(isReady: boolean) => void} */
      let tell = () => {};
      /** @type {NodeJS.Timeout | undefined} */
      let timer;
      return new Promise((resolve, reject) => {
        let begin = () => {
          begin = () => {};
          clearTimeout(timer);
          call().then(resolve, reject);
        };
        tell = (isReady) => (isReady ? begin() : reject(new Error("the connection was lost")));
        calls.add(tell);
        if (redis.status === "ready") return begin();
        const { connectTimeout } = redis.options;
        if (connectTimeout) timer = setTimeout(() => reject(new Error("no connection in the time (connectTimeout)")), connectTimeout);
        if (redis.status === "wait") redis.connect().catch(() => {});
      }).finally(() => {
        clearTimeout(timer);
        calls.delete(tell);
      });
    });
  return {
    send: (command) => send(() => redis.call(...command.map(String))),
    transaction: (commands) =>
      send(async () => {
        const multi = redis.multi();
        for (const command of commands) multi.call(...command.map(String));
        const replies = await multi.exec();
        return replies.map((/** @type {[Error | null, any]} */ [error, reply]) => {
          if (error) throw error;
          return reply;
        });
      }),
    apart: (signal) => {
      const own = redis.duplicate({ retryStrategy: null, sentinelRetryStrategy: null, lazyConnect: true });
      return attempt(true, () => opened(own, ioredis, signal));
    },
  };
}

/**
 * @template T
 * @param {boolean} isReady
 * @param {() => Promise<T>} call
 * @returns {Promise<T>}
 */
async function attempt(isReady, call) {
  if (!isReady) {
    throw new RedisUnavailableError("Redis cannot be reached: the connection is not ready", {
      hint: "nothing was sent; a new connection is ready after await redis.connect()",
    });
  }
  try {
    return await call();
  } catch (error) {
    throw translated(error);
  }
}

/** @param {any} error */
function translated(error) {
  if (error instanceof PyworkersError) return error;
  // Of a transaction, the first refusal.
  const reply = error.errors?.()[Symbol.iterator]?.().next().value ?? error.replies?.find((/** @type {any} */ one) => one instanceof Error) ?? error.previousErrors?.[0] ?? error;
  const text = String(reply.message ?? reply);
  const [, known] = Object.entries(SENTENCES).find(([sentence]) => text.includes(sentence)) ?? [];
  const code = known ?? /^([A-Z]{3,}) /.exec(text)?.[1] ?? /@user_script:\s*\d+: -?([A-Z]{3,}) /.exec(text)?.[1] ?? "";
  if (code && !(code in AWAY)) {
    return new StoreError(HERE[code] ? `${HERE[code]}: ${text}` : text, { code, cause: error });
  }
  const meaning = AWAY[code] ?? "Redis cannot be reached";
  return new RedisUnavailableError(`${meaning}: ${text || error.code || error.name}`, { code, cause: error });
}

/** A Lua script, called by its digest, and by its text if the server does not know it. */
export class Script {
  #text;
  #sha;

  /** @param {URL} file of the version of the wire that this client speaks */
  constructor(file) {
    const text = readFileSync(file, "utf8");
    const [about] = text.split("\n", 1);
    if (!about.endsWith(`, wire ${WIRE}`)) {
      const name = file.pathname.split("/").at(-1);
      throw new StoreError(`${name} is of another version of the wire: ${inspect(about)}, not wire ${WIRE}`, {
        hint: "install the package again: its files are of two versions",
      });
    }
    this.#text = text;
    this.#sha = createHash("sha1").update(text).digest("hex");
  }

  /** @param {Wire} wire @param {readonly string[]} keys @param {readonly (string | number)[]} args */
  async call(wire, keys, args) {
    const rest = [keys.length, ...keys, ...args];
    try {
      return await wire.send(["EVALSHA", this.#sha, ...rest]);
    } catch (error) {
      if (!(error instanceof StoreError) || error.code !== "NOSCRIPT") throw error;
      return await wire.send(["EVAL", this.#text, ...rest]);
    }
  }
}
