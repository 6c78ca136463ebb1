-- Who signs in, how a number is proved, what is mailed; and what the pages count and search by.

-- The gateway's own account: it sends the codes, and nobody pays for them. Nobody can sign in with such a phone.
INSERT INTO accounts (id, phone, name, business, low_balance)
VALUES ('00000000-0000-7000-8000-000000000000', 'system', 'Tumira', 'Tumira', 0);

-- Beside the account, whose row every call rewrites. An account made by the operator has none until its owner
-- chooses a password.
CREATE TABLE logins (
    account_id    uuid PRIMARY KEY REFERENCES accounts (id),
    email         text,
    password_hash text NOT NULL,
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Somebody at a browser who says that a number is theirs, to open an account or to choose a new password.
CREATE TABLE verifications (
    id            uuid PRIMARY KEY,
    token_sha256  bytea NOT NULL UNIQUE CHECK (length(token_sha256) = 32),
    purpose       text NOT NULL CHECK (purpose IN ('sign_up', 'reset')),
    phone         text NOT NULL,
    -- What the account will be made of, once the number is proved.
    name          text,
    business      text,
    email         text,
    password_hash text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at       timestamptz,
    CONSTRAINT a_sign_up_says_for_whom CHECK (
        (purpose = 'sign_up') = (name IS NOT NULL AND business IS NOT NULL AND password_hash IS NOT NULL)
    )
);
CREATE INDEX verifications_of_phone ON verifications (phone, created_at);
CREATE INDEX verifications_by_age ON verifications (created_at);

CREATE TABLE codes (
    id              uuid PRIMARY KEY,
    verification_id uuid NOT NULL REFERENCES verifications (id) ON DELETE CASCADE,
    phone           text NOT NULL,
    address         text NOT NULL,
    -- NULL where no code was sent: whoever asks cannot tell, and it counts against the limits all the same.
    code_hash       text,
    sent_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries           smallint NOT NULL DEFAULT 0 CHECK (tries BETWEEN 0 AND 5)
);
CREATE INDEX codes_of_verification ON codes (verification_id, sent_at);
CREATE INDEX codes_of_phone ON codes (phone, sent_at);
CREATE INDEX codes_of_address ON codes (address, sent_at);
CREATE INDEX codes_by_age ON codes (sent_at);

-- Passwords and codes that were tried in vain, or are being tried now.
CREATE TABLE attempts (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    phone   text NOT NULL,
    address text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX attempts_of_phone ON attempts (phone, at);
CREATE INDEX attempts_of_address ON attempts (address, at);
CREATE INDEX attempts_by_age ON attempts (at);

CREATE TABLE sessions (
    id           uuid PRIMARY KEY,
    token_sha256 bytea NOT NULL UNIQUE CHECK (length(token_sha256) = 32),
    account_id   uuid NOT NULL REFERENCES accounts (id),
    address      text NOT NULL,
    browser      text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE INDEX sessions_of_account ON sessions (account_id, id);
CREATE INDEX sessions_by_age ON sessions (created_at);

-- Mails that wait to be sent; a row goes when its mail has gone, or is too old to be of use.
CREATE TABLE mails (
    id         uuid PRIMARY KEY,
    recipient  text NOT NULL,
    subject    text NOT NULL,
    body       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    due_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries      smallint NOT NULL DEFAULT 0
);
CREATE INDEX mails_due ON mails (due_at);

-- How an account's messages of a day ended, counted as they end; the day is that of the two countries, UTC+02:00.
CREATE TABLE traffic (
    account_id  uuid NOT NULL,
    day         date NOT NULL,
    country     text NOT NULL,
    delivered   bigint NOT NULL DEFAULT 0,
    undelivered bigint NOT NULL DEFAULT 0,
    expired     bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    unconfirmed bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, day, country)
) WITH (fillfactor = 50);
INSERT INTO traffic (account_id, day, country, delivered, undelivered, expired, failed, unconfirmed)
SELECT m.account_id, (b.created_at AT TIME ZONE 'UTC' + interval '2 hours')::date, m.country,
       count(*) FILTER (WHERE m.status = 'delivered'), count(*) FILTER (WHERE m.status = 'undelivered'),
       count(*) FILTER (WHERE m.status = 'expired'), count(*) FILTER (WHERE m.status = 'failed'),
       count(*) FILTER (WHERE m.status = 'unconfirmed')
  FROM messages m
  JOIN batches b ON b.id = m.batch_id
 WHERE m.status IN ('delivered', 'undelivered', 'expired', 'failed', 'unconfirmed')
 GROUP BY 1, 2, 3;

-- Where pages look batches up: those with something to wait for, those that got money back, by the customer's own
-- label, and by whom a message was for (that first, so that nobody takes this index who looks for anything else).
CREATE INDEX batches_open_of_account ON batches (account_id, id) WHERE completed_at IS NULL;
CREATE INDEX batches_refunded ON batches (account_id, id) WHERE refunded > 0;
CREATE INDEX batches_by_reference ON batches (account_id, reference, id) WHERE reference IS NOT NULL;
CREATE INDEX messages_by_recipient ON messages (recipient, account_id, id);
