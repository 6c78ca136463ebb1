/** Send text messages with Tumira. Money is a string with four decimals; times are ISO 8601 in UTC. */

export * from "./codes.js";

export const VERSION: string;

/** The country of local numbers. */
export type Country = "ZW" | "ZA";

export interface TumiraOptions {
  /** Where your service is, such as `https://sms.example.com`; the variable `TUMIRA_URL` unless given. */
  url?: string;
  /** The variable `TUMIRA_API_KEY` unless given. */
  apiKey?: string;
  /** Completes local numbers: with `ZW`, `0771200001` is `+263771200001`. */
  country?: Country;
  /** Tries of one call, 6 unless given. */
  triesMax?: number;
  /** Seconds for one try, 30 unless given. */
  timeout?: number;
  /** Seconds for all tries of one call, 120 unless given. */
  giveUpAfter?: number;
}

export interface SendOptions {
  /** Your label, at most 64 characters. */
  reference?: string;
  /** With a key of your own the same call is sent and billed once within 72 hours; otherwise each call is new. */
  idempotencyKey?: string;
}

export interface Rejected {
  to: string;
  code: string;
}

/** A batch that was accepted: it is stored and paid. */
export interface Sent {
  batch_id: string;
  accepted: number;
  rejected: Rejected[];
  segments: number;
  total_cost: string;
  currency: string;
  balance_after: string;
  idempotency_key: string;
  /** True if the service had accepted this call before. */
  replayed: boolean;
}

export interface SentMany {
  idempotency_key: string;
  batches: Sent[];
  accepted: number;
  rejected: Rejected[];
  total_cost: string;
}

export interface Price {
  dry_run: true;
  accepted: number;
  rejected: Rejected[];
  segments: number;
  total_cost: string;
  currency: string;
}

export interface Message {
  message_id: string;
  to: string;
  country: string;
  status: "queued" | "sending" | "sent" | "delivered" | "undelivered" | "expired" | "unconfirmed" | "failed";
  segments: number;
  cost: string;
  sent_at: string | null;
  delivered_at: string | null;
  failure_reason?: string;
  refunded_at?: string;
}

export interface Batch {
  batch_id: string;
  status: "queued" | "processing" | "completed";
  channel: string;
  reference: string | null;
  recipients: number;
  segments: number;
  total_cost: string;
  refunded: string;
  currency: string;
  created_at: string;
  messages: Message[];
}

export interface Balance {
  balance: string;
  currency: string;
}

/** The price of a segment to one country; `coming_soon` is announced and not yet charged. */
export interface SegmentPrice {
  channel: string;
  country: string;
  price_usd: string;
  status: "active" | "coming_soon";
}

/**
 * Sends messages and looks them up. All calls wait while the account has no calls left, and are repeated
 * without being billed twice.
 */
export class Tumira {
  constructor(options?: TumiraOptions);
  /** Sends a text to up to 1,000 recipients. */
  send(to: string | string[], body: string, options?: SendOptions): Promise<Sent>;
  /** Sends a text to any number of recipients; after a `SendInterruptedError` repeat it with the key that it holds. */
  sendMany(to: string[], body: string, options?: SendOptions): Promise<SentMany>;
  /** Returns what a send to any number of recipients would cost. */
  price(to: string | string[], body: string): Promise<Price>;
  batch(id: string): Promise<Batch>;
  message(id: string): Promise<Message>;
  balance(): Promise<Balance>;
  prices(): Promise<SegmentPrice[]>;
}

/** Returns a number in international form, or throws `InvalidNumberError`. */
export function e164(text: string, country?: Country): string;

/** One fault, or figures about the refusal; `field` and the others are there where they apply. */
export interface ErrorDetail {
  code: string;
  message: string;
  field?: string;
  required?: string;
  available?: string;
  shortfall?: string;
  spent_today?: string;
  daily_limit?: string;
  recipients?: number;
  recipients_max?: number;
  segments?: number;
  segments_max?: number;
  encoding?: "GSM-7" | "UCS-2";
  ucs2_characters?: string[];
  category?: string;
  score?: number;
  reasons?: { words: string; start: number; end: number; category: string }[];
  drop?: string[];
}

/** Everything that the client throws about a call, a number or an event. */
export class TumiraError extends Error {}

/** A call that the service refused; each code has a class of its own, and an unknown code has this one. */
export class ApiError extends TumiraError {
  readonly code: string;
  readonly status: number;
  readonly retryable: boolean;
  readonly details: ErrorDetail[];
  readonly requestId: string;
  readonly retryAfter: number | null;
  readonly idempotencyKey: string | undefined;
}

/** No readable answer came in time: repeat a send with the same `idempotencyKey`; it is billed once. */
export class NoAnswerError extends TumiraError {
  readonly idempotencyKey: string | undefined;
}

/** A send to many stopped; the same call with the same `idempotencyKey` sends the rest and bills nothing twice. */
export class SendInterruptedError extends TumiraError {
  readonly idempotencyKey: string;
  readonly batches: Sent[];
}

export class InvalidNumberError extends TumiraError {}

/** An event that is not genuine or not recent; answer it with 400. */
export class WebhookError extends TumiraError {}

/** An event that Tumira sent; `id` is the same on every try. */
export interface WebhookEvent {
  id: string;
  type: string;
  timestamp: string;
  sequence: number;
  data: Record<string, unknown>;
}

type HeaderObject = Record<string, string | string[] | undefined>;

/** Verifies events with the secret of an endpoint, or with several while it is being changed. */
export class Webhooks {
  constructor(secrets: string | string[], options?: { tolerance?: number });
  /** Returns the event, or throws `WebhookError`; `body` is the request's body before parsing. */
  verify(headers: HeaderObject | Headers, body: Uint8Array | string, now?: number): WebhookEvent;
  /** Checks the signature and the time, and returns the event's id. */
  check(headers: HeaderObject | Headers, body: Uint8Array | string, now?: number): string;
}

/** What is stored of a code; `expires_at` is in seconds since 1970. */
export interface StoredCode {
  hash: string;
  expires_at: number;
  tries: number;
}

/** Where codes are stored, one for each phone: a table of your database. */
export interface CodeStore {
  /** Stores the code in place of an older one. */
  put(phone: string, code: StoredCode): void | Promise<void>;
  /** Adds one to `tries` and returns the code after that, in one atomic step. */
  countTry(phone: string): StoredCode | undefined | Promise<StoredCode | undefined>;
  /** Removes the code if it still has this hash, and tells whether it had. */
  remove(phone: string, hash: string): boolean | Promise<boolean>;
}

export class MemoryCodeStore implements CodeStore {
  put(phone: string, code: StoredCode): void;
  countTry(phone: string): StoredCode | undefined;
  remove(phone: string, hash: string): boolean;
}

export interface PasscodeOptions {
  /** A long random text that only your servers know. */
  secret: string;
  country?: Country;
  digits?: number;
  /** Seconds, 600 unless given. */
  lifetime?: number;
  triesMax?: number;
  clock?: () => number;
}

/** Passcodes in a store of your own. */
export class Passcodes {
  constructor(store: CodeStore, options: PasscodeOptions);
  /** Makes and stores a code for a phone, in place of an older one; send it, and never log it. */
  make(phone: string): Promise<string>;
  /** Tells whether this is the phone's code; it is right once. */
  check(phone: string, typed: string): Promise<boolean>;
  /** Returns what is stored of a code. */
  hash(phone: string, code: string): string;
}
