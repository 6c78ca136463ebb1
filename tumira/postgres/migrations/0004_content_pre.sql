-- Which texts the operator allows or blocks whatever the judge says, and which were refused.

-- Whether the operator may keep refused texts of the account, to look at them.
ALTER TABLE accounts ADD COLUMN review_consent boolean NOT NULL DEFAULT false;

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

-- A row for each text of an account that was refused; texts that differ in their numbers alone share one.
CREATE TABLE content_refusals (
    account_id uuid NOT NULL REFERENCES accounts (id),
    digest     bytea NOT NULL CHECK (length(digest) = 32),
    first_at   timestamptz NOT NULL,
    last_at    timestamptz NOT NULL,
    count      bigint NOT NULL CHECK (count > 0),
    category   text NOT NULL,
    score      double precision NOT NULL CHECK (score BETWEEN 0 AND 1),
    -- The words that weighed, each with its category; never more of the text than these.
    reasons    jsonb NOT NULL,
    -- NULL unless the account consents to review.
    text       text,
    PRIMARY KEY (account_id, digest)
);
CREATE INDEX content_refusals_of_account ON content_refusals (account_id, last_at);
CREATE INDEX content_refusals_by_age ON content_refusals (last_at);
