const message = { channel: "sms", to: "+263771200001", body: "Your order 1042 is ready." };
const response = await fetch("http://127.0.0.1:8080/api/v1/messages", {
  method: "POST",
  headers: {
    Authorization: `Bearer ${process.env.TUMIRA_API_KEY}`,
    "Content-Type": "application/json",
    "Idempotency-Key": "order-1042-ready",
  },
  body: JSON.stringify(message),
  signal: AbortSignal.timeout(30_000),
});
const answer = await response.json();
console.log(response.ok ? answer.batch_id : answer.error.message);
