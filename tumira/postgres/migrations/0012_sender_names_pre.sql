-- The names under which an account asked to send, each once; sender_names/name_rules.py says what a name may be.
CREATE TABLE sender_names (
    id          uuid PRIMARY KEY,
    account_id  uuid NOT NULL REFERENCES accounts (id),
    name        text NOT NULL CHECK (name ~ '^[A-Za-z0-9 .&-]{3,11}$' AND name ~ '[A-Za-z]'),
    -- The spelling by which look-alikes are found, as sender_names/look_alikes.py makes it.
    key         text NOT NULL,
    note        text NOT NULL,
    -- What supports the request, for operators alone; erased some time after the last decision.
    paper       bytea CHECK (length(paper) <= 2097152),
    paper_type  text CHECK (paper_type IN ('application/pdf', 'image/jpeg', 'image/png')),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (account_id, name),
    UNIQUE (id, account_id, name),
    CHECK ((paper IS NULL) = (paper_type IS NULL))
);
-- Keys that are the same, or that begin or end in the same way: those of look-alikes do.
CREATE INDEX sender_names_by_key ON sender_names (key);
CREATE INDEX sender_names_by_start ON sender_names (left(key, 2));
CREATE INDEX sender_names_by_end ON sender_names (right(key, 2));
CREATE INDEX sender_names_with_paper ON sender_names (id) WHERE paper IS NOT NULL;

-- Where a name may be used: in a country, or in one network of it (no network: ''). A network's own row counts
-- more than that of its country.
CREATE TABLE sender_grants (
    name_id    uuid NOT NULL,
    account_id uuid NOT NULL,
    -- Beside its id, so that a claim finds it with one look.
    name       text NOT NULL,
    country    text NOT NULL REFERENCES destinations (country),
    network    text NOT NULL DEFAULT '',
    state      text NOT NULL CHECK (state IN ('requested', 'granted', 'refused', 'revoked')),
    in_use     boolean NOT NULL DEFAULT false,
    -- The operator's words to the customer.
    note       text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name_id, country, network),
    FOREIGN KEY (name_id, account_id, name) REFERENCES sender_names (id, account_id, name),
    CHECK (state = 'granted' OR NOT in_use)
);
-- One name of an account is in use in a place.
CREATE UNIQUE INDEX sender_grants_in_use ON sender_grants (account_id, country, network) INCLUDE (name, name_id)
    WHERE in_use;
CREATE INDEX sender_grants_requested ON sender_grants (changed_at) WHERE state = 'requested';
CREATE INDEX sender_grants_of_account ON sender_grants (account_id);

-- Every request and decision.
CREATE TABLE sender_name_history (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name_id uuid NOT NULL REFERENCES sender_names (id),
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor   text NOT NULL,
    country text NOT NULL,
    network text NOT NULL,
    -- A state, or `used` where a granted name replaced another.
    change  text NOT NULL CHECK (change IN ('requested', 'granted', 'refused', 'revoked', 'used')),
    note    text NOT NULL DEFAULT ''
);
CREATE INDEX sender_name_history_of_name ON sender_name_history (name_id, id);

-- Senders that a carrier refused, counted by the workers.
CREATE TABLE sender_refusals (
    carrier_id integer NOT NULL REFERENCES carriers (id),
    sender     text NOT NULL,
    country    text NOT NULL,
    count      bigint NOT NULL CHECK (count > 0),
    first_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (carrier_id, sender, country)
);
CREATE INDEX sender_refusals_by_age ON sender_refusals (last_at);

-- The sender under which a segment was submitted; NULL for those from before.
ALTER TABLE parts ADD COLUMN sender text;

-- Whether a message is submitted again under the carrier's own sender when the carrier refuses the account's.
ALTER TABLE carriers ADD COLUMN sender_fallback boolean NOT NULL DEFAULT false;
