-- Whether an owner gets notices by text message: a low balance, a failing webhook endpoint, a large refund.
ALTER TABLE logins ADD COLUMN notice_texts boolean NOT NULL DEFAULT true;
