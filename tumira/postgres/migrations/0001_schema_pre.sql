-- The schema of Tumira 0.1.0, by subject.

-- --------------------------------------------------------------------------------------------------
-- Accounts, their API keys and limits.
-- --------------------------------------------------------------------------------------------------

CREATE TABLE accounts (
    id             uuid PRIMARY KEY,
    phone          text NOT NULL UNIQUE,
    name           text NOT NULL,
    business       text NOT NULL,
    balance        numeric(14, 4) NOT NULL DEFAULT 0 CHECK (balance >= 0),
    -- The rolling window of the last 60 seconds; accounts/rate_limit.py says how its entries are read.
    rate_limit     integer NOT NULL DEFAULT 60 CHECK (rate_limit > 0),
    call_times     bigint[] NOT NULL DEFAULT '{}',
    call_counts    integer[] NOT NULL DEFAULT '{}',
    -- The account's own cap per day, and what it has spent on the day it last sent.
    daily_limit    numeric(14, 4) CHECK (daily_limit >= 0),
    spent_on       date,
    spent_today    numeric(14, 4) NOT NULL DEFAULT 0,
    weight         integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    suspended_at   timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    -- A send that takes the balance below this notifies the customer.
    low_balance    numeric(14, 4) NOT NULL DEFAULT 1 CHECK (low_balance >= 0),
    -- Whether the operator may keep refused texts of the account, to review them.
    review_consent boolean NOT NULL DEFAULT false,
    -- The most that one call may cost, set by the account's owner.
    call_limit     numeric(14, 4) CHECK (call_limit >= 0),
    closed_at      timestamptz,
    -- The octets stored on the day `spent_on` by sends that cost nothing.
    unbilled_today bigint NOT NULL DEFAULT 0
)
-- Every call rewrites its account's row: room beside it keeps the update inside the page, and a full
-- window of 600 calls stays in the row instead of moving to a side table.
WITH (fillfactor = 50, toast_tuple_target = 8160);
-- The gateway's own account: it sends the codes, and nobody pays for them. Nobody can sign in with such a phone.
INSERT INTO accounts (id, phone, name, business, low_balance)
VALUES ('00000000-0000-7000-8000-000000000000', 'system', 'Tumira', 'Tumira', 0);

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

-- The words of account names, for the operators' search. Not an index of `accounts`, whose rows every call rewrites.
-- A search is cut into words in the same way.
CREATE TABLE account_words (
    account_id uuid NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    word       text COLLATE "C" NOT NULL,
    PRIMARY KEY (account_id, word)
);
CREATE UNIQUE INDEX account_words_by_word ON account_words (word, account_id);
CREATE FUNCTION words_of(given text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT DISTINCT left(lower(word), 40)
      FROM regexp_split_to_table(given, '[\s[:punct:]]+') AS word
     WHERE word <> ''
     LIMIT 100
$$;
CREATE FUNCTION account_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM account_words WHERE account_id = NEW.id;
    INSERT INTO account_words (account_id, word) SELECT NEW.id, words_of(NEW.name || ' ' || NEW.business);
    RETURN NULL;
END $$;
CREATE TRIGGER account_named AFTER INSERT OR UPDATE OF name, business ON accounts
    FOR EACH ROW EXECUTE FUNCTION account_named();

-- --------------------------------------------------------------------------------------------------
-- The tariff.
-- --------------------------------------------------------------------------------------------------

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

-- Prices that take effect later; a maintenance task puts them into force.
CREATE TABLE price_schedule (
    channel    text NOT NULL,
    country    text NOT NULL REFERENCES destinations (country),
    price_usd  numeric(14, 4) NOT NULL CHECK (price_usd >= 0),
    from_at    timestamptz NOT NULL,
    set_by     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, country, from_at)
);

-- --------------------------------------------------------------------------------------------------
-- The ledger.
-- --------------------------------------------------------------------------------------------------

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
    top_up_id  uuid,
    CONSTRAINT one_side_is_the_customer CHECK ((from_book = 'customer') <> (to_book = 'customer')),
    CONSTRAINT a_debit_names_its_batch CHECK (
        (from_book = 'customer' AND to_book = 'revenue') = (batch_id IS NOT NULL AND message_id IS NULL)
    ),
    CONSTRAINT a_refund_names_its_message CHECK (
        (from_book = 'revenue') = (batch_id IS NOT NULL AND message_id IS NOT NULL)
    ),
    CONSTRAINT an_adjustment_says_why_and_who CHECK (
        'adjustment' NOT IN (from_book, to_book) OR (note IS NOT NULL AND actor IS NOT NULL)
    ),
    CONSTRAINT a_top_up_is_named CHECK (
        (from_book LIKE 'topup:%' OR to_book LIKE 'topup:%') = (top_up_id IS NOT NULL)
    )
);
CREATE INDEX transfers_of_account ON transfers (account_id, id);
CREATE UNIQUE INDEX transfers_one_debit_per_batch ON transfers (batch_id) WHERE message_id IS NULL;
CREATE UNIQUE INDEX transfers_one_refund_per_message ON transfers (message_id) WHERE message_id IS NOT NULL;
-- Few transfers are neither a debit nor a refund.
CREATE INDEX transfers_without_batch ON transfers (account_id, id) WHERE batch_id IS NULL;
-- A top-up moves money once to the customer, and at most once back.
CREATE UNIQUE INDEX transfers_one_each_way_per_top_up ON transfers (top_up_id, to_book) WHERE top_up_id IS NOT NULL;

