-- Tax by country of the seller, each rate from a day on; `tumira tax set` adds others.
CREATE TABLE tax_rates (
    country    text NOT NULL CHECK (country ~ '^[A-Z]{2}$'),
    from_day   date NOT NULL,
    -- In percent, and included in every amount.
    rate       numeric(5, 2) NOT NULL CHECK (rate BETWEEN 0 AND 99.99),
    -- What a paper with this tax is called.
    heading    text NOT NULL CHECK (length(heading) BETWEEN 1 AND 40),
    set_by     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (country, from_day)
);
-- A Zimbabwean tax invoice needs a fiscal device, so the paper does not claim to be one.
INSERT INTO tax_rates (country, from_day, rate, heading, set_by) VALUES
    ('ZW', '2026-01-01', 15.5, 'Invoice', 'tumira'),
    ('ZA', '2026-01-01', 15, 'Tax invoice', 'tumira');

-- What stands on an account's papers from now on, and where its monthly statement is sent.
CREATE TABLE billing_details (
    account_id      uuid PRIMARY KEY REFERENCES accounts (id),
    name            text NOT NULL DEFAULT '',
    address         text NOT NULL DEFAULT '',
    tax_number      text NOT NULL DEFAULT '',
    -- NULL where no statement is wanted by mail.
    statement_email text,
    -- The last month whose statement was mailed.
    mailed_month    date
);
CREATE INDEX billing_details_by_mail ON billing_details (mailed_month) WHERE statement_email IS NOT NULL;

-- The last number of each series; a number is given in the transaction that stores its paper.
CREATE TABLE paper_series (
    series text PRIMARY KEY,
    last   bigint NOT NULL DEFAULT 0 CHECK (last >= 0)
);
INSERT INTO paper_series (series) VALUES ('INV'), ('REC'), ('CN');

-- Invoices, receipts and credit notes, whole as they are printed. In the series '' are receipts of credits before
-- there were papers: their numbers are those of their ledger entries.
CREATE TABLE papers (
    series      text NOT NULL CHECK (series IN ('', 'INV', 'REC', 'CN')),
    number      bigint NOT NULL CHECK (number > 0),
    account_id  uuid NOT NULL REFERENCES accounts (id),
    transfer_id bigint NOT NULL UNIQUE REFERENCES transfers (id),
    total       numeric(14, 4) NOT NULL CHECK (total > 0),
    -- NULL where no tax is shown.
    tax         numeric(14, 4) CHECK (tax BETWEEN 0 AND total),
    content     text NOT NULL,
    issued_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (series, number)
);
CREATE INDEX papers_of_account ON papers (account_id, transfer_id);

-- Statements of months that have ended; papers/statements.py says when one is stored.
CREATE TABLE statements (
    account_id uuid NOT NULL REFERENCES accounts (id),
    month      date NOT NULL CHECK (extract(day FROM month) = 1),
    -- The account's transfers from `first_id` to below `next_id`.
    first_id   bigint NOT NULL CHECK (first_id >= 0),
    next_id    bigint NOT NULL,
    movements  bigint NOT NULL CHECK (movements >= 0),
    opening    numeric(14, 4) NOT NULL,
    closing    numeric(14, 4) NOT NULL,
    content    text NOT NULL,
    closed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account_id, month),
    CHECK (next_id >= first_id)
);

CREATE FUNCTION papers_are_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a paper is never changed';
END $$;
CREATE TRIGGER papers_are_final BEFORE UPDATE OR DELETE ON papers
    FOR EACH STATEMENT EXECUTE FUNCTION papers_are_final();
CREATE TRIGGER statements_are_final BEFORE UPDATE OR DELETE ON statements
    FOR EACH STATEMENT EXECUTE FUNCTION papers_are_final();

-- Transfers whose paper is to be made.
CREATE TABLE papers_due (
    transfer_id bigint PRIMARY KEY,
    -- Whether the paper has the number of its ledger entry, as receipts had before.
    by_entry    boolean NOT NULL DEFAULT false
);

-- A trigger, so that a version before this one, which runs beside it, does it too.
CREATE FUNCTION top_up_needs_paper() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO papers_due (transfer_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER top_up_needs_paper AFTER INSERT ON transfers
    FOR EACH ROW WHEN (NEW.top_up_id IS NOT NULL) EXECUTE FUNCTION top_up_needs_paper();
INSERT INTO papers_due (transfer_id, by_entry)
SELECT id, true
  FROM transfers
 WHERE batch_id IS NULL
   AND to_book = 'customer';

-- What is sent with a mail.
ALTER TABLE mails
    ADD COLUMN attachment bytea CHECK (length(attachment) <= 4194304),
    ADD COLUMN attachment_name text;
