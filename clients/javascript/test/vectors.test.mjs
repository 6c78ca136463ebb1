// The client does what the test vectors of all clients say.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { e164, InvalidNumberError, MemoryCodeStore, Passcodes, WebhookError, Webhooks } from "../index.js";
import { addMoney, chunkKey, chunks, POLICY, readPause, readRetryAfter, waitAfter } from "../retry.js";

const vectors = JSON.parse(readFileSync(new URL("../../vectors.json", import.meta.url)));

test("numbers are completed", () => {
  for (const { text, country, e164: expected } of vectors.numbers) {
    const read = () => e164(text, country ?? undefined);
    if (expected === null) assert.throws(read, InvalidNumberError, text);
    else assert.equal(read(), expected, text);
  }
  assert.throws(() => e164("0771200001", "XX"), TypeError);
});

test("signatures are judged", () => {
  for (const { name, secrets, headers, body, now, tolerance, valid } of vectors.signatures) {
    const check = () => new Webhooks(secrets, { tolerance }).check(headers, Buffer.from(body), now);
    if (valid) assert.equal(check(), Object.values(headers).flat()[0], name);
    else assert.throws(check, WebhookError, name);
  }
});

test("an event is read, from an object or from Headers", () => {
  const { secrets, headers, body, now } = vectors.signatures[0];
  for (const given of [headers, new Headers(headers)]) {
    const event = new Webhooks(secrets).verify(given, Buffer.from(body), now);
    assert.deepEqual([event.id, event.type, event.data.status], ["evt_01", "message.delivered", "delivered"]);
  }
  const signed = vectors.signatures[1];
  assert.throws(() => new Webhooks(signed.secrets).verify(signed.headers, signed.body, signed.now), WebhookError);
  for (const secrets of [[], "", "whsec_", "whsec_***"]) assert.throws(() => new Webhooks(secrets), TypeError);
});

test("retries wait as long as they should", () => {
  const { tries_max, give_up_after } = vectors.retry_policy;
  assert.deepEqual(POLICY, { triesMax: tries_max, timeout: POLICY.timeout, giveUpAfter: give_up_after });
  for (const one of vectors.retries) {
    const failure = { status: one.status, retryable: one.retryable, retryAfter: one.retry_after };
    assert.equal(waitAfter(POLICY, one.attempt, one.elapsed, failure, one.random), one.wait, JSON.stringify(one));
  }
});

test("headers about waiting are read", () => {
  for (const { header, now, seconds } of vectors.retry_after) assert.equal(readRetryAfter(header, now), seconds, header);
  for (const { header, pause } of vectors.pacing) assert.equal(readPause(header), pause, header);
});

test("recipients are split under derived keys, and costs are added", () => {
  for (const { key, index, derived } of vectors.chunk_keys) assert.equal(chunkKey(key, index), derived);
  for (const { to, size, chunks: expected } of vectors.chunks) assert.deepEqual(chunks(to, size), expected);
  for (const { amounts, total } of vectors.sums) assert.equal(addMoney(amounts), total);
});

test("passcodes are hashed and checked", async () => {
  for (const { secret, phone, code, hash } of vectors.passcode_hashes) {
    assert.equal(new Passcodes(new MemoryCodeStore(), { secret }).hash(phone, code), hash);
  }
  const { secret, country, tries_max: triesMax } = vectors.passcode_rules;
  for (const { name, steps } of vectors.passcodes) {
    const store = new MemoryCodeStore();
    let now = 0;
    const codes = new Passcodes(store, { secret, country, triesMax, clock: () => now });
    for (const step of steps) {
      if (step.put) {
        store.put(step.put, { hash: step.hash, expires_at: step.expires_at, tries: step.tries });
      } else {
        now = step.at;
        assert.equal(await codes.check(step.check, step.typed), step.ok, `${name}: ${step.typed}`);
      }
    }
  }
});

test("a code that was made is right once, and is not what is stored", async () => {
  const store = new MemoryCodeStore();
  const put = store.put.bind(store);
  let stored;
  store.put = (phone, code) => {
    stored = [phone, code];
    put(phone, code);
  };
  const codes = new Passcodes(store, { secret: "a long random text", country: "ZW", clock: () => 1000.5 });
  const code = await codes.make("077 120 0001");
  assert.match(code, /^[0-9]{6}$/);
  assert.deepEqual(stored, [
    "+263771200001",
    { hash: codes.hash("+263771200001", code), expires_at: 1600, tries: 0 },
  ]);
  const checks = await Promise.all([1, 2, 3].map(() => codes.check("+263771200001", code)));
  assert.deepEqual(checks.sort(), [false, false, true]);
  assert.throws(() => new Passcodes(store, { secret: "short" }), TypeError);
});