CREATE FUNCTION transfers_are_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a transfer is never changed; write another one that corrects it';
END $$;
CREATE TRIGGER transfers_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON transfers
    FOR EACH STATEMENT EXECUTE FUNCTION transfers_are_final();

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
-- Accounts whose transfers did not come to their balance.
CREATE INDEX ledger_proofs_broken ON ledger_proofs (broken_at) WHERE broken_at IS NOT NULL;

-- --------------------------------------------------------------------------------------------------
-- Batches and messages. They are cut into weeks by their time-ordered ids (postgres/partitions.py makes the weeks).
-- No foreign key points at them: it would prevent dropping an old week.
-- --------------------------------------------------------------------------------------------------

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
-- For maintenance: batches that are not completed, and completed ones whose text is still kept.
CREATE INDEX batches_open ON batches (id) WHERE completed_at IS NULL;
CREATE INDEX batches_with_text ON batches (completed_at) WHERE completed_at IS NOT NULL AND body IS NOT NULL;
-- For pages: open batches, refunded ones, and by the customer's own reference.
CREATE INDEX batches_open_of_account ON batches (account_id, id) WHERE completed_at IS NULL;
CREATE INDEX batches_refunded ON batches (account_id, id) WHERE refunded > 0;
CREATE INDEX batches_by_reference ON batches (account_id, reference, id) WHERE reference IS NOT NULL;

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

-- By number: summaries of pages, which cost an accept next to nothing. When a message was accepted stands in it too,
-- in words that are not those of the primary key, so that the planner takes neither index for the other. A page has
-- 34 messages at first, of which each may be to another number. postgres/partitions.py has the weeks vacuumed, which
-- is when pages are summarised.
CREATE INDEX messages_by_number ON messages USING brin (
    uuid_send(id), recipient text_bloom_ops (n_distinct_per_range = 1100, false_positive_rate = 0.001)
) WITH (pages_per_range = 32);

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
-- For the traffic of all accounts together.
CREATE INDEX traffic_by_day ON traffic (day);

-- --------------------------------------------------------------------------------------------------
-- The queue in front of the carriers.
-- --------------------------------------------------------------------------------------------------

-- Messages that wait for a carrier, in the order in which they are claimed.
CREATE TABLE queue (
    country     text NOT NULL,
    lane        smallint NOT NULL CHECK (lane IN (0, 1)),
    turn        bigint NOT NULL,
    message_id  uuid NOT NULL,
    -- True for a message that is tried again: only then the worker reads what became of it before.
    again       boolean NOT NULL DEFAULT false,
    -- The carrier that the message avoids, and until when.
    avoid       integer,
    avoid_until timestamptz,
    PRIMARY KEY (country, lane, turn, message_id)
-- Rows come and go all the time: dead ones are vacuumed before they slow down the next claim.
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_threshold = -1
);
CREATE INDEX queue_avoiding ON queue (lane, turn, message_id) WHERE avoid IS NOT NULL;

-- Messages that a worker has claimed.
CREATE TABLE in_flight (
    message_id uuid PRIMARY KEY,
    worker     text NOT NULL,
    bind       text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    carrier_id integer NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_threshold = -1
);

-- Messages that wait for another attempt.
CREATE TABLE retries (
    message_id uuid PRIMARY KEY,
    due_at     timestamptz NOT NULL,
    -- In doubt: the carrier may have accepted it, and it waits for a receipt before it is tried again or given up.
    in_doubt   boolean NOT NULL DEFAULT false,
    carrier_id integer
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

-- --------------------------------------------------------------------------------------------------
-- Carriers, the connections to them, and what they answered.
-- --------------------------------------------------------------------------------------------------

CREATE TABLE carriers (
    -- A name keeps its number when the carrier is changed, removed and added again: its receipts still match.
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,31}$'),
    host         text NOT NULL,
    port         integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    tls          boolean NOT NULL,
    system_id    text NOT NULL,
    password     text NOT NULL,
    bind_mode    text NOT NULL CHECK (bind_mode IN ('transceiver', 'pair')),
    binds        smallint NOT NULL CHECK (binds BETWEEN 1 AND 32),
    window_size  integer NOT NULL CHECK (window_size BETWEEN 1 AND 10000),
    -- Messages a second over all binds; 0 for no limit of ours.
    tps          integer NOT NULL CHECK (tps BETWEEN 0 AND 100000),
    source       text NOT NULL,
    in_doubt     text NOT NULL CHECK (in_doubt IN ('resend', 'hold')),
    doubt_wait_s integer NOT NULL CHECK (doubt_wait_s BETWEEN 1 AND 86400),
    refund       text[] NOT NULL CHECK (refund <@ ARRAY['failed', 'expired', 'undelivered']),
    -- NULL for every country.
    countries    text[] CHECK (countries <> '{}'),
    priority     integer NOT NULL CHECK (priority >= 0),
    changed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at   timestamptz,
    -- The simulator of `tumira serve`, whatever its name: it takes no message that another carrier can take.
    simulator    boolean NOT NULL DEFAULT false
);

