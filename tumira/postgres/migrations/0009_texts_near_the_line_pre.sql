-- A batch with a text that passed near the line, for operators; NULL for any other.
ALTER TABLE batches ADD COLUMN near_line boolean;

-- The lines of the rows whose texts are near the line.
ALTER TABLE upload_chunks ADD COLUMN near_line integer[] NOT NULL DEFAULT '{}';

-- How many messages of an account had a text near the line, by local day.
CREATE TABLE near_line_days (
    account_id uuid NOT NULL REFERENCES accounts (id),
    day        date NOT NULL,
    messages   bigint NOT NULL CHECK (messages > 0),
    PRIMARY KEY (account_id, day)
) WITH (fillfactor = 50);
CREATE INDEX near_line_days_by_age ON near_line_days (day);

-- A sample of the texts that passed near the line, of accounts that consent to review.
CREATE TABLE near_line_texts (
    account_id  uuid NOT NULL REFERENCES accounts (id),
    digest      bytea NOT NULL CHECK (length(digest) = 32),
    -- The day of which it is a sample. Those of the lowest ranks are kept.
    day         date NOT NULL,
    rank        bigint NOT NULL,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    messages    bigint NOT NULL CHECK (messages > 0),
    score       double precision NOT NULL CHECK (score BETWEEN 0 AND 1),
    text        text NOT NULL,
    -- What an operator decided: it is a service message, or texts like it are refused from now on.
    review      text CHECK (review IN ('fine', 'blocked')),
    reviewed_at timestamptz,
    PRIMARY KEY (account_id, digest),
    CHECK ((review IS NULL) = (reviewed_at IS NULL))
);
CREATE INDEX near_line_texts_of_day ON near_line_texts (account_id, day, rank);
CREATE INDEX near_line_texts_by_age ON near_line_texts (last_at);
CREATE INDEX near_line_texts_to_review ON near_line_texts (last_at) WHERE review IS NULL;
