// Takes part in tests/clients/test_races.py: adds members to a batch, one after the other, and prints the number of each.
import { createClient } from "redis";
import { Client } from "pyworkers";

const [id, number] = process.argv.slice(2);
const redis = await createClient({ url: process.env.REDIS_URL }).connect();
const batch = new Client(redis).batchOf(id);
for (let one = 1; one <= Number(number); one++) {
  await batch.add((members) => members.enqueue("clients", "add", [one, 1]));
  console.log(one);
}
redis.destroy();
