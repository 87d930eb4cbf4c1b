// What the tests share: a Redis with a running server of pyworkers, as the environment names it, and a wait.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import net from "node:net";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Client } from "pyworkers";

const { REDIS_URL, PYWORKERS_ENCRYPTION__KEYS, CI } = process.env;

/** The reason to skip what needs a server; a failure under CI. */
export const noServer = REDIS_URL
  ? false
  : CI
    ? assert.fail("REDIS_URL is not set")
    : "REDIS_URL is not set: it names a Redis with a server of contrib/clients/application.py";

export const url = REDIS_URL ?? "";
export const keys = PYWORKERS_ENCRYPTION__KEYS ? readFileSync(PYWORKERS_ENCRYPTION__KEYS, "utf8").trim().split("\n") : undefined;

/** A connection of each package that is a peer. */
export const packages = {
  async redis(address = url) {
    const redis = createClient({ url: address, socket: { reconnectStrategy: 20 } });
    redis.on("error", () => {});
    await redis.connect();
    after(() => redis.destroy());
    return redis;
  },
  async ioredis(address = url) {
    const redis = new Redis(address, { autoResendUnfulfilledCommands: false, retryStrategy: () => 20 });
    redis.on("error", () => {});
    await redis.ping();
    after(() => redis.disconnect());
    return redis;
  },
};

/** Send a command over a connection of either package. */
export function send(redis, ...command) {
  return redis.call ? redis.call(...command) : redis.sendCommand(command);
}

/** A client that no server reads from, with the prefix of its keys. */
export function apart(redis, settings) {
  const namespace = `test:${randomBytes(6).toString("hex")}:`;
  return { namespace, client: new Client(redis, { namespace, ...settings }) };
}

/** Wait until a function returns a value that is true. */
export async function waitFor(look, seconds = 20) {
  const until = Date.now() + seconds * 1000;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > until) assert.fail(`not seen in ${seconds} s: ${look}`);
    await pause(20);
  }
}

/** A proxy that passes the first call of a command on and then loses the connection. Returns its address. */
export async function losing(command) {
  const { hostname, port } = new URL(url);
  let isLost = false;
  const server = net.createServer((near) => {
    const far = net.connect(Number(port), hostname);
    near.on("error", () => {});
    far.on("error", () => {});
    near.on("close", () => far.end());
    near.on("data", (data) => {
      const loses = !isLost && data.toString("latin1").toUpperCase().includes(`\r\n${command}\r\n`);
      isLost ||= loses;
      far.write(data, () => loses && near.destroy());
    });
    far.on("data", (data) => near.destroyed || near.write(data));
    far.on("close", () => near.destroy());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => server.close());
  return `redis://127.0.0.1:${server.address().port}`;
}
