// Checks that an event comes from Tumira (Standard Webhooks, `v1`).

import { createHmac, timingSafeEqual } from "node:crypto";

import { WebhookError } from "./errors.js";

const TOLERANCE = 300;

/** Verifies events with the secret of an endpoint, or with several while it is being changed. */
export class Webhooks {
  #keys;
  #tolerance;

  constructor(secrets, { tolerance = TOLERANCE } = {}) {
    this.#keys = [secrets].flat().map(readSecret);
    if (this.#keys.length === 0) throw new TypeError("Name the signing secret of your endpoint, whsec_….");
    this.#tolerance = tolerance;
  }

  /** Returns the event; `body` is the request's body before parsing, a Buffer or a string. */
  verify(headers, body, now = Date.now() / 1000) {
    const id = this.check(headers, body, now);
    let event;
    try {
      event = JSON.parse(Buffer.from(body).toString());
    } catch {
      event = undefined;
    }
    if (typeof event?.type !== "string" || typeof event.timestamp !== "string" || typeof event.data !== "object") {
      throw new WebhookError("The signed body is not an event.");
    }
    return { id, type: event.type, timestamp: event.timestamp, sequence: event.sequence ?? 0, data: event.data };
  }

  /** Checks the signature and the time, and returns the event's id. */
  check(headers, body, now = Date.now() / 1000) {
    const id = header(headers, "webhook-id");
    const sentAt = header(headers, "webhook-timestamp");
    const signatures = header(headers, "webhook-signature");
    if (!/^[0-9]{1,12}$/.test(sentAt)) {
      throw new WebhookError("The header webhook-timestamp is not a number of seconds.");
    }
    if (!(Math.abs(now - Number(sentAt)) <= this.#tolerance)) {
      throw new WebhookError("The event is too old, or the clock of this machine is wrong.");
    }
    const given = signatures.split(" ").map((one) => Buffer.from(one));
    // All are compared, so that the time does not say which one fits.
    let fits = false;
    for (const key of this.#keys) {
      const digest = createHmac("sha256", key).update(`${id}.${sentAt}.`).update(body).digest("base64");
      const expected = Buffer.from(`v1,${digest}`);
      for (const one of given) {
        fits = (one.length === expected.length && timingSafeEqual(one, expected)) || fits;
      }
    }
    if (!fits) throw new WebhookError("No signature fits: the secret or the body is another.");
    return id;
  }
}

function readSecret(secret) {
  const text = String(secret).replace(/^whsec_/, "");
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text) || text === "") {
    throw new TypeError("A signing secret is whsec_ and base64.");
  }
  return Buffer.from(text, "base64");
}

/** Reads a header from an object of Node.js, or from `Headers`. */
function header(headers, wanted) {
  const entries = typeof headers.entries === "function" ? [...headers.entries()] : Object.entries(headers);
  const values = entries.filter(([name]) => name.toLowerCase() === wanted).flatMap(([, value]) => value);
  if (values.length !== 1 || !values[0]) {
    throw new WebhookError(`The header ${wanted} is missing or given twice.`);
  }
  return String(values[0]);
}
