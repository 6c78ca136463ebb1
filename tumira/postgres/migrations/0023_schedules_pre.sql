-- Sends that begin later: a message with its recipients, or a checked file.
CREATE TABLE schedules (
    id              uuid PRIMARY KEY,
    account_id      uuid NOT NULL REFERENCES accounts (id),
    state           text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'not_sent', 'cancelled')),
    start_at        timestamptz NOT NULL,
    -- The file, or else the numbers. No foreign key: a file goes before the last trace of its schedule.
    upload_id       uuid,
    recipients      text[] NOT NULL DEFAULT '{}',
    message         text NOT NULL,
    reference       text,
    -- How many messages, and the price that its owner agreed to.
    count           integer NOT NULL CHECK (count BETWEEN 0 AND 10000),
    cost            numeric(14, 4) NOT NULL CHECK (cost >= 0),
    -- The money that the book `held` keeps for it.
    held            numeric(14, 4) NOT NULL DEFAULT 0 CHECK (held >= 0),
    -- The version of the content check that allowed its texts.
    judged_by       text NOT NULL,
    approval_needed boolean NOT NULL DEFAULT false,
    approved_at     timestamptz,
    -- What became of it: why it was not sent, who was left out, and what it cost.
    problem         text,
    left_out        integer NOT NULL DEFAULT 0,
    batch_id        uuid,
    sent_cost       numeric(14, 4),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at        timestamptz,
    -- When its numbers and its text were erased.
    erased_at       timestamptz,
    CHECK ((state = 'waiting') = (ended_at IS NULL)),
    -- A file is paid chunk by chunk.
    CONSTRAINT money_is_held_until_the_end CHECK (
        held = 0 OR state = 'waiting' OR (state = 'sent' AND upload_id IS NOT NULL)
    )
) WITH (fillfactor = 80);
CREATE INDEX schedules_of_account ON schedules (account_id, state, start_at);
CREATE INDEX schedules_waiting ON schedules (start_at) WHERE state = 'waiting';
CREATE INDEX schedules_of_upload ON schedules (upload_id) WHERE upload_id IS NOT NULL;
CREATE UNIQUE INDEX schedules_one_per_upload ON schedules (upload_id) WHERE state = 'waiting';
CREATE INDEX schedules_ended ON schedules (ended_at);

-- Money that is held names its schedule. Not validated: no earlier transfer is in this book.
ALTER TABLE transfers ADD COLUMN schedule_id uuid;
ALTER TABLE transfers ADD CONSTRAINT a_hold_names_its_schedule CHECK (
    ('held' IN (from_book, to_book)) = (schedule_id IS NOT NULL)
) NOT VALID;

ALTER TABLE uploads DROP CONSTRAINT uploads_state_check;
ALTER TABLE uploads ADD CONSTRAINT uploads_state_check CHECK (
    state IN ('checked', 'scheduled', 'sending', 'sent', 'stopped')
) NOT VALID;

-- NULL for the zone of the country of its number.
ALTER TABLE accounts ADD COLUMN time_zone text CHECK (time_zone IN ('Africa/Harare', 'Africa/Johannesburg'));
