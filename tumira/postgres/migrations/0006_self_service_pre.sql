-- Files of messages, what somebody may set for their account, a second factor, and who changed what.

-- A file that somebody uploaded: checked, and after their word sent in chunks of at most 1,000, each a batch.
CREATE TABLE uploads (
    id           uuid PRIMARY KEY,
    account_id   uuid NOT NULL REFERENCES accounts (id),
    file_name    text NOT NULL,
    -- What its columns are called, for the download of the rows that cannot be sent.
    columns      text[] NOT NULL,
    message      text NOT NULL,
    reference    text,
    state        text NOT NULL DEFAULT 'checked' CHECK (state IN ('checked', 'sending', 'sent', 'stopped')),
    -- Why it was stopped before all of it was sent.
    problem      text,
    -- How many rows the file had, how many can be sent, and what they cost when they were checked.
    rows         integer NOT NULL CHECK (rows BETWEEN 0 AND 10000),
    recipients   integer NOT NULL CHECK (recipients BETWEEN 0 AND rows),
    total_cost   numeric(14, 4) NOT NULL CHECK (total_cost >= 0),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    confirmed_at timestamptz,
    finished_at  timestamptz
);
CREATE INDEX uploads_of_account ON uploads (account_id, id);
CREATE INDEX uploads_sending ON uploads (id) WHERE state = 'sending';
CREATE INDEX uploads_by_age ON uploads (created_at);

-- The rows that can be sent. A chunk has a batch once it was sent, and never another one.
CREATE TABLE upload_chunks (
    upload_id  uuid NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    number     smallint NOT NULL,
    -- Where each recipient stands in the file.
    lines      integer[] NOT NULL,
    recipients text[] NOT NULL CHECK (cardinality(recipients) BETWEEN 1 AND 1000),
    -- Each recipient's own text where the message has places; NULL where all get the same.
    bodies     text[],
    cost       numeric(14, 4) NOT NULL CHECK (cost >= 0),
    batch_id   uuid UNIQUE,
    PRIMARY KEY (upload_id, number)
);

-- The rows that cannot be sent, for the page and the download.
CREATE TABLE upload_faults (
    upload_id  uuid NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    line       integer NOT NULL,
    cells      text[] NOT NULL,
    code       text NOT NULL,
    reason     text NOT NULL,
    suggestion text,
    PRIMARY KEY (upload_id, line)
);

-- The most that one call may cost, by the account's own wish; and whether a low balance is mailed.
ALTER TABLE accounts ADD COLUMN call_limit numeric(14, 4) CHECK (call_limit >= 0);
ALTER TABLE accounts ADD COLUMN closed_at timestamptz;
ALTER TABLE logins ADD COLUMN low_balance_mail boolean NOT NULL DEFAULT true;

-- The second factor: a secret that the owner's device has too. Kept as it is, because codes are made from it; no
-- step of time is taken twice.
ALTER TABLE logins ADD COLUMN totp_secret bytea CHECK (length(totp_secret) = 20);
ALTER TABLE logins ADD COLUMN totp_since timestamptz;
ALTER TABLE logins ADD COLUMN totp_last_step bigint NOT NULL DEFAULT 0;
CREATE TABLE recovery_codes (
    account_id uuid NOT NULL REFERENCES accounts (id),
    sha256     bytea NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (account_id, sha256)
);
-- Somebody whose password was right and whose second factor is awaited.
CREATE TABLE half_sessions (
    token_sha256 bytea PRIMARY KEY CHECK (length(token_sha256) = 32),
    account_id   uuid NOT NULL REFERENCES accounts (id),
    -- The new password of somebody who forgot theirs; it is set only after the second factor.
    password_hash text,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A refused text whose owner asks the operator to look at it.
ALTER TABLE content_refusals ADD COLUMN review_asked_at timestamptz;
ALTER TABLE content_refusals ADD COLUMN review_note text;

-- Who changed keys, endpoints, settings; written with the change, never changed itself.
CREATE TABLE changes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts (id),
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- `owner`, or the operator's system user.
    actor      text NOT NULL,
    address    text,
    what       text NOT NULL,
    detail     text NOT NULL DEFAULT ''
);
CREATE INDEX changes_of_account ON changes (account_id, id);

-- What an account's transfers add up to, at some of them: the ledger is read from the nearest one on.
CREATE TABLE ledger_marks (
    account_id  uuid NOT NULL REFERENCES accounts (id),
    transfer_id bigint NOT NULL,
    balance     numeric(14, 4) NOT NULL,
    PRIMARY KEY (account_id, transfer_id)
);
-- How far each account's transfers were added up again from the first one on, and when that last came to its
-- balance: to the end, and with every mark on the way.
CREATE TABLE ledger_proofs (
    account_id     uuid PRIMARY KEY REFERENCES accounts (id),
    due_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    transfer_id    bigint NOT NULL DEFAULT 0,
    entries        bigint NOT NULL DEFAULT 0,
    total          numeric(14, 4) NOT NULL DEFAULT 0,
    proved_at      timestamptz,
    proved_entries bigint,
    broken_at      timestamptz
) WITH (fillfactor = 50);
CREATE INDEX ledger_proofs_due ON ledger_proofs (due_at);
-- Few transfers are neither a debit nor a refund; they are found among the others by this.
CREATE INDEX transfers_without_batch ON transfers (account_id, id) WHERE batch_id IS NULL;
