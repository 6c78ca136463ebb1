-- From where on rows are kept, and the old weeks that are on their way out.

-- What is below `id` is gone, or goes: nothing is compared with it any more. What is above `sure_from` has all its
-- company, whatever the clocks of those who wrote it said around the border.
CREATE TABLE kept_from (
    kind      text PRIMARY KEY CHECK (kind IN ('messages', 'events', 'attempts')),
    id        uuid NOT NULL,
    sure_from uuid NOT NULL
);
-- Weeks may have been dropped by hand: what is kept begins with the oldest that is there.
INSERT INTO kept_from (kind, id, sure_from)
SELECT kind, coalesce(oldest, '00000000-0000-0000-0000-000000000000'),
       coalesce(oldest, '00000000-0000-0000-0000-000000000000')
  FROM (VALUES ('messages', 'batches'), ('events', 'events'), ('attempts', 'webhook_attempts'))
       AS parent (kind, name)
  LEFT JOIN LATERAL (
       SELECT substring(pg_get_expr(week.relpartbound, week.oid) FROM 'FROM \(''([0-9a-f-]{36})''\)')::uuid AS oldest
         FROM pg_inherits
         JOIN pg_class AS week ON week.oid = inhrelid
        WHERE inhparent = parent.name::regclass
        ORDER BY oldest
        LIMIT 1
       ) AS found ON true;

-- Weeks that were looked at and found whole. Each is detached, looked at once more, and dropped; whoever dies on the
-- way leaves it here for the next one.
CREATE TABLE leaving_weeks (
    name   text PRIMARY KEY,
    parent text NOT NULL,
    kind   text NOT NULL REFERENCES kept_from (kind),
    low    uuid NOT NULL,
    high   uuid NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp()
);
