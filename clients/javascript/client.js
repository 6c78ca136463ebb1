// The client: calls with retries that are billed once.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { BY_CODE } from "./codes.js";
import { ApiError, NoAnswerError, SendInterruptedError, TumiraError } from "./errors.js";
import { complete } from "./numbers.js";
import { addMoney, chunkKey, chunks, POLICY, readPause, readRetryAfter, waitAfter } from "./retry.js";

export const VERSION = "0.1.0";
const PREFIX = "/api/v1";

/** Sends messages and looks them up; see `index.d.ts` for the options. */
export class Tumira {
  #base;
  #key;
  #country;
  #policy;
  #notBefore = 0;

  constructor({ url, apiKey, country, ...policy } = {}) {
    const address = (url ?? process.env.TUMIRA_URL ?? "").replace(/\/+$/, "");
    if (!/^https?:\/\/[^/]/.test(address)) {
      throw new TypeError("Give the address of your service, as https://sms.example.com, or set TUMIRA_URL.");
    }
    this.#base = (address.endsWith(PREFIX) ? address.slice(0, -PREFIX.length) : address) + PREFIX;
    this.#key = apiKey ?? process.env.TUMIRA_API_KEY ?? "";
    if (!/^[!-~]+$/.test(this.#key)) throw new TypeError("Give an API key, tmr_…, or set TUMIRA_API_KEY.");
    this.#country = country;
    this.#policy = { ...POLICY, ...policy };
  }

  async send(to, body, { reference, idempotencyKey } = {}) {
    const key = checkedKey(idempotencyKey);
    return this.#send(this.#numbers(to), body, reference, key);
  }

  async sendMany(to, body, { reference, idempotencyKey } = {}) {
    const key = checkedKey(idempotencyKey);
    const parts = chunks(this.#numbers(to));
    const batches = [];
    for (const [index, numbers] of parts.entries()) {
      try {
        batches.push(await this.#send(numbers, body, reference, chunkKey(key, index)));
      } catch (error) {
        if (error instanceof TumiraError) throw new SendInterruptedError(key, batches, parts.length, error);
        throw error;
      }
    }
    return {
      idempotency_key: key,
      batches,
      accepted: batches.reduce((sum, batch) => sum + batch.accepted, 0),
      rejected: batches.flatMap((batch) => batch.rejected),
      total_cost: addMoney(batches.map((batch) => batch.total_cost)),
    };
  }

  async price(to, body) {
    const parts = chunks(this.#numbers(to));
    const prices = [];
    for (const numbers of parts.length ? parts : [[]]) {
      const payload = { channel: "sms", to: numbers, body, dry_run: true };
      prices.push(await this.#call("POST", "/messages", { payload, has: ["accepted", "rejected", "total_cost"] }));
    }
    return {
      ...prices[0],
      accepted: prices.reduce((sum, price) => sum + price.accepted, 0),
      rejected: prices.flatMap((price) => price.rejected),
      total_cost: addMoney(prices.map((price) => price.total_cost)),
    };
  }

  async batch(id) {
    return (await this.#call("GET", `/batches/${encodeURIComponent(id)}`, { has: ["data"] })).data;
  }

  async message(id) {
    return (await this.#call("GET", `/messages/${encodeURIComponent(id)}`, { has: ["data"] })).data;
  }

  async balance() {
    return this.#call("GET", "/balance", { has: ["balance", "currency"] });
  }

  async prices() {
    return (await this.#call("GET", "/pricing", { has: ["data"] })).data;
  }

  #numbers(to) {
    return [to].flat().map((one) => complete(one, this.#country));
  }

  async #send(numbers, body, reference, key) {
    const payload = { channel: "sms", to: numbers, body, ...(reference === undefined ? {} : { reference }) };
    const has = ["batch_id", "accepted", "rejected", "total_cost", "balance_after"];
    return this.#call("POST", "/messages", { payload, key, has });
  }

  /** Makes a call until there is an answer or no time; every try of a send has the same key. */
  async #call(method, path, { payload, key, has }) {
    const began = performance.now();
    const elapsed = () => (performance.now() - began) / 1000;
    for (let attempt = 1; ; attempt += 1) {
      const pause = (this.#notBefore - performance.now()) / 1000;
      // A longer pause than there is time for is not waited for: the service says what to do.
      if (pause > 0 && pause <= this.#policy.giveUpAfter - elapsed()) await sleep(pause * 1000);
      const answer = await this.#try(method, path, payload, key);
      if (answer.headers) this.#pace(readPause(answer.headers.get("ratelimit")));
      if (answer.status >= 200 && answer.status < 300 && has.every((name) => answer.json?.[name] !== undefined)) {
        const replayed = answer.headers.get("idempotency-replayed") === "true";
        return key === undefined ? answer.json : { ...answer.json, idempotency_key: key, replayed };
      }
      const [failure, error] = readFailure(answer, key);
      if (error.code === "RATE_LIMITED") this.#pace(failure.retryAfter ?? 0);
      const wait = waitAfter(this.#policy, attempt, elapsed(), failure, Math.random());
      if (wait === null) throw error;
      await sleep(wait * 1000);
    }
  }

  /** Returns the answer, or in `cause` why there is none. */
  async #try(method, path, payload, key) {
    const headers = {
      Authorization: `Bearer ${this.#key}`,
      Accept: "application/json",
      "User-Agent": `tumira-javascript/${VERSION}`,
    };
    if (payload !== undefined) headers["Content-Type"] = "application/json";
    if (key !== undefined) headers["Idempotency-Key"] = key;
    try {
      const response = await fetch(this.#base + path, {
        method,
        headers,
        body: payload === undefined ? undefined : JSON.stringify(payload),
        redirect: "manual",
        signal: AbortSignal.timeout(this.#policy.timeout * 1000),
      });
      const text = await response.text();
      return { status: response.status, headers: response.headers, json: parse(text) };
    } catch (cause) {
      return { status: null, cause };
    }
  }

  #pace(seconds) {
    if (seconds > 0) this.#notBefore = Math.max(this.#notBefore, performance.now() + seconds * 1000);
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function checkedKey(key) {
  if (key === undefined || key === null) return randomUUID();
  if (!/^[!-~]{6,64}$/.test(key)) throw new TypeError("An idempotency key has 6 to 64 visible ASCII characters.");
  return key;
}

function readFailure({ status, headers, json, cause }, key) {
  if (status === null) {
    const why = cause?.cause?.message ?? cause?.message ?? String(cause);
    return [{ status, retryable: null, retryAfter: null }, new NoAnswerError(`No answer: ${why}`, key, cause)];
  }
  const retryAfter = readRetryAfter(headers.get("retry-after"), Date.now() / 1000);
  const body = json?.error;
  if (status >= 300 && typeof body?.code === "string" && typeof body.retryable === "boolean") {
    const Kind = Object.hasOwn(BY_CODE, body.code) ? BY_CODE[body.code] : ApiError;
    const error = new Kind({
      code: body.code,
      status,
      message: String(body.message),
      retryable: body.retryable,
      details: Array.isArray(body.details) ? body.details : [],
      requestId: String(body.request_id ?? ""),
      retryAfter,
      idempotencyKey: key,
    });
    return [{ status, retryable: body.retryable, retryAfter }, error];
  }
  const message = `The answer with status ${status} is not one of Tumira; check the address.`;
  return [{ status, retryable: null, retryAfter }, new NoAnswerError(message, key)];
}
