import { MemoryCodeStore, Passcodes, Tumira } from "tumira-client";

const tumira = new Tumira({ url: "http://127.0.0.1:8080" });
const store = new MemoryCodeStore(); // in production a class with three methods on a table of your database
const codes = new Passcodes(store, { secret: process.env.CODE_SECRET, country: "ZW" });

export async function sendCode(phone) {
  await tumira.send(phone, `Your code is ${await codes.make(phone)}. It is valid for 10 minutes.`);
}

export async function checkCode(phone, typed) {
  return codes.check(phone, typed);
}
