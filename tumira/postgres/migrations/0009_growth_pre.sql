-- Messages are found by number through summaries of their pages, which cost an accept next to nothing.
-- outside a transaction

-- When a message was accepted stands in it too, in words that are not those of the primary key, so that nobody takes
-- the one index for the other. A page has 34 messages at first, of which each may be to another number.
CREATE INDEX IF NOT EXISTS messages_by_number ON ONLY messages USING brin (
    uuid_send(id), recipient text_bloom_ops (n_distinct_per_range = 1100, false_positive_rate = 0.001)
) WITH (pages_per_range = 32);

-- for each week of messages without messages_by_number
DROP INDEX IF EXISTS {week}_by_number;
CREATE INDEX CONCURRENTLY {week}_by_number ON {week} USING brin (
    uuid_send(id), recipient text_bloom_ops (n_distinct_per_range = 1100, false_positive_rate = 0.001)
) WITH (pages_per_range = 32);
-- A page is summarised when the week is vacuumed: after so many new messages, however many there are.
ALTER TABLE {week} SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000);
ALTER INDEX messages_by_number ATTACH PARTITION {week}_by_number;
