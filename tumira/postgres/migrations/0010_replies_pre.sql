-- Replies of recipients, and their opt-outs.

-- What carriers delivered, as it came. Kept for some days, so that what is delivered again is recognised.
CREATE TABLE reply_parts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    carrier_id  integer NOT NULL,
    -- Of the carrier's own id where it has one, else of everything that came.
    digest      bytea NOT NULL CHECK (length(digest) = 32),
    -- The person's number and ours, as far as they could be read.
    number      text NOT NULL,
    destination text NOT NULL,
    -- NULL for a text that came as UTF-8.
    data_coding smallint,
    payload     bytea NOT NULL,
    -- Which part of a long text it is.
    reference   integer NOT NULL,
    total       smallint NOT NULL CHECK (total BETWEEN 1 AND 255),
    part        smallint NOT NULL CHECK (part BETWEEN 1 AND total),
    received_at timestamptz NOT NULL,
    -- From when on the same again is another text; NULL while the carrier may deliver this one again.
    sure_at     timestamptz,
    -- The reply that it became a part of.
    reply_id    uuid
);
CREATE INDEX reply_parts_by_digest ON reply_parts (carrier_id, digest);
CREATE INDEX reply_parts_open ON reply_parts (id) WHERE reply_id IS NULL;
CREATE INDEX reply_parts_by_age ON reply_parts (received_at) WHERE reply_id IS NOT NULL;
CREATE INDEX reply_parts_of_number ON reply_parts (number);

CREATE TABLE replies (
    id          uuid PRIMARY KEY,
    -- NULL where no account had written to the number.
    account_id  uuid REFERENCES accounts (id),
    carrier_id  integer NOT NULL,
    number      text NOT NULL,
    destination text NOT NULL,
    -- NULL once it is erased.
    text        text,
    -- How many parts came, and how many the text has.
    parts       smallint NOT NULL CHECK (parts > 0),
    total       smallint NOT NULL CHECK (total >= parts),
    -- The message that it answers.
    message_id  uuid,
    meaning     text CHECK (meaning IN ('stop', 'start', 'maybe_stop')),
    received_at timestamptz NOT NULL
);
CREATE INDEX replies_of_account ON replies (account_id, id);
CREATE INDEX replies_of_number ON replies (number, id);
CREATE INDEX replies_with_text ON replies (id) WHERE text IS NOT NULL;

-- The numbers that get no more messages from an account.
CREATE TABLE opt_outs (
    account_id uuid NOT NULL REFERENCES accounts (id),
    number     text NOT NULL,
    source     text NOT NULL CHECK (source IN ('reply', 'page', 'import')),
    added_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account_id, number)
);
CREATE INDEX opt_outs_by_age ON opt_outs (account_id, added_at, number);

-- Set with the first opt-out of an account: a call of any other account looks for none.
ALTER TABLE accounts ADD COLUMN has_opt_outs boolean NOT NULL DEFAULT false;

-- The words that opt a recipient out and in again. A word that is not active is only shown beside the reply.
CREATE TABLE reply_keywords (
    word      text PRIMARY KEY CHECK (word ~ '^[^\s]+( [^\s]+)*$' AND length(word) <= 40),
    meaning   text NOT NULL CHECK (meaning IN ('stop', 'start')),
    language  text NOT NULL,
    is_active boolean NOT NULL DEFAULT true,
    -- Also where it is the first of several words.
    leads     boolean NOT NULL DEFAULT false
);
INSERT INTO reply_keywords (word, meaning, language, is_active, leads) VALUES
    ('stop', 'stop', 'English', true, true),
    ('stopall', 'stop', 'English', true, false),
    ('stop all', 'stop', 'English', true, false),
    ('unsubscribe', 'stop', 'English', true, false),
    ('opt out', 'stop', 'English', true, false),
    ('optout', 'stop', 'English', true, false),
    ('cancel', 'stop', 'English', true, false),
    ('end', 'stop', 'English', true, false),
    ('quit', 'stop', 'English', true, false),
    ('remove', 'stop', 'English', true, false),
    ('block', 'stop', 'English', true, false),
    ('start', 'start', 'English', true, false),
    ('unstop', 'start', 'English', true, false),
    ('opt in', 'start', 'English', true, false),
    ('optin', 'start', 'English', true, false),
    ('subscribe', 'start', 'English', true, false),
    -- To be confirmed by speakers of each language before they act.
    ('staak', 'stop', 'Afrikaans', false, false),
    ('phuma', 'stop', 'isiZulu', false, false),
    ('misa', 'stop', 'isiZulu, isiXhosa, Ndebele', false, false),
    ('yeka', 'stop', 'isiZulu, isiXhosa', false, false),
    ('yekela', 'stop', 'Ndebele', false, false),
    ('lisa', 'stop', 'isiNdebele', false, false),
    ('emisa', 'stop', 'Sesotho, Setswana, Sepedi', false, false),
    ('kgaotsa', 'stop', 'Sesotho, Setswana, Sepedi', false, false),
    ('tlohela', 'stop', 'Sesotho', false, false),
    ('mira', 'stop', 'Shona', false, false),
    ('rega', 'stop', 'Shona', false, false),
    ('misai', 'stop', 'Shona', false, false);

CREATE TABLE opt_out_settings (
    only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Whether an opt-out also stops one-time codes.
    covers_passcodes boolean NOT NULL DEFAULT false,
    -- The text that confirms an opt-out; NULL for none.
    confirmation     text
);
INSERT INTO opt_out_settings DEFAULT VALUES;