-- Worker processes and their heartbeats.
CREATE TABLE workers (
    id         text PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    version    text,
    -- As in `nodes`.
    last_step  integer
) WITH (fillfactor = 50);

-- Leases of the connections to carriers, and the state of each connection.
CREATE TABLE binds (
    carrier_id   integer NOT NULL REFERENCES carriers (id),
    number       smallint NOT NULL,
    worker       text NOT NULL,
    leased_until timestamptz NOT NULL,
    state        text NOT NULL CHECK (state IN ('connecting', 'bound', 'throttled', 'failing', 'down')),
    since        timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem      text,
    outstanding  integer NOT NULL DEFAULT 0,
    -- Messages a second that it may send now; NULL for no limit.
    pace         integer,
    -- Whether the connection is up and submits are not answered.
    silent       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (carrier_id, number)
) WITH (fillfactor = 50);

-- Submissions that a carrier accepted: one row for each segment, and a further one when it was sent again after a
-- doubt.
CREATE TABLE parts (
    message_id   uuid NOT NULL,
    number       smallint NOT NULL,
    attempt      smallint NOT NULL,
    carrier_id   integer NOT NULL,
    -- The reference that joins the segments on the handset; NULL for a message of one.
    reference    smallint,
    -- The carrier's id as it came, and the spelling under which receipts look for it.
    carrier_ref  text NOT NULL,
    carrier_key  text NOT NULL,
    claimed_at   timestamptz NOT NULL,
    submitted_at timestamptz NOT NULL,
    answered_at  timestamptz NOT NULL,
    -- NULL until a receipt came; then the state that the last one reported.
    state        text,
    error        text,
    receipt      text,
    received_at  timestamptz,
    PRIMARY KEY (message_id, number, attempt)
) PARTITION BY RANGE (message_id);
-- Not unique: carriers use their ids again.
CREATE INDEX parts_by_carrier_key ON parts (carrier_id, carrier_key, message_id);

-- Retries, doubts and late receipts of a message, for its timeline and to count attempts.
CREATE TABLE incidents (
    message_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text NOT NULL CHECK (kind IN ('retry', 'doubt', 'resend', 'hold', 'late_receipt')),
    carrier_id integer,
    part       smallint,
    -- The number for which a receipt would come, where the carrier's id was never learnt.
    recipient  text,
    detail     text,
    -- Of a doubt: when the message had been claimed, by the clock of the database. A receipt counts only if it came
    -- later.
    claimed_at timestamptz
) PARTITION BY RANGE (message_id);
CREATE INDEX incidents_of_message ON incidents (message_id);
CREATE INDEX incidents_in_doubt ON incidents (carrier_id, recipient) WHERE kind = 'doubt';

-- Receipts that match nothing yet.
CREATE TABLE unmatched_receipts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    carrier_id  integer NOT NULL,
    carrier_ref text,
    recipient   text NOT NULL,
    state       text NOT NULL,
    error       text,
    receipt     text NOT NULL,
    received_at timestamptz NOT NULL,
    next_try_at timestamptz NOT NULL
);
CREATE INDEX unmatched_receipts_due ON unmatched_receipts (next_try_at);
-- The last eight digits are the same however a carrier writes the number.
CREATE INDEX unmatched_receipts_of_number ON unmatched_receipts (carrier_id, right(recipient, 8), id);
CREATE INDEX unmatched_receipts_of_carrier ON unmatched_receipts (carrier_id, next_try_at);

-- How long messages took, and how they ended, by slots of ten minutes: counted by each worker, added up here.
-- `step`: `handover` from accept to the carrier's answer, `receipt` from there to the final receipt.
CREATE TABLE latencies (
    slot    timestamptz NOT NULL,
    step    text NOT NULL CHECK (step IN ('handover', 'receipt')),
    network text NOT NULL,
    country text NOT NULL,
    lane    smallint NOT NULL,
    bucket  smallint NOT NULL,
    count   bigint NOT NULL,
    PRIMARY KEY (slot, step, network, country, lane, bucket)
) WITH (fillfactor = 50);

CREATE TABLE outcomes (
    slot       timestamptz NOT NULL,
    carrier_id integer NOT NULL,
    network    text NOT NULL,
    country    text NOT NULL,
    -- A final status, or a carrier's answer that was no success.
    outcome    text NOT NULL,
    count      bigint NOT NULL,
    PRIMARY KEY (slot, carrier_id, network, country, outcome)
) WITH (fillfactor = 50);

