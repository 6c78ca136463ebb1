import { createHmac, timingSafeEqual } from "node:crypto";

// `body` is the request's body as a Buffer, before parsing.
export function isGenuine(headers, body) {
  const sentAt = headers["webhook-timestamp"];
  if (!(Math.abs(Date.now() / 1000 - Number(sentAt)) <= 300)) return false;
  const key = Buffer.from(process.env.WEBHOOK_SECRET.replace("whsec_", ""), "base64");
  const digest = createHmac("sha256", key).update(`${headers["webhook-id"]}.${sentAt}.`).update(body).digest("base64");
  const expected = Buffer.from(`v1,${digest}`);
  return headers["webhook-signature"].split(" ").some((one) => {
    const signature = Buffer.from(one);
    return signature.length === expected.length && timingSafeEqual(signature, expected);
  });
}
