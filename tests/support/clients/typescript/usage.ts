// Every method as a TypeScript program calls it; what must not compile is expected not to.

import {
  ApiError,
  type CodeStore,
  e164,
  InsufficientBalanceError,
  MemoryCodeStore,
  NoAnswerError,
  Passcodes,
  SendInterruptedError,
  type Sent,
  Tumira,
  WebhookError,
  Webhooks,
} from "tumira-client";

export async function use(store: CodeStore = new MemoryCodeStore()): Promise<string[]> {
  const tumira = new Tumira({ url: "https://sms.example.com", apiKey: "tmr_1", country: "ZW", giveUpAfter: 20 });
  try {
    const sent: Sent = await tumira.send("0771200001", "Your order is ready.", { idempotencyKey: "order-1" });
    const many = await tumira.sendMany(["0771200001"], "Your order is ready.", { reference: "a" });
    const price = await tumira.price(["0771200001"], "Your order is ready.");
    const batch = await tumira.batch(sent.batch_id);
    const seen = batch.messages.map((message) => message.failure_reason ?? message.status);
    const { balance } = await tumira.balance();
    const active = (await tumira.prices()).filter((one) => one.status === "active");
    return [many.total_cost, price.total_cost, balance, ...seen, ...active.map((one) => one.price_usd)];
  } catch (error) {
    if (error instanceof SendInterruptedError) return error.batches.map((one) => one.batch_id);
    if (error instanceof InsufficientBalanceError) return [error.details[0]?.shortfall ?? ""];
    if (error instanceof NoAnswerError) return [error.idempotencyKey ?? ""];
    if (error instanceof ApiError) return [error.code, error.requestId];
    throw error;
  }
}

export async function others(headers: Record<string, string>, body: Uint8Array): Promise<boolean> {
  const codes = new Passcodes(new MemoryCodeStore(), { secret: "a long random text" });
  const code: string = await codes.make(e164("0771200001", "ZW"));
  try {
    const event = new Webhooks(["whsec_AAAA", "whsec_AAAB"], { tolerance: 60 }).verify(headers, body);
    return event.type === "message.delivered" && (await codes.check("+263771200001", code));
  } catch (error) {
    return error instanceof WebhookError;
  }
}

// @ts-expect-error A country that is not served.
e164("0771200001", "XX");
// @ts-expect-error A misspelt option.
new Tumira({ uri: "https://sms.example.com" });
// @ts-expect-error A number is a text.
new Tumira().send(771200001, "Your order is ready.");
// @ts-expect-error Codes need a secret.
new Passcodes(new MemoryCodeStore(), {});
