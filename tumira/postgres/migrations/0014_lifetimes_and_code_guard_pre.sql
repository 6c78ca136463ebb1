-- How long the account's passcodes and its other messages are worth delivering, from their acceptance.
ALTER TABLE accounts
    ADD COLUMN passcode_lifetime_s integer NOT NULL DEFAULT 600 CHECK (passcode_lifetime_s BETWEEN 120 AND 3600),
    ADD COLUMN message_lifetime_s integer NOT NULL DEFAULT 86400
        CHECK (message_lifetime_s BETWEEN 3600 AND 172800);

-- When the messages of a batch stop being worth delivering; NULL for 24 hours after their acceptance, as before.
ALTER TABLE batches ADD COLUMN expires_at timestamptz;
ALTER TABLE queue ADD COLUMN expires_at timestamptz;

-- The most passcodes that the account sends to a number and to a range of numbers; NULL for the default.
ALTER TABLE accounts
    ADD COLUMN code_guard boolean NOT NULL DEFAULT true,
    ADD COLUMN number_codes_max smallint CHECK (number_codes_max > 0),
    ADD COLUMN number_codes_day_max smallint CHECK (number_codes_day_max > 0),
    ADD COLUMN range_codes_max integer CHECK (range_codes_max > 0);

-- The passcodes that an account lately sent to a range of numbers, which is a number without its last four digits;
-- sending/code_guard.py says how they are read. Rows are written with their account's row locked, and without a
-- foreign key: accounts are never deleted.
CREATE TABLE code_ranges (
    account_id    uuid NOT NULL,
    prefix        text COLLATE "C" NOT NULL,
    -- The seconds of all, then the last four digits of all.
    codes         bytea NOT NULL DEFAULT '',
    -- The day of the last one; it changes seldom, so that updates stay inside their page.
    last_on       date NOT NULL,
    stopped_until timestamptz,
    -- Since when the owner lets everything pass.
    lifted_at     timestamptz,
    PRIMARY KEY (account_id, prefix)
) WITH (fillfactor = 70);
CREATE INDEX code_ranges_by_age ON code_ranges (last_on) WHERE lifted_at IS NULL;

-- The passcodes that were stopped, by local day and by the number or range that was over its limit.
CREATE TABLE code_stops (
    account_id uuid NOT NULL REFERENCES accounts (id),
    day        date NOT NULL,
    prefix     text COLLATE "C" NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('number', 'range')),
    count      integer NOT NULL CHECK (count > 0),
    first_at   timestamptz NOT NULL,
    last_at    timestamptz NOT NULL,
    PRIMARY KEY (account_id, day, prefix)
) WITH (fillfactor = 70);
CREATE INDEX code_stops_by_age ON code_stops (day);
