// When a call is repeated, how long the client waits, and under which key each batch is sent.

import { createHash } from "node:crypto";

export const RECIPIENTS_MAX = 1000;
/** Seconds: `timeout` for one try, `giveUpAfter` for all of them. */
export const POLICY = { triesMax: 6, timeout: 30, giveUpAfter: 120 };

const FIRST_WAIT = 0.5;
const LONGEST_WAIT = 8;

/**
 * Returns how many seconds to wait after a failed try, never less than `Retry-After`; null to give up.
 * `status` is null if nothing came, and `retryable` if the answer was not one of the service.
 */
export function waitAfter(policy, attempt, elapsed, { status, retryable, retryAfter }, random) {
  if (attempt >= policy.triesMax || !isTransient(status, retryable)) return null;
  const backoff = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * (0.5 + random / 2);
  const wait = (retryAfter ?? 0) + backoff;
  return elapsed + wait <= policy.giveUpAfter ? wait : null;
}

function isTransient(status, retryable) {
  if (retryable !== null) return retryable;
  // A success that cannot be read is no answer: with the same key the next try gets it again.
  return status === null || status < 300 || status === 408 || status === 429 || status >= 500;
}

/** Reads the header `Retry-After`: seconds or a date. */
export function readRetryAfter(value, now) {
  if (value === null || value === undefined) return null;
  if (/^\s*[0-9]{1,9}\s*$/.test(value)) return Number(value);
  const moment = /[a-z]/i.test(value) ? Date.parse(value) : NaN;
  return Number.isNaN(moment) ? null : Math.max(0, moment / 1000 - now);
}

/** Returns for how many seconds the header `RateLimit` allows no further call. */
export function readPause(value) {
  let pause = 0;
  for (const policy of (value ?? "").split(",")) {
    const remaining = /;\s*r=([0-9]{1,9})(?![0-9.])/.exec(policy);
    const reset = /;\s*t=([0-9]{1,9})(?![0-9.])/.exec(policy);
    if (remaining && reset && Number(remaining[1]) === 0) pause = Math.max(pause, Number(reset[1]));
  }
  return pause;
}

/** Splits the distinct numbers, in their order, so that the same numbers always give the same batches. */
export function chunks(numbers, size = RECIPIENTS_MAX) {
  const distinct = [...new Set(numbers)];
  return Array.from({ length: Math.ceil(distinct.length / size) }, (_, place) =>
    distinct.slice(place * size, (place + 1) * size),
  );
}

/** Returns the key of a batch: the first has the caller's own, so `send` with that key is the same call. */
export function chunkKey(key, index) {
  return index === 0 ? key : createHash("sha256").update(`${key} ${index}`).digest("hex").slice(0, 32);
}

/** Adds amounts such as "0.0400" exactly. */
export function addMoney(amounts) {
  const total = amounts.reduce((sum, amount) => sum + BigInt(amount.replace(".", "")), 0n);
  const digits = String(total).padStart(5, "0");
  return `${digits.slice(0, -4)}.${digits.slice(-4)}`;
}
