// Receives webhooks of Tumira. WEBHOOK_SECRET=whsec_… node receiver.mjs (Node.js 18 or later, no packages)
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const SECRET = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const PORT = Number(process.env.PORT ?? 8000);
const TOLERANCE_S = 5 * 60;
const BODY_MAX = 64 * 1024;

function isGenuine(id, timestamp, signatures, body) {
  if (!/^[0-9]{1,12}$/.test(timestamp) || Math.abs(Date.now() / 1000 - timestamp) > TOLERANCE_S) return false;
  const digest = createHmac("sha256", SECRET).update(`${id}.${timestamp}.`).update(body).digest("base64");
  const expected = Buffer.from(`v1,${digest}`);
  // While a secret is being changed there are two signatures; one match is enough.
  return signatures.split(" ").some((signature) => {
    const given = Buffer.from(signature);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

// Use a table of your database instead, with the id as its primary key: this forgets when it stops.
const events = new Map();

// Writes an event down, to be worked on later; false if we have it already.
function keep(id, body) {
  if (events.has(id)) return false;
  events.set(id, body);
  return true;
}

async function read(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > BODY_MAX) break;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function receive(request, response) {
  const body = await read(request);
  const { "webhook-id": id = "", "webhook-timestamp": timestamp = "", "webhook-signature": signatures = "" } =
    request.headers;
  const genuine = isGenuine(id, timestamp, signatures, body);
  if (genuine && keep(id, body)) console.log("new", id, JSON.parse(body).type);
  response.writeHead(genuine ? 204 : 400).end();
}

createServer((request, response) => {
  // A caller that went away must not end the program.
  receive(request, response).catch(() => response.destroy());
}).listen(PORT, "127.0.0.1");
