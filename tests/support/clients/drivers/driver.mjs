// Runs calls of the JavaScript client: one JSON object on standard input, a JSON list on standard output.

import { text } from "node:stream/consumers";

import { Tumira, TumiraError } from "tumira-client";

const METHODS = { send_many: "sendMany" };

function plain(value) {
  if (Array.isArray(value)) return { prices: [...new Set(value.map((one) => one.country))].sort() };
  if (value.messages) {
    const [to, ids] = ["to", "message_id"].map((name) => value.messages.map((one) => one[name]));
    return { status: value.status, to, ids };
  }
  if (value.idempotency_key) {
    const parts = value.batches ?? [value];
    return {
      batches: parts.map((one) => one.batch_id),
      accepted: value.accepted,
      rejected: value.rejected.map((one) => [one.to, one.code]),
      total_cost: value.total_cost,
      key: value.idempotency_key,
      replayed: parts.every((one) => one.replayed),
    };
  }
  return Object.fromEntries(["balance", "total_cost", "to"].filter((name) => name in value).map((name) => [name, value[name]]));
}

function failed(error) {
  if (!(error instanceof TumiraError)) throw error;
  const told = { error: error.name.replace(/Error$/, "") };
  if ("idempotencyKey" in error) told.key = error.idempotencyKey ?? null;
  if ("code" in error) Object.assign(told, { code: error.code, status: error.status, details: error.details });
  if ("batches" in error) {
    Object.assign(told, { batches: error.batches.map((one) => one.batch_id), cause: failed(error.cause) });
  }
  return told;
}

const order = JSON.parse(await text(process.stdin));
const tumira = new Tumira({ url: order.url, apiKey: order.key, country: "ZW", timeout: order.timeout });
const answers = [];
for (const call of order.calls) {
  const [name, ...given] = call;
  const { idempotency_key: idempotencyKey, reference } = given.pop();
  try {
    answers.push(plain(await tumira[METHODS[name] ?? name](...given, { idempotencyKey, reference })));
  } catch (error) {
    answers.push(failed(error));
  }
}
console.log(JSON.stringify(answers));
