import { Tumira } from "tumira-client";

const tumira = new Tumira({ url: "http://127.0.0.1:8080", country: "ZW" }); // The key is in TUMIRA_API_KEY.
const sent = await tumira.send("0771200001", "Your order 1042 is ready.", { idempotencyKey: "order-1042-ready" });
console.log(sent.batch_id, sent.total_cost);
