// Calls the job `charge` of contrib/clients/application.py, and waits for what Python returns.
//
//   pyworkers run --app application:worker     in contrib/clients
//   node examples/charge.js                    here, with REDIS_URL if Redis is not at redis://127.0.0.1:6379/0
import { createClient } from "redis";
import { Client } from "pyworkers";

const redis = await createClient({ url: process.env.REDIS_URL }).connect();
try {
  const client = new Client(redis);
  const charge = client.call("charge", { queue: "clients", track: 60 });
  const job = await charge.enqueue(7, "CHF");
  console.log(job.jid, await job.result());
} finally {
  redis.destroy();
}
