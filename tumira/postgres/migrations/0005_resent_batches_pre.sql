-- The batch that was sent again to the failed recipients of another one, by the Idempotency-Key that was made from
-- that one. It is kept longer than the key, so that nobody sends and pays for it a second time.
CREATE TABLE resent_batches (
    account_id uuid NOT NULL REFERENCES accounts (id),
    key        text NOT NULL,
    batch_id   uuid NOT NULL,
    sent_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account_id, key)
);
CREATE INDEX resent_batches_by_age ON resent_batches (sent_at);

-- Written with the key, in the transaction that debits the batch. All other keys fail the WHEN.
CREATE FUNCTION batch_resent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO resent_batches (account_id, key, batch_id)
    VALUES (NEW.account_id, NEW.key, NEW.batch_id)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER batch_resent AFTER INSERT ON idempotency_keys
    FOR EACH ROW WHEN (NEW.key LIKE 'dashboard:resend:%') EXECUTE FUNCTION batch_resent();
INSERT INTO resent_batches (account_id, key, batch_id, sent_at)
SELECT account_id, key, batch_id, created_at
  FROM idempotency_keys
 WHERE key LIKE 'dashboard:resend:%'
ON CONFLICT DO NOTHING;
