-- Carriers and the connections to them, what was handed over and came back, and the events that tell of it.

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
    removed_at   timestamptz
);

-- A worker process is alive as long as it says so.
CREATE TABLE workers (
    id         text PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Who holds which connection to a carrier, until when, and how it is.
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
    PRIMARY KEY (carrier_id, number)
) WITH (fillfactor = 50);

-- A message that is tried again needs a look at what became of it before; nearly none is.
ALTER TABLE queue ADD COLUMN again boolean NOT NULL DEFAULT false;
ALTER TABLE in_flight ADD COLUMN carrier_id integer NOT NULL;
-- In doubt: it may have been handed over, and waits for a receipt before it is tried again or given up.
ALTER TABLE retries ADD COLUMN in_doubt boolean NOT NULL DEFAULT false;
ALTER TABLE retries ADD COLUMN carrier_id integer;

-- Rows come and go here all the time; what has gone is cleared away before it is in the way.
ALTER TABLE queue SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
                       autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE in_flight SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
                           autovacuum_vacuum_insert_threshold = -1);

-- What a carrier took: one row for each segment, and a further one when it was sent again after a doubt.
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
    -- NULL until a receipt came; then the word of the last one that counted.
    state        text,
    error        text,
    receipt      text,
    received_at  timestamptz,
    PRIMARY KEY (message_id, number, attempt)
) PARTITION BY RANGE (message_id);
-- Not unique: carriers use their ids again.
CREATE INDEX parts_by_carrier_key ON parts (carrier_id, carrier_key, message_id);

-- What did not go smoothly with a message, for its timeline and to count tries.
CREATE TABLE incidents (
    message_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text NOT NULL CHECK (kind IN ('retry', 'doubt', 'resend', 'hold', 'late_receipt')),
    carrier_id integer,
    part       smallint,
    -- The number for which a receipt would come, where the carrier's id was never learnt.
    recipient  text,
    detail     text
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

-- What customers are told of, numbered per account without holes.
CREATE TABLE events (
    id         uuid NOT NULL,
    account_id uuid NOT NULL,
    sequence   bigint NOT NULL,
    type       text NOT NULL,
    message_id uuid,
    batch_id   uuid,
    at         timestamptz NOT NULL,
    PRIMARY KEY (account_id, sequence, id)
) PARTITION BY RANGE (id);
CREATE TABLE event_counters (
    account_id uuid PRIMARY KEY REFERENCES accounts (id),
    last       bigint NOT NULL
) WITH (fillfactor = 50);

-- The batches that a chore has to look at: those not completed, and those completed whose text is still kept.
CREATE INDEX batches_open ON batches (id) WHERE completed_at IS NULL;
CREATE INDEX batches_with_text ON batches (completed_at) WHERE completed_at IS NOT NULL AND body IS NOT NULL;
