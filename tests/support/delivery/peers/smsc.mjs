// What does an SMSC do that we did not write? All of SMPP here is the npm package `smpp`.
//
// The first line of standard input is its configuration as JSON; further lines are repeated on standard output,
// so that whoever reads it knows that nothing older is under way. It ends when standard input does. What it gets
// and what becomes of it goes to standard output, one JSON object a line, the port that it listens on first.
//
// The configuration is a list of rules. Of each submit_sm the first rule that matches says what is done, over
// DEFAULTS. One of them may name the alphabet of data_coding 0 for all of them, as the package names it; the
// package calls GSM-7 ASCII. A rule matches by
//   to        the destination, in digits
// and says
//   answer_id, receipt_id   how the id is spelt: decimal, hex, HEX, padded, hex_padded
//   receipts  what comes back, see `deliver`

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The package lies in the folder that this is run in, not beside this file.
const smpp = createRequire(`${process.cwd()}/`)("smpp");

const SYSTEM_ID = "foreign";
const RECEIPT = {
  text: "id:{id} sub:001 dlvrd:001 submit date:2611151200 done date:2611151201 stat:DELIVRD err:000 text:Your code",
};
const DEFAULTS = { answer_id: "decimal", receipt_id: "decimal", receipts: [RECEIPT] };
const IDS_FIRST = 2_900_000_001;

const SPELLINGS = {
  decimal: (id) => String(id),
  hex: (id) => id.toString(16),
  HEX: (id) => id.toString(16).toUpperCase(),
  padded: (id) => String(id).padStart(14, "0"),
  hex_padded: (id) => id.toString(16).padStart(12, "0"),
};

// The package keeps no PDU as it came; these octets are what the tests read for themselves.
const readPdu = smpp.PDU.prototype.fromBuffer;
smpp.PDU.prototype.fromBuffer = function (buffer) {
  Object.defineProperty(this, "octets", { value: Buffer.from(buffer), enumerable: false });
  return readPdu.call(this, buffer);
};

let rules = [];
let lastId = IDS_FIRST - 1;
const sessions = new Set();
// Receipts that nobody has acknowledged and that have no line now.
const kept = [];

function tell(event, fields) {
  process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);
}

function segmentOf(pdu) {
  const join = (pdu.short_message.udh ?? []).find((element) => element[0] === 0);
  return join ? join[4] : 1;
}

function takeSubmit(session, pdu) {
  const to = pdu.destination_addr;
  const rule = { ...DEFAULTS, ...rules.find((one) => one.to === to) };
  const id = ++lastId;
  tell("submit", {
    to,
    segment: segmentOf(pdu),
    id,
    pdu: pdu.octets.toString("hex"),
    text: pdu.short_message.message,
    from: pdu.source_addr,
    source: [pdu.source_addr_ton, pdu.source_addr_npi],
    destination: [pdu.dest_addr_ton, pdu.dest_addr_npi],
    esm_class: pdu.esm_class,
    data_coding: pdu.data_coding,
    registered_delivery: pdu.registered_delivery,
  });
  const give = (receipt) => deliver(session, receipt, pdu, SPELLINGS[rule.receipt_id](id));
  for (const receipt of rule.receipts) if (receipt.before) give(receipt);
  session.send(pdu.response({ message_id: SPELLINGS[rule.answer_id](id) }));
  for (const receipt of rule.receipts) if (!receipt.before) give(receipt);
}

// A receipt says
//   text      its text, with {id} where the id stands; null for none
//   before    whether it comes before the answer
//   copies    how often it comes
//   ucs2      whether the text is in UCS-2
//   payload   whether the text stands in message_payload
//   nul       whether a NUL follows it
//   esm_class 4 unless told
//   state     the message_state, which brings the id along as receipted_message_id
//   delay_ms  how long it takes
function deliver(session, given, pdu, id) {
  const form = { ...RECEIPT, copies: 1, esm_class: 4, delay_ms: 0, ...given };
  const text = form.text === null ? "" : form.text.replace("{id}", id) + (form.nul ? "\0" : "");
  const octets = Buffer.from(text, form.ucs2 ? "utf16le" : "latin1");
  if (form.ucs2) octets.swap16();
  const receipt = {
    source_addr: pdu.destination_addr,
    source_addr_ton: 1,
    source_addr_npi: 1,
    destination_addr: pdu.source_addr,
    esm_class: form.esm_class,
    data_coding: form.ucs2 ? 8 : 0,
    short_message: form.payload ? Buffer.alloc(0) : octets,
  };
  if (form.payload) receipt.message_payload = octets;
  if (form.state !== undefined) {
    receipt.message_state = form.state;
    receipt.receipted_message_id = id;
  }
  const go = () => {
    for (let copy = 0; copy < form.copies; copy += 1) push(session, receipt);
  };
  if (form.delay_ms) setTimeout(go, form.delay_ms);
  else go();
}

function push(session, receipt) {
  const line = sessions.has(session) ? session : [...sessions][0];
  if (!line) {
    kept.push(receipt);
    return;
  }
  line.unacknowledged.add(receipt);
  // The package writes into what it is given, so it is given a copy.
  line.deliver_sm({ ...receipt }, (response) => {
    line.unacknowledged.delete(receipt);
    tell("acknowledged", { status: response.command_status });
  });
}

const server = smpp.createServer((session) => {
  session.unacknowledged = new Set();
  session.on("bind_transceiver", (pdu) => {
    session.send(pdu.response({ system_id: SYSTEM_ID }));
    sessions.add(session);
    for (const receipt of kept.splice(0)) push(session, receipt);
  });
  session.on("submit_sm", (pdu) => takeSubmit(session, pdu));
  session.on("enquire_link", (pdu) => session.send(pdu.response()));
  session.on("unbind", (pdu) => {
    sessions.delete(session);
    session.send(pdu.response());
    session.close();
  });
  session.on("error", () => session.destroy());
  session.on("close", () => {
    sessions.delete(session);
    const again = [...session.unacknowledged];
    session.unacknowledged.clear();
    for (const receipt of again) push(session, receipt);
  });
});

const input = createInterface({ input: process.stdin });
input.once("line", (configuration) => {
  rules = JSON.parse(configuration);
  smpp.encodings.default = rules.find((one) => one.alphabet)?.alphabet ?? "ASCII";
  input.on("line", (words) => tell("echo", { words }));
  server.listen(0, "127.0.0.1", () => tell("listening", { port: server.address().port }));
});
input.once("close", () => process.exit(0));
