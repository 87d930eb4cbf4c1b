// Takes part in the race of tests/clients/test_races.py: prints the jid of each round, and the jobs that found room.
import { createInterface } from "node:readline/promises";
import { createClient } from "redis";
import { Client } from "pyworkers";

const redis = await createClient({ url: process.env.REDIS_URL }).connect();
const client = new Client(redis);
console.log("ready");
const [rounds, room] = (await createInterface(process.stdin).question("")).split(" ").map(Number);

const jids = [];
for (let round = 0; round < rounds; round++) {
  jids.push(await client.enqueue("race", "Race", [{ round, é: [1.0, 1e21] }], { uniqueFor: 60 }));
}
let accepted = 0;
while ((await client.tryEnqueue("bounded", "Race", [accepted], { maxWaiting: room })) !== null) accepted += 1;
console.log(JSON.stringify({ jids, accepted }));
redis.destroy();
