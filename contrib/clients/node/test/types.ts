// Checked by tsc, never run: what a typed call takes and gives, and that the code has what index.d.ts declares.
import { createClient } from "redis";
import { Redis } from "ioredis";
import * as declared from "pyworkers";
import * as written from "../src/index.js";

const client = new declared.Client(await createClient().connect());
new declared.Client(new Redis({ autoResendUnfulfilledCommands: false }));

const charge = client.call<[order: number, note?: string], { paid: boolean }>("charge", { queue: "pay", track: 60 });
const paid: boolean = (await (await charge.enqueue(7)).result({ signal: AbortSignal.timeout(1000) })).paid;
// @ts-expect-error: an order is a number
await charge.enqueue("7");
// @ts-expect-error: the result is an object
const wrong: string = await (await charge.enqueue(7)).result();
// @ts-expect-error: there is no such option
await client.enqueue("pay", "charge", [7], { unique: 60 });
await client.chain([charge.with(7), client.call<[result: object]>("store").with(declared.RESULT)]);

const _names: { [Name in keyof typeof declared]: unknown } = written;
const _client: declared.Client = new written.Client(null);
console.log(paid, wrong);
