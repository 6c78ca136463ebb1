import { createHmac, randomBytes, randomInt, timingSafeEqual } from "node:crypto";

const codes = new Map(); // by phone number; in production a table of your database

export async function sendCode(phone) {
  const code = String(randomInt(1_000_000)).padStart(6, "0");
  codes.set(phone, { hash: hash(phone, code), expires: Date.now() + 600_000, tries: 0 });
  await send(phone, `Your code is ${code}. It is valid for 10 minutes.`, randomBytes(16).toString("hex"));
}

export function checkCode(phone, typed) {
  const entry = codes.get(phone);
  if (!entry || Date.now() > entry.expires || entry.tries >= 5) return false;
  entry.tries += 1;
  if (!timingSafeEqual(entry.hash, hash(phone, typed))) return false;
  codes.delete(phone); // A code is valid once.
  return true;
}

function hash(phone, code) {
  return createHmac("sha256", process.env.CODE_SECRET).update(`${phone} ${code}`).digest();
}

async function send(phone, text, idempotencyKey) {
  for (const wait of [1_000, 3_000, 0]) {
    const response = await fetch("http://127.0.0.1:8080/api/v1/messages", {
      method: "POST",
      headers: {
        Authorization: `Bearer ${process.env.TUMIRA_API_KEY}`,
        "Content-Type": "application/json",
        "Idempotency-Key": idempotencyKey, // The same on every try: sent and billed once.
      },
      body: JSON.stringify({ channel: "sms", to: phone, body: text }),
      signal: AbortSignal.timeout(10_000),
    }).catch(() => null); // No answer.
    if (response?.ok) return;
    if (response && response.status < 500) break;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
  throw new Error("The code was not sent.");
}
