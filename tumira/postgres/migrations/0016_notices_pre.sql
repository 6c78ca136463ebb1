-- A file that is being checked beside the web process: one for each account, so a newer one takes its place. The row is
-- how every node knows how far the check is, and how the check knows whether anybody still waits for it.
CREATE TABLE file_checks (
    account_id   uuid PRIMARY KEY REFERENCES accounts (id),
    -- The upload that the file becomes.
    upload_id    uuid NOT NULL UNIQUE,
    file_name    text NOT NULL,
    rows         integer NOT NULL DEFAULT 0,
    done         integer NOT NULL DEFAULT 0,
    -- Why the file cannot be used, or why its check ended early; NULL while it goes on.
    problem      text,
    -- When the process that checks last said that it does, and until when somebody waits.
    alive_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    wanted_until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX file_checks_by_age ON file_checks (alive_at);

-- The version of the templates by which the rows that are left were screened, and how many rows were refused after the
-- file was checked. NULL for files of older versions: they are screened again.
ALTER TABLE uploads ADD COLUMN policy_version bigint;
ALTER TABLE uploads ADD COLUMN refused integer NOT NULL DEFAULT 0;
-- The lines of the rows that are sent only because a template allows them; NULL where nobody noted that.
ALTER TABLE upload_chunks ADD COLUMN by_template integer[];
-- How many of its messages go to which country in how many segments, so that a page prices a file without its texts; NULL
-- for files of older versions.
ALTER TABLE upload_chunks ADD COLUMN leg_countries text[];
ALTER TABLE upload_chunks ADD COLUMN leg_segments smallint[];
ALTER TABLE upload_chunks ADD COLUMN leg_counts integer[];

-- How many notices about one kind of change were sent to one account or operator since a moment.
CREATE TABLE security_notices (
    subject uuid NOT NULL,
    kind    text NOT NULL,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    count   integer NOT NULL,
    PRIMARY KEY (subject, kind)
) WITH (fillfactor = 50);
