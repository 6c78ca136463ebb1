-- Lists of contacts, and texts that an account sends often.
CREATE TABLE contact_lists (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts (id),
    name       text NOT NULL CHECK (name <> ''),
    -- The names of the columns beside the number.
    columns    text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX contact_lists_by_name ON contact_lists (account_id, lower(name));

CREATE TABLE contacts (
    list_id  uuid NOT NULL REFERENCES contact_lists (id) ON DELETE CASCADE,
    -- In the order of its digits, as pages and sends go through a list.
    number   text COLLATE "C" NOT NULL,
    -- One for each column of the list; empty ones at the end may be missing.
    cells    text[] NOT NULL,
    added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (list_id, number)
);
CREATE INDEX contacts_by_number ON contacts (number);

CREATE TABLE saved_texts (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts (id),
    name       text NOT NULL CHECK (name <> ''),
    -- With places such as {name}.
    message    text NOT NULL CHECK (message <> ''),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX saved_texts_by_name ON saved_texts (account_id, lower(name));
