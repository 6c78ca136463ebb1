// What the client throws.

/** Everything that the client throws about a call, a number or an event. */
export class TumiraError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A call that the service refused; each code has a class of its own, and an unknown code has this one. */
export class ApiError extends TumiraError {
  constructor({ code, status, message, retryable, details, requestId, retryAfter, idempotencyKey }) {
    super(`${code}: ${message}`);
    Object.assign(this, { code, status, retryable, details, requestId, retryAfter, idempotencyKey });
  }
}

/** No readable answer came in time: repeat a send with the same `idempotencyKey`; it is billed once. */
export class NoAnswerError extends TumiraError {
  constructor(message, idempotencyKey, cause) {
    super(message, { cause });
    this.idempotencyKey = idempotencyKey;
  }
}

/** A send to many stopped; the same call with the same `idempotencyKey` sends the rest and bills nothing twice. */
export class SendInterruptedError extends TumiraError {
  constructor(idempotencyKey, batches, count, cause) {
    super(
      `${batches.length} of ${count} batches were sent; repeat the call with the idempotency key ` +
        `${idempotencyKey} to send the rest.`,
      { cause },
    );
    Object.assign(this, { idempotencyKey, batches });
  }
}

/** A text that is not a phone number, or a local number without a country. */
export class InvalidNumberError extends TumiraError {}

/** An event that is not genuine or not recent; answer it with 400. */
export class WebhookError extends TumiraError {}
