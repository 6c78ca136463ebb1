-- Where customers want to be told of events, how far that is, and what became of each try.

-- What an event tells, as JSON, where that stands in no message and no batch.
ALTER TABLE events ADD COLUMN data text;

-- A send that takes the balance below this is told of.
ALTER TABLE accounts ADD COLUMN low_balance numeric(14, 4) NOT NULL DEFAULT 1 CHECK (low_balance >= 0);

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
    -- How it is: webhooks/health.py says what these mean.
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

-- Endpoints for which there is news. Whoever delivers to one takes its row, so nobody has to look at all
-- endpoints to find the few for which something waits.
CREATE TABLE webhook_bells (
    endpoint_id uuid PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Events that were tried in vain and are to be tried again.
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

-- Stretches of the sequence that are sent once more: what is above `position`, up to `until`.
CREATE TABLE webhook_replays (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id uuid NOT NULL,
    position    bigint NOT NULL,
    until       bigint NOT NULL,
    from_at     timestamptz,
    until_at    timestamptz
);
CREATE INDEX webhook_replays_of_endpoint ON webhook_replays (endpoint_id);

-- Every try: what we sent can be made again, what was answered is here.
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