-- --------------------------------------------------------------------------------------------------
-- Events and webhooks.
-- --------------------------------------------------------------------------------------------------

-- Events for customers, numbered per account without gaps.
CREATE TABLE events (
    id         uuid NOT NULL,
    account_id uuid NOT NULL,
    sequence   bigint NOT NULL,
    type       text NOT NULL,
    message_id uuid,
    batch_id   uuid,
    at         timestamptz NOT NULL,
    -- The payload as JSON, for events that tell of no message and no batch.
    data       text,
    PRIMARY KEY (account_id, sequence, id)
) PARTITION BY RANGE (id);

CREATE TABLE event_counters (
    account_id uuid PRIMARY KEY REFERENCES accounts (id),
    last       bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE webhook_endpoints (
    id               uuid PRIMARY KEY,
    account_id       uuid NOT NULL REFERENCES accounts (id),
    url              text NOT NULL,
    description      text NOT NULL DEFAULT '',
    -- NULL for all types.
    types            text[] CHECK (types <> '{}'),
    -- Kept as they are: a signature cannot be made from a hash of the secret.
    secret           bytea NOT NULL CHECK (length(secret) = 32),
    old_secret       bytea CHECK (length(old_secret) = 32),
    old_secret_until timestamptz,
    state            text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    -- Why we disabled it.
    reason           text,
    -- Every event up to this number was delivered, was not wanted, was given up, or waits in webhook_retries.
    position         bigint NOT NULL,
    -- Its health; webhooks/health.py says what these mean.
    failures         integer NOT NULL DEFAULT 0,
    failing_since    timestamptz,
    rest_until       timestamptz,
    warnings         smallint NOT NULL DEFAULT 0,
    succeeded_at     timestamptz,
    -- The worker that delivers to it now.
    worker           text,
    leased_until     timestamptz,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When its owner last changed something that a worker has to know, and which event was the last one then.
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_after    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX webhook_endpoints_of_account ON webhook_endpoints (account_id, id);
CREATE INDEX webhook_endpoints_resting ON webhook_endpoints (rest_until) WHERE rest_until IS NOT NULL;
CREATE INDEX webhook_endpoints_leased ON webhook_endpoints (worker) WHERE worker IS NOT NULL;
-- Failing endpoints, and disabled ones.
CREATE INDEX webhook_endpoints_failing ON webhook_endpoints (failing_since) WHERE failing_since IS NOT NULL;
CREATE INDEX webhook_endpoints_disabled ON webhook_endpoints (id) WHERE state = 'disabled';

-- Wake-up rows: endpoints with new events. The worker that delivers to an endpoint takes its row, so no worker reads
-- all endpoints to find the few with something to deliver.
CREATE TABLE webhook_bells (
    endpoint_id uuid PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Events whose delivery failed and is tried again.
CREATE TABLE webhook_retries (
    endpoint_id uuid NOT NULL,
    sequence    bigint NOT NULL,
    event_id    uuid NOT NULL,
    tries       smallint NOT NULL,
    first_at    timestamptz NOT NULL,
    due_at      timestamptz NOT NULL,
    PRIMARY KEY (endpoint_id, sequence, event_id)
);
CREATE INDEX webhook_retries_due ON webhook_retries (due_at, endpoint_id);

-- Stretches of the sequence that are delivered again: what is above `position`, up to `until`.
CREATE TABLE webhook_replays (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id uuid NOT NULL,
    position    bigint NOT NULL,
    until       bigint NOT NULL,
    from_at     timestamptz,
    until_at    timestamptz
);
CREATE INDEX webhook_replays_of_endpoint ON webhook_replays (endpoint_id);

-- Every attempt and its answer; the request can be made again from the event.
CREATE TABLE webhook_attempts (
    id          uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    event_id    uuid NOT NULL,
    sequence    bigint NOT NULL,
    type        text NOT NULL,
    number      smallint NOT NULL,
    at          timestamptz NOT NULL,
    duration_ms integer NOT NULL,
    -- NULL when there was no answer; then `problem` says why.
    status      smallint,
    problem     text,
    answer      text NOT NULL,
    -- When it is tried again; NULL when it is not.
    next_at     timestamptz,
    PRIMARY KEY (endpoint_id, id)
) PARTITION BY RANGE (id);

-- --------------------------------------------------------------------------------------------------
-- Content: texts that the operator allows or blocks, and texts that were refused.
-- --------------------------------------------------------------------------------------------------

CREATE TABLE templates (
    id         uuid PRIMARY KEY,
    -- NULL for every account.
    account_id uuid REFERENCES accounts (id),
    pattern    text NOT NULL CHECK (length(pattern) BETWEEN 1 AND 1600),
    verdict    text NOT NULL CHECK (verdict IN ('allow', 'block')),
    note       text NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);
CREATE INDEX templates_of_account ON templates (account_id, id);

-- As with the tariff: every process keeps all templates in memory and reads this number with each group of
-- calls, so that a new one counts from the next call.
CREATE TABLE content_policy (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  bigint NOT NULL
);
INSERT INTO content_policy (version) VALUES (1);

CREATE FUNCTION content_policy_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE content_policy SET version = version + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER templates_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON templates
    FOR EACH STATEMENT EXECUTE FUNCTION content_policy_changed();

-- A row for each refused text of an account; texts that differ in their numbers alone share one.
CREATE TABLE content_refusals (
    account_id      uuid NOT NULL REFERENCES accounts (id),
    digest          bytea NOT NULL CHECK (length(digest) = 32),
    first_at        timestamptz NOT NULL,
    last_at         timestamptz NOT NULL,
    count           bigint NOT NULL CHECK (count > 0),
    category        text NOT NULL,
    score           double precision NOT NULL CHECK (score BETWEEN 0 AND 1),
    -- The words that weighed, each with its category; never more of the text than these.
    reasons         jsonb NOT NULL,
    -- NULL unless the account consents to review.
    text            text,
    -- When its owner asked the operator to review the refusal, and with which words.
    review_asked_at timestamptz,
    review_note     text,
    PRIMARY KEY (account_id, digest)
);
CREATE INDEX content_refusals_of_account ON content_refusals (account_id, last_at);
CREATE INDEX content_refusals_by_age ON content_refusals (last_at);
-- Refused texts that wait for a review.
CREATE INDEX content_refusals_to_review ON content_refusals (review_asked_at) WHERE review_asked_at IS NOT NULL;

-- --------------------------------------------------------------------------------------------------
-- Files of messages.
-- --------------------------------------------------------------------------------------------------

-- An uploaded file: checked, and after confirmation sent in chunks of at most 1,000, each a batch.
CREATE TABLE uploads (
    id             uuid PRIMARY KEY,
    account_id     uuid NOT NULL REFERENCES accounts (id),
    file_name      text NOT NULL,
    -- What its columns are called, for the download of the rows that cannot be sent.
    columns        text[] NOT NULL,
    message        text NOT NULL,
    reference      text,
    state          text NOT NULL DEFAULT 'checked' CHECK (state IN ('checked', 'sending', 'sent', 'stopped')),
    -- Why it was stopped before all of it was sent.
    problem        text,
    -- How many rows the file had, how many can be sent, and what they cost when they were checked.
    rows           integer NOT NULL CHECK (rows BETWEEN 0 AND 10000),
    recipients     integer NOT NULL CHECK (recipients BETWEEN 0 AND rows),
    total_cost     numeric(14, 4) NOT NULL CHECK (total_cost >= 0),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    confirmed_at   timestamptz,
    finished_at    timestamptz,
    -- The version of the templates by which the rows that are left were checked.
    policy_version bigint,
    -- How many rows were refused after the file was checked.
    refused        integer NOT NULL DEFAULT 0
);
CREATE INDEX uploads_of_account ON uploads (account_id, id);
CREATE INDEX uploads_sending ON uploads (id) WHERE state = 'sending';
CREATE INDEX uploads_by_age ON uploads (created_at);

-- The rows that can be sent. A chunk has a batch once it was sent, and never another one.
CREATE TABLE upload_chunks (
    upload_id     uuid NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    number        smallint NOT NULL,
    -- Where each recipient stands in the file.
    lines         integer[] NOT NULL,
    recipients    text[] NOT NULL CHECK (cardinality(recipients) BETWEEN 1 AND 1000),
    -- Each recipient's own text where the message has places; NULL where all get the same.
    bodies        text[],
    cost          numeric(14, 4) NOT NULL CHECK (cost >= 0),
    batch_id      uuid UNIQUE,
    -- The lines of the rows that are sent only because a template allows them.
    by_template   integer[],
    -- How many of its messages go to which country in how many segments: a page prices a file without its texts.
    leg_countries text[],
    leg_segments  smallint[],
    leg_counts    integer[],
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

-- A file that is being checked beside the web process: one for each account, so a newer one takes its place. The row
-- shows every node the progress of the check, and the check whether a page still waits for it.
CREATE TABLE file_checks (
    account_id   uuid PRIMARY KEY REFERENCES accounts (id),
    -- The upload that the file becomes.
    upload_id    uuid NOT NULL UNIQUE,
    file_name    text NOT NULL,
    rows         integer NOT NULL DEFAULT 0,
    done         integer NOT NULL DEFAULT 0,
    -- Why the file cannot be used, or why its check ended early; NULL while it goes on.
    problem      text,
    -- The last heartbeat of the process that checks, and until when a page waits for it.
    alive_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    wanted_until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX file_checks_by_age ON file_checks (alive_at);

-- --------------------------------------------------------------------------------------------------
-- Customers: sign-up, sign-in and the second factor.
-- --------------------------------------------------------------------------------------------------

-- Separate from the account, whose row every call rewrites. An account made by the operator has none until its owner
-- chooses a password.
CREATE TABLE logins (
    account_id       uuid PRIMARY KEY REFERENCES accounts (id),
    email            text,
    password_hash    text NOT NULL,
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Whether a low balance is mailed.
    low_balance_mail boolean NOT NULL DEFAULT true,
    -- The second factor: a secret that the owner's device has too. It is kept as it is, because codes are made from
    -- it. No time step is accepted twice.
    totp_secret      bytea CHECK (length(totp_secret) = 20),
    totp_since       timestamptz,
    totp_last_step   bigint NOT NULL DEFAULT 0,
    -- NULL where a sign-up was confirmed by e-mail alone.
    phone_proved_at  timestamptz DEFAULT now()
);

-- Proofs of a phone number in progress, to open an account or to choose a new password.
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
    -- NULL where no code was sent: the caller cannot tell, and it counts against the limits all the same.
    code_hash       text,
    sent_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries           smallint NOT NULL DEFAULT 0 CHECK (tries BETWEEN 0 AND 5),
    -- Whether a text was sent: a forgotten password of a number without an account sends none, and must not use up
    -- the limits of others.
    sent            boolean NOT NULL DEFAULT true,
    -- The known browser that asked, if one did.
    device_sha256   bytea,
    -- The e-mail has a code of its own, which shows which of the two was proved.
    email_hash      text
);
CREATE INDEX codes_of_verification ON codes (verification_id, sent_at);
CREATE INDEX codes_of_phone ON codes (phone, sent_at);
CREATE INDEX codes_of_address ON codes (address, sent_at);
CREATE INDEX codes_by_age ON codes (sent_at);

-- Failed attempts with passwords and codes, and those under way.
CREATE TABLE attempts (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    phone   text NOT NULL,
    address text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What was tried: attempts of one kind do not use up those of another.
    kind    text NOT NULL DEFAULT 'password'
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

-- Sign-ins whose password was right and whose second factor is awaited.
CREATE TABLE half_sessions (
    token_sha256  bytea PRIMARY KEY CHECK (length(token_sha256) = 32),
    account_id    uuid NOT NULL REFERENCES accounts (id),
    -- The new password of a reset; it is set only after the second factor.
    password_hash text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE recovery_codes (
    account_id uuid NOT NULL REFERENCES accounts (id),
    sha256     bytea NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (account_id, sha256)
);

-- Browsers that have signed in. Each has attempts of its own, so that strangers who guess cannot lock its owner out.
-- The number is that of a customer, or `operator:` and that of an operator.
CREATE TABLE devices (
    phone        text NOT NULL,
    token_sha256 bytea NOT NULL CHECK (length(token_sha256) = 32),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (phone, token_sha256)
);
CREATE INDEX devices_of_token ON devices (token_sha256);
CREATE INDEX devices_by_age ON devices (seen_at);

-- How many notices about one kind of change were sent to one account or operator since a moment.
CREATE TABLE security_notices (
    subject uuid NOT NULL,
    kind    text NOT NULL,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    count   integer NOT NULL,
    PRIMARY KEY (subject, kind)
) WITH (fillfactor = 50);

-- Who changed keys, endpoints and settings; written with the change, never changed itself.
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

-- --------------------------------------------------------------------------------------------------
-- Operators.
-- --------------------------------------------------------------------------------------------------

-- Operators of the gateway. The first password is generated and valid once: with it an operator chooses their own and
-- a second factor, without which there is no access.
CREATE TABLE operators (
    id             uuid PRIMARY KEY,
    phone          text NOT NULL UNIQUE,
    name           text NOT NULL,
    role           text NOT NULL CHECK (role IN ('viewer', 'admin')),
    password_hash  text NOT NULL,
    -- Until when a generated password is valid; NULL once they have chosen their own.
    one_time_until timestamptz,
    totp_secret    bytea CHECK (length(totp_secret) = 20),
    totp_last_step bigint NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at     timestamptz
);

CREATE TABLE operator_recovery_codes (
    operator_id uuid NOT NULL REFERENCES operators (id),
    sha256      bytea NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (operator_id, sha256)
);

CREATE TABLE operator_sessions (
    id           uuid PRIMARY KEY,
    token_sha256 bytea NOT NULL UNIQUE CHECK (length(token_sha256) = 32),
    operator_id  uuid NOT NULL REFERENCES operators (id),
    -- `new`: has to choose a password and a factor; `code`: the factor is awaited; `in`: signed in.
    stage        text NOT NULL CHECK (stage IN ('new', 'code', 'in')),
    address      text NOT NULL,
    browser      text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE INDEX operator_sessions_of_operator ON operator_sessions (operator_id);
CREATE INDEX operator_sessions_by_age ON operator_sessions (created_at);

-- What operators changed, in the console or at the command line; written with the change, never changed itself.
CREATE TABLE operator_changes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text NOT NULL,
    address    text,
    what       text NOT NULL,
    detail     text NOT NULL DEFAULT '',
    account_id uuid REFERENCES accounts (id)
);
CREATE INDEX operator_changes_of_account ON operator_changes (account_id, id) WHERE account_id IS NOT NULL;
CREATE INDEX operator_changes_of_actor ON operator_changes (actor, id);

-- Submitted forms of the console that move money: however often one comes, it counts once.
CREATE TABLE operator_presses (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- --------------------------------------------------------------------------------------------------
-- Mail.
-- --------------------------------------------------------------------------------------------------

-- Mails that wait to be sent; a row is deleted when its mail was sent or has expired.
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

-- --------------------------------------------------------------------------------------------------
-- Top-ups: through Paynow, as USDT on BNB Smart Chain, and by vouchers.
-- --------------------------------------------------------------------------------------------------

-- One payment of an account's owner. It is credited once, by one transfer that names it.
CREATE TABLE top_ups (
    id                 uuid PRIMARY KEY,
    account_id         uuid NOT NULL REFERENCES accounts (id),
    method             text NOT NULL CHECK (method IN ('paynow', 'usdt', 'voucher')),
    -- The wallet, the network, or who issued the voucher.
    provider           text NOT NULL,
    state              text NOT NULL DEFAULT 'started' CHECK (state IN (
        'started', 'pending', 'doubt', 'credited', 'failed', 'expired', 'reversed'
    )),
    -- What the provider was asked to take, in the currency in which it is paid; NULL for all that there is.
    currency           text NOT NULL CHECK (currency IN ('USD', 'USDT', 'ZAR')),
    asked              numeric(14, 2) CHECK (asked > 0),
    -- What was taken, and what the account got for it.
    paid               numeric(38, 18) CHECK (paid > 0),
    amount             numeric(14, 4) CHECK (amount > 0),
    -- How many of the currency made a dollar when it was started, and since when the operator says so.
    rate               numeric(14, 6) NOT NULL DEFAULT 1 CHECK (rate > 0),
    rate_on            date,
    -- The phone of the wallet, or where change is sent.
    phone              text,
    provider_reference text,
    -- What the provider gave us: where to ask, what to show the customer.
    kept               jsonb NOT NULL DEFAULT '{}',
    -- Why it failed, in one word; what is unclear, for the operator.
    reason             text,
    problem            text,
    -- A voucher's PIN while it may still be needed, sealed; and a keyed hash of it, so that it is not tried twice at
    -- once. The change is a new voucher, which is the customer's: sealed until they say that they have it.
    sealed_pin         bytea,
    pin_hash           bytea CHECK (length(pin_hash) = 32),
    sealed_change      bytea,
    -- What could not be taken back from the balance.
    owed               numeric(14, 4) NOT NULL DEFAULT 0 CHECK (owed >= 0),
    -- When a worker looks at it again; NULL when none has to.
    due_at             timestamptz DEFAULT clock_timestamp(),
    -- When the provider was asked for the money, or may have been: it is never asked twice.
    asked_at           timestamptz,
    tries              integer NOT NULL DEFAULT 0,
    -- The operator's decision on one that was in doubt.
    note               text,
    resolved_by        text,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at        timestamptz,
    CONSTRAINT credited_says_what CHECK (
        state NOT IN ('credited', 'reversed')
        OR (amount IS NOT NULL AND paid IS NOT NULL AND provider_reference IS NOT NULL)
    )
);
CREATE INDEX top_ups_of_account ON top_ups (account_id, id);
CREATE INDEX top_ups_due ON top_ups (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX top_ups_by_state ON top_ups (state, id);
-- What a provider took once is credited once, whichever of our rows it is reported for.
CREATE UNIQUE INDEX top_ups_credited_once ON top_ups (
    (CASE method WHEN 'paynow' THEN 'paynow' ELSE provider END), provider_reference
) WHERE state IN ('credited', 'reversed');
CREATE UNIQUE INDEX top_ups_one_try_per_pin ON top_ups (provider, pin_hash)
    WHERE pin_hash IS NOT NULL AND state IN ('started', 'pending', 'doubt');
-- Top-ups that were paid after they had ended, and wait for an operator.
CREATE INDEX top_ups_paid_late ON top_ups (id)
    WHERE state IN ('failed', 'expired') AND problem LIKE '%was paid after it had%';

-- Vouchers that the operator issues. Their codes are long, so that a plain hash keeps them secret.
CREATE TABLE vouchers (
    id          uuid PRIMARY KEY,
    code_sha256 bytea NOT NULL UNIQUE CHECK (length(code_sha256) = 32),
    -- Its last four letters, by which the operator finds it.
    tail        text NOT NULL,
    amount      numeric(14, 4) NOT NULL CHECK (amount > 0),
    note        text NOT NULL DEFAULT '',
    issued_by   text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz,
    voided_at   timestamptz,
    voided_by   text,
    void_note   text,
    top_up_id   uuid UNIQUE REFERENCES top_ups (id),
    CONSTRAINT not_both CHECK (voided_at IS NULL OR top_up_id IS NULL)
);

-- Deposit addresses: each account has its own, derived from the operator's public key. An address is never given to
-- another account, and is watched for ever.
CREATE TABLE usdt_addresses (
    address    text PRIMARY KEY CHECK (address ~ '^0x[0-9a-f]{40}$'),
    account_id uuid NOT NULL REFERENCES accounts (id),
    -- Which public key it was derived from, and at which place.
    key_sha256 bytea NOT NULL CHECK (length(key_sha256) = 32),
    place      integer NOT NULL CHECK (place >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (account_id, key_sha256),
    UNIQUE (key_sha256, place)
);

-- A transfer of the token to one of those addresses, as the chain shows it. Until it is final it may vanish.
CREATE TABLE usdt_deposits (
    chain_id     bigint NOT NULL,
    tx_hash      text NOT NULL CHECK (tx_hash ~ '^0x[0-9a-f]{64}$'),
    log_index    integer NOT NULL,
    account_id   uuid NOT NULL REFERENCES accounts (id),
    address      text NOT NULL REFERENCES usdt_addresses (address),
    sender       text NOT NULL,
    -- In the token's smallest unit.
    units        numeric(78, 0) NOT NULL CHECK (units > 0),
    block_number bigint NOT NULL,
    block_hash   text NOT NULL,
    -- `final` ones wait until the account's come to the smallest top-up.
    state        text NOT NULL DEFAULT 'seen' CHECK (state IN ('seen', 'final', 'credited', 'orphaned')),
    top_up_id    uuid REFERENCES top_ups (id),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_id, tx_hash, log_index),
    CONSTRAINT credited_by_a_top_up CHECK ((state = 'credited') = (top_up_id IS NOT NULL))
);
CREATE INDEX usdt_deposits_of_account ON usdt_deposits (account_id, seen_at);
CREATE INDEX usdt_deposits_open ON usdt_deposits (block_number) WHERE state IN ('seen', 'final');
CREATE INDEX usdt_deposits_of_top_up ON usdt_deposits (top_up_id) WHERE top_up_id IS NOT NULL;

-- How far the chain was read, and what the last block read was called: when it is called otherwise now, blocks
-- were exchanged and are read again.
CREATE TABLE usdt_cursors (
    chain_id     bigint NOT NULL,
    contract     text NOT NULL,
    block_number bigint NOT NULL,
    block_hash   text NOT NULL,
    looked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_id, contract)
);

-- --------------------------------------------------------------------------------------------------
-- Operations: nodes, audits, erasure and retention.
-- --------------------------------------------------------------------------------------------------

-- Heartbeats of web processes; workers stand in `workers`.
CREATE TABLE nodes (
    id         text PRIMARY KEY,
    version    text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The last migration that its code knows: what it needs is not taken away while it runs.
    last_step  integer
) WITH (fillfactor = 50);

-- Audits that were asked for or were due, and what they found.
CREATE TABLE audits (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asked_by    text NOT NULL,
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz,
    finished_at timestamptz,
    -- What is broken, by the check that found it; NULL until it has ended.
    broken      jsonb,
    problem     text
);
CREATE INDEX audits_open ON audits (id) WHERE finished_at IS NULL;

-- Requests to erase a number. The walk through all tables that may hold it is long and can be interrupted, so its
-- position is kept here; messages under way are waited for. At the end the number is erased here too.
CREATE TABLE erasures (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text NOT NULL,
    note        text NOT NULL,
    number      text,
    stage       text NOT NULL,
    place       text[] NOT NULL DEFAULT '{}',
    -- The accounts that had sent to it.
    accounts    uuid[] NOT NULL DEFAULT '{}',
    -- What was erased so far, and what has to end before it can be.
    messages    bigint NOT NULL DEFAULT 0,
    others      jsonb NOT NULL DEFAULT '{}',
    waiting     bigint NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CONSTRAINT forgotten_at_the_end CHECK ((number IS NULL) = (finished_at IS NOT NULL))
);
CREATE UNIQUE INDEX erasures_open ON erasures (number) WHERE number IS NOT NULL;

-- Up to which message numbers were cut down to country and last digits, because they are old.
CREATE TABLE number_retention (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    up_to    uuid NOT NULL
);
INSERT INTO number_retention (up_to) VALUES ('00000000-0000-0000-0000-000000000000');

-- Rows below `id` are dropped or about to be: nothing is compared with them. Rows above `sure_from` are complete,
-- whatever the clocks of the nodes that wrote around the border said.
CREATE TABLE kept_from (
    kind      text PRIMARY KEY CHECK (kind IN ('messages', 'events', 'attempts')),
    id        uuid NOT NULL,
    sure_from uuid NOT NULL
);
INSERT INTO kept_from (kind, id, sure_from)
SELECT kind, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000'
  FROM unnest('{messages,events,attempts}'::text[]) AS kind;

-- Old weeks that were checked and are about to be dropped. Each is detached, checked again, and dropped; a worker
-- that dies on the way leaves it here for the next one.
CREATE TABLE leaving_weeks (
    name   text PRIMARY KEY,
    parent text NOT NULL,
    kind   text NOT NULL REFERENCES kept_from (kind),
    low    uuid NOT NULL,
    high   uuid NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp()
);
