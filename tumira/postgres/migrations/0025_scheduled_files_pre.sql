-- The file of a scheduled send as it was uploaded, so that its text can be changed without it.
CREATE TABLE scheduled_files (
    schedule_id uuid PRIMARY KEY REFERENCES schedules (id) ON DELETE CASCADE,
    file_name   text NOT NULL,
    data        bytea NOT NULL CHECK (length(data) <= 5242880),
    message     text NOT NULL,
    country     text NOT NULL,
    reference   text NOT NULL,
    sheet       text NOT NULL,
    sheets      text[] NOT NULL,
    -- Since when it is here.
    kept_at     timestamptz NOT NULL
);
CREATE INDEX scheduled_files_by_age ON scheduled_files (kept_at);

-- When a file shall be sent, as chosen before its check, and the scheduled send that it changes.
ALTER TABLE kept_files
    ADD COLUMN start_at timestamptz,
    ADD COLUMN replaces uuid;
ALTER TABLE uploads
    ADD COLUMN start_at timestamptz,
    ADD COLUMN replaces uuid;
