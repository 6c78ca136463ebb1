-- A send that costs more than this needs a second person's approval; NULL for no such rule.
ALTER TABLE accounts ADD COLUMN approval_above numeric(14, 4) CHECK (approval_above >= 0);

-- Sends that wait for a second person: a composed message, or a checked file. Nothing is charged meanwhile.
CREATE TABLE approvals (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts (id),
    -- What makes the send happen once: the id of its form, or of the batch or file.
    token      text NOT NULL,
    -- The message as typed; NULL for a file, and once it is erased.
    recipients text,
    message    text,
    reference  text,
    upload_id  uuid,
    -- How many messages, and what they cost when they were asked for.
    count      integer NOT NULL CHECK (count > 0),
    cost       numeric(14, 4) NOT NULL CHECK (cost >= 0),
    asked_by   uuid NOT NULL REFERENCES people (id),
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- `sending` while the approved send is under way: it can be approved again, and is still sent once.
    state      text NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'sending', 'approved', 'declined', 'withdrawn', 'expired')),
    decided_by uuid REFERENCES people (id),
    decided_at timestamptz,
    note       text NOT NULL DEFAULT '',
    batch_id   uuid,
    CONSTRAINT nobody_approves_their_own CHECK (
        state NOT IN ('sending', 'approved', 'declined') OR (decided_by IS NOT NULL AND decided_by <> asked_by)
    )
);
CREATE UNIQUE INDEX approvals_waiting ON approvals (account_id, token) WHERE state IN ('waiting', 'sending');
CREATE INDEX approvals_of_account ON approvals (account_id, id);
CREATE INDEX approvals_by_age ON approvals (asked_at);
CREATE INDEX approvals_of_upload ON approvals (upload_id) WHERE upload_id IS NOT NULL;

-- Who scheduled a send: another person has to approve it.
ALTER TABLE schedules ADD COLUMN asked_by uuid REFERENCES people (id);
