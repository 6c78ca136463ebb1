-- Accounts, keys, the tariff, the ledger, batches and messages, and the queue in front of the carriers.

CREATE TABLE accounts (
    id          uuid PRIMARY KEY,
    phone       text NOT NULL UNIQUE,
    name        text NOT NULL,
    business    text NOT NULL,
    balance     numeric(14, 4) NOT NULL DEFAULT 0 CHECK (balance >= 0),
    -- The rolling window of the last 60 seconds; accounts/rate_limit.py says how its entries are read.
    rate_limit  integer NOT NULL DEFAULT 60 CHECK (rate_limit > 0),
    call_times  bigint[] NOT NULL DEFAULT '{}',
    call_counts integer[] NOT NULL DEFAULT '{}',
    -- The account's own cap per day, and what it has spent on the day it last sent.
    daily_limit numeric(14, 4) CHECK (daily_limit >= 0),
    spent_on    date,
    spent_today numeric(14, 4) NOT NULL DEFAULT 0,
    weight      integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    suspended_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now()
)
-- Every call rewrites its account's row: room beside it keeps the update inside the page, and a full
-- window of 600 calls stays in the row instead of moving to a side table.
WITH (fillfactor = 50, toast_tuple_target = 8160);

CREATE TABLE api_keys (
    id            uuid PRIMARY KEY,
    account_id    uuid NOT NULL REFERENCES accounts (id),
    name          text NOT NULL,
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    scopes        text[] NOT NULL CHECK (
        scopes <> '{}' AND scopes <@ ARRAY['messages:send', 'messages:read', 'account:read']
    ),
    created_at    timestamptz NOT NULL DEFAULT now(),
    last_used_at  timestamptz,
    revoked_at    timestamptz
);
CREATE INDEX api_keys_of_account ON api_keys (account_id, id);

CREATE TABLE destinations (
    country          text PRIMARY KEY CHECK (country ~ '^[A-Z]{2}$'),
    calling_code     text NOT NULL CHECK (calling_code ~ '^[1-9][0-9]{0,3}$'),
    name             text NOT NULL,
    national_lengths smallint[] NOT NULL CHECK (national_lengths <> '{}'),
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE prices (
    channel    text NOT NULL CHECK (channel = 'sms'),
    country    text NOT NULL REFERENCES destinations (country),
    status     text NOT NULL CHECK (status IN ('active', 'coming_soon')),
    price_usd  numeric(14, 4) NOT NULL CHECK (price_usd >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, country, status)
);

-- Every process keeps the tariff in memory and reads this number with each group of calls:
-- a new country works from the next call, without a restart and without reading the tables each time.
CREATE TABLE tariff (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  bigint NOT NULL
);
INSERT INTO tariff (version) VALUES (1);

CREATE FUNCTION tariff_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tariff SET version = version + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER destinations_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON destinations
    FOR EACH STATEMENT EXECUTE FUNCTION tariff_changed();
CREATE TRIGGER prices_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON prices
    FOR EACH STATEMENT EXECUTE FUNCTION tariff_changed();

INSERT INTO destinations (country, calling_code, name, national_lengths) VALUES
    ('ZW', '263', 'Zimbabwe', '{9}'),
    ('ZA', '27', 'South Africa', '{9}');
INSERT INTO prices (channel, country, status, price_usd) VALUES
    ('sms', 'ZW', 'active', 0.0400),
    ('sms', 'ZA', 'active', 0.0200),
    ('sms', 'ZW', 'coming_soon', 0.0190);

-- Money moves between books in rows that are never changed. The balance beside the account is their sum.
CREATE TABLE transfers (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts (id),
    from_book  text NOT NULL,
    to_book    text NOT NULL,
    amount     numeric(14, 4) NOT NULL CHECK (amount > 0),
    batch_id   uuid,
    message_id uuid,
    note       text,
    actor      text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_side_is_the_customer CHECK ((from_book = 'customer') <> (to_book = 'customer')),
    CONSTRAINT a_debit_names_its_batch CHECK (
        (from_book = 'customer' AND to_book = 'revenue') = (batch_id IS NOT NULL AND message_id IS NULL)
    ),
    CONSTRAINT a_refund_names_its_message CHECK (
        (from_book = 'revenue') = (batch_id IS NOT NULL AND message_id IS NOT NULL)
    ),
    CONSTRAINT an_adjustment_says_why_and_who CHECK (
        'adjustment' NOT IN (from_book, to_book) OR (note IS NOT NULL AND actor IS NOT NULL)
    )
);
CREATE INDEX transfers_of_account ON transfers (account_id, id);
CREATE UNIQUE INDEX transfers_one_debit_per_batch ON transfers (batch_id) WHERE message_id IS NULL;
CREATE UNIQUE INDEX transfers_one_refund_per_message ON transfers (message_id) WHERE message_id IS NOT NULL;

CREATE FUNCTION transfers_are_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a transfer is never changed; write another one that corrects it';
END $$;
CREATE TRIGGER transfers_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON transfers
    FOR EACH STATEMENT EXECUTE FUNCTION transfers_are_final();

-- Batches and messages are cut into weeks by their time-ordered ids (postgres/partitions.py makes the
-- weeks). No foreign key points at them: it would stand in the way of dropping an old week.
CREATE TABLE batches (
    id           uuid PRIMARY KEY,
    account_id   uuid NOT NULL,
    created_at   timestamptz NOT NULL,
    completed_at timestamptz,
    recipients   integer NOT NULL CHECK (recipients >= 0),
    pending      integer NOT NULL CHECK (pending BETWEEN 0 AND recipients),
    segments     smallint NOT NULL CHECK (segments BETWEEN 1 AND 5),
    total_cost   numeric(14, 4) NOT NULL CHECK (total_cost >= 0),
    refunded     numeric(14, 4) NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND total_cost),
    status       text NOT NULL CHECK (status IN ('queued', 'processing', 'completed')),
    channel      text NOT NULL,
    reference    text,
    body         text
) PARTITION BY RANGE (id);
CREATE INDEX batches_of_account ON batches (account_id, id);

