export { Tumira, VERSION } from "./client.js";
export * from "./codes.js";
export * from "./errors.js";
export { e164 } from "./numbers.js";
export { MemoryCodeStore, Passcodes } from "./passcodes.js";
export { Webhooks } from "./webhooks.js";
