-- The operator's answer to the last request to review a refused text: whether such texts may be sent, and why.
ALTER TABLE content_refusals
    ADD COLUMN review_allowed boolean,
    ADD COLUMN review_answer  text;

-- The last file that an account uploaded, with its message, so that a correction does not need it again.
CREATE TABLE kept_files (
    account_id uuid PRIMARY KEY REFERENCES accounts (id),
    id         uuid NOT NULL,
    file_name  text NOT NULL,
    data       bytea NOT NULL CHECK (length(data) <= 5242880),
    message    text NOT NULL,
    country    text NOT NULL,
    reference  text NOT NULL,
    -- Its check, once that began.
    upload_id  uuid,
    kept_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX kept_files_by_age ON kept_files (kept_at);