CREATE TABLE messages (
    id             uuid PRIMARY KEY,
    batch_id       uuid NOT NULL,
    account_id     uuid NOT NULL,
    sent_at        timestamptz,
    delivered_at   timestamptz,
    refunded_at    timestamptz,
    segments       smallint NOT NULL CHECK (segments BETWEEN 1 AND 5),
    country        text NOT NULL,
    recipient      text NOT NULL,
    cost           numeric(14, 4) NOT NULL CHECK (cost >= 0),
    -- Stands in no index and no predicate, so that its many updates stay inside their page.
    status         text NOT NULL DEFAULT 'queued' CHECK (status IN (
        'queued', 'sending', 'sent', 'delivered', 'undelivered', 'expired', 'unconfirmed', 'failed'
    )),
    failure_reason text,
    body           text
) PARTITION BY RANGE (id);

-- What waits for a carrier, in the order in which it will be claimed.
CREATE TABLE queue (
    country    text NOT NULL,
    lane       smallint NOT NULL CHECK (lane IN (0, 1)),
    turn       bigint NOT NULL,
    message_id uuid NOT NULL,
    PRIMARY KEY (country, lane, turn, message_id)
);

-- What a worker has claimed and what waits for another try.
CREATE TABLE in_flight (
    message_id uuid PRIMARY KEY,
    worker     text NOT NULL,
    bind       text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE retries (
    message_id uuid PRIMARY KEY,
    due_at     timestamptz NOT NULL
);
CREATE INDEX retries_due ON retries (due_at);

-- Fair turns: virtual time per flow, and the highest turn claimed per country and lane.
CREATE TABLE flows (
    account_id uuid NOT NULL REFERENCES accounts (id),
    country    text NOT NULL,
    lane       smallint NOT NULL CHECK (lane IN (0, 1)),
    next_turn  bigint NOT NULL,
    PRIMARY KEY (account_id, country, lane)
) WITH (fillfactor = 50);
CREATE TABLE clocks (
    country text NOT NULL,
    lane    smallint NOT NULL CHECK (lane IN (0, 1)),
    turn    bigint NOT NULL,
    PRIMARY KEY (country, lane)
);

CREATE TABLE idempotency_keys (
    account_id  uuid NOT NULL REFERENCES accounts (id),
    key         text NOT NULL CHECK (length(key) BETWEEN 6 AND 64),
    fingerprint bytea NOT NULL CHECK (length(fingerprint) = 32),
    response    bytea NOT NULL,
    batch_id    uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account_id, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
