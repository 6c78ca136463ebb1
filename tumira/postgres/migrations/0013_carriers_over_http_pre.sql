-- `look`: the carrier is asked whether it has a message in doubt.
ALTER TABLE carriers DROP CONSTRAINT carriers_in_doubt_check;
ALTER TABLE carriers
    ADD CONSTRAINT carriers_in_doubt_check CHECK (in_doubt IN ('resend', 'hold', 'look')) NOT VALID;

-- How carriers over HTTP are reached; a carrier without a row here speaks SMPP.
CREATE TABLE http_carriers (
    carrier_id   integer PRIMARY KEY REFERENCES carriers (id),
    profile      text NOT NULL,
    -- The TOML of a profile of the operator's own; NULL for one of ours.
    profile_text text,
    url          text NOT NULL,
    options      jsonb NOT NULL,
    -- Kept as they are, as passwords of carriers: the provider wants them so. Empty once the carrier is removed.
    secrets      jsonb NOT NULL,
    -- Whether the provider recognises a call that is repeated.
    safe_repeat  boolean NOT NULL,
    -- The unguessable part of the address that the provider calls; it stays when the carrier is changed.
    hook_token   text NOT NULL UNIQUE CHECK (length(hook_token) >= 22),
    -- The credit left, as the provider told it last.
    balance      numeric,
    currency     text,
    balance_at   timestamptz
) WITH (fillfactor = 50);

-- Numbers for providers that recognise a repeated call by one.
CREATE SEQUENCE submission_sequence AS integer CYCLE;

-- The reference under which a message was handed to a carrier over HTTP; committed before the request is sent.
CREATE TABLE submission_references (
    carrier_id integer NOT NULL,
    reference  text NOT NULL,
    sequence   integer NOT NULL DEFAULT nextval('submission_sequence'),
    message_id uuid NOT NULL,
    attempt    smallint NOT NULL,
    -- When the message was first claimed for it, as in in_flight.
    claimed_at timestamptz NOT NULL,
    -- When to ask the carrier next what became of it, if it is to be asked, and how often it was asked.
    poll_at    timestamptz,
    polls      smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (carrier_id, reference)
);
ALTER SEQUENCE submission_sequence OWNED BY submission_references.sequence;
CREATE INDEX submission_references_of_message ON submission_references (message_id);
CREATE INDEX submission_references_due ON submission_references (carrier_id, poll_at) WHERE poll_at IS NOT NULL;
