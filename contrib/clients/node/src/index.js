/**
 * A client of pyworkers for Node: described in index.d.ts.
 * @module
 */
export { BATCH_ID, RESULT, step } from "./batches.js";
export { Client } from "./client.js";
export { uniqueKey } from "./envelope.js";
export * from "./errors.js";
export { canonical } from "./json.js";
export { Keyring } from "./sealing.js";
