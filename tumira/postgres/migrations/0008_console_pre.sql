-- Who runs the gateway and what they changed, prices to come, audits, and how long messages take.

-- Somebody who runs the gateway. The first password is made for them, and good once: with it they choose their own,
-- and a second factor, without which nobody comes in.
CREATE TABLE operators (
    id             uuid PRIMARY KEY,
    phone          text NOT NULL UNIQUE,
    name           text NOT NULL,
    role           text NOT NULL CHECK (role IN ('viewer', 'admin')),
    password_hash  text NOT NULL,
    -- Until when a password that was made for them is good; NULL once they have chosen their own.
    one_time_until timestamptz,
    totp_secret    bytea CHECK (length(totp_secret) = 20),
    totp_last_step bigint NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at     timestamptz
);
CREATE TABLE operator_recovery_codes (
    operator_id uuid NOT NULL REFERENCES operators (id),
    sha256      bytea NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (operator_id, sha256)
);
CREATE TABLE operator_sessions (
    id           uuid PRIMARY KEY,
    token_sha256 bytea NOT NULL UNIQUE CHECK (length(token_sha256) = 32),
    operator_id  uuid NOT NULL REFERENCES operators (id),
    -- `new`: to choose a password and a factor; `code`: the factor is awaited; `in`: all is shown.
    stage        text NOT NULL CHECK (stage IN ('new', 'code', 'in')),
    address      text NOT NULL,
    browser      text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE INDEX operator_sessions_of_operator ON operator_sessions (operator_id);
CREATE INDEX operator_sessions_by_age ON operator_sessions (created_at);

-- What operators changed, in the console or at the command line; written with the change, never changed itself.
CREATE TABLE operator_changes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text NOT NULL,
    address    text,
    what       text NOT NULL,
    detail     text NOT NULL DEFAULT '',
    account_id uuid REFERENCES accounts (id)
);
CREATE INDEX operator_changes_of_account ON operator_changes (account_id, id) WHERE account_id IS NOT NULL;
CREATE INDEX operator_changes_of_actor ON operator_changes (actor, id);

-- Refused texts that their owners asked us to look at.
CREATE INDEX content_refusals_to_review ON content_refusals (review_asked_at) WHERE review_asked_at IS NOT NULL;

-- Accounts whose transfers did not come to their balance.
CREATE INDEX ledger_proofs_broken ON ledger_proofs (broken_at) WHERE broken_at IS NOT NULL;

-- The web processes that run, as they last said; workers stand in `workers`.
CREATE TABLE nodes (
    id         text PRIMARY KEY,
    version    text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Prices that count from a moment on; a chore puts them into force.
CREATE TABLE price_schedule (
    channel    text NOT NULL,
    country    text NOT NULL REFERENCES destinations (country),
    price_usd  numeric(14, 4) NOT NULL CHECK (price_usd >= 0),
    from_at    timestamptz NOT NULL,
    set_by     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, country, from_at)
);

-- Audits that were asked for or were due, and what they found.
CREATE TABLE audits (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asked_by    text NOT NULL,
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz,
    finished_at timestamptz,
    -- What is broken, by the check that found it; NULL until it has ended.
    broken      jsonb,
    problem     text
);
CREATE INDEX audits_open ON audits (id) WHERE finished_at IS NULL;

-- Where the traffic of all accounts together is read, by its days.
CREATE INDEX traffic_by_day ON traffic (day);

-- How long messages took, and how they ended, by slots of ten minutes: counted by each worker, added up here.
-- `step`: `handover` from accept to the carrier's answer, `receipt` from there to the final receipt.
CREATE TABLE latencies (
    slot    timestamptz NOT NULL,
    step    text NOT NULL CHECK (step IN ('handover', 'receipt')),
    network text NOT NULL,
    country text NOT NULL,
    lane    smallint NOT NULL,
    bucket  smallint NOT NULL,
    count   bigint NOT NULL,
    PRIMARY KEY (slot, step, network, country, lane, bucket)
) WITH (fillfactor = 50);
CREATE TABLE outcomes (
    slot       timestamptz NOT NULL,
    carrier_id integer NOT NULL,
    network    text NOT NULL,
    country    text NOT NULL,
    -- A final status, or the word of a carrier's answer that was no success.
    outcome    text NOT NULL,
    count      bigint NOT NULL,
    PRIMARY KEY (slot, carrier_id, network, country, outcome)
) WITH (fillfactor = 50);

-- Requests to forget a number. The walk through all that may hold it is long and can be stopped, so how far it is
-- stands here; and what is under way is waited for. At the end the number is forgotten here too.
CREATE TABLE erasures (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text NOT NULL,
    note        text NOT NULL,
    number      text,
    stage       text NOT NULL,
    place       text[] NOT NULL DEFAULT '{}',
    -- Who had sent to it.
    accounts    uuid[] NOT NULL DEFAULT '{}',
    -- What was erased so far, and what has to end before it can be.
    messages    bigint NOT NULL DEFAULT 0,
    others      jsonb NOT NULL DEFAULT '{}',
    waiting     bigint NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CONSTRAINT forgotten_at_the_end CHECK ((number IS NULL) = (finished_at IS NOT NULL))
);
CREATE UNIQUE INDEX erasures_open ON erasures (number) WHERE number IS NOT NULL;

-- Up to which message numbers were cut down to country and last digits, because they are old.
CREATE TABLE number_retention (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    up_to    uuid NOT NULL
);
INSERT INTO number_retention (up_to) VALUES ('00000000-0000-0000-0000-000000000000');

-- The words of which the names of accounts consist, by which operators find them. Not an index of `accounts`, whose
-- rows every call rewrites. Who looks for a name has it cut into words in the same way.
CREATE TABLE account_words (
    account_id uuid NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    word       text COLLATE "C" NOT NULL,
    PRIMARY KEY (account_id, word)
);
CREATE UNIQUE INDEX account_words_by_word ON account_words (word, account_id);
CREATE FUNCTION words_of(given text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT DISTINCT left(lower(word), 40)
      FROM regexp_split_to_table(given, '[\s[:punct:]]+') AS word
     WHERE word <> ''
     LIMIT 100
$$;
CREATE FUNCTION account_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM account_words WHERE account_id = NEW.id;
    INSERT INTO account_words (account_id, word) SELECT NEW.id, words_of(NEW.name || ' ' || NEW.business);
    RETURN NULL;
END $$;
CREATE TRIGGER account_named AFTER INSERT OR UPDATE OF name, business ON accounts
    FOR EACH ROW EXECUTE FUNCTION account_named();
INSERT INTO account_words (account_id, word)
SELECT id, words_of(name || ' ' || business) FROM accounts WHERE phone <> 'system';

-- Forms of the console that move money and were carried out: however often one comes, it counts once.
CREATE TABLE operator_presses (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Top-ups that were paid after they had ended, and wait for an operator.
CREATE INDEX top_ups_paid_late ON top_ups (id)
    WHERE state IN ('failed', 'expired') AND problem LIKE '%was paid after it had%';

-- Endpoints at which nothing arrives now, and those that get nothing any more.
CREATE INDEX webhook_endpoints_failing ON webhook_endpoints (failing_since) WHERE failing_since IS NOT NULL;
CREATE INDEX webhook_endpoints_disabled ON webhook_endpoints (id) WHERE state = 'disabled';
