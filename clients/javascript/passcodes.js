// One-time passcodes: made, stored as a keyed hash, checked once, expired, with few tries.

import { createHmac, randomInt, timingSafeEqual } from "node:crypto";

import { e164 } from "./numbers.js";

const SECRET_MIN = 16;

/** Passcodes in a store of your own; its three methods may be asynchronous. */
export class Passcodes {
  #store;
  #secret;
  #options;

  constructor(store, { secret, ...options } = {}) {
    if (typeof secret !== "string" || [...secret].length < SECRET_MIN) {
      throw new TypeError(`The secret for codes has at least ${SECRET_MIN} characters.`);
    }
    this.#store = store;
    this.#secret = secret;
    const now = () => Date.now() / 1000;
    this.#options = { country: undefined, digits: 6, lifetime: 600, triesMax: 5, clock: now, ...options };
  }

  /** Makes and stores a code for a phone, in place of an older one; send it, and never log it. */
  async make(phone) {
    const { country, digits, lifetime, clock } = this.#options;
    const number = e164(phone, country);
    const code = String(randomInt(10 ** digits)).padStart(digits, "0");
    const expires_at = Math.floor(clock()) + lifetime;
    await this.#store.put(number, { hash: this.hash(number, code), expires_at, tries: 0 });
    return code;
  }

  /** Tells whether this is the phone's code; it is right once. */
  async check(phone, typed) {
    const { country, triesMax, clock } = this.#options;
    const number = e164(phone, country);
    const stored = await this.#store.countTry(number);
    if (!stored) return false;
    const own = Buffer.from(stored.hash, "hex");
    const given = Buffer.from(this.hash(number, String(typed).replace(/\s+/g, "")), "hex");
    const same = own.length === given.length && timingSafeEqual(own, given);
    if (!same || stored.tries > triesMax || clock() >= stored.expires_at) return false;
    // Of two checks at the same moment, one removes it.
    return Boolean(await this.#store.remove(number, stored.hash));
  }

  /** Returns what is stored of a code. */
  hash(phone, code) {
    return createHmac("sha256", this.#secret).update(`${phone} ${code}`).digest("hex");
  }
}

/** Codes in the memory of one process, for trials; they are lost when it ends. */
export class MemoryCodeStore {
  #codes = new Map();

  put(phone, code) {
    this.#codes.set(phone, { ...code });
  }

  countTry(phone) {
    const code = this.#codes.get(phone);
    if (code === undefined) return undefined;
    code.tries += 1;
    return { ...code };
  }

  remove(phone, hash) {
    return this.#codes.get(phone)?.hash === hash && this.#codes.delete(phone);
  }
}
