-- outside a transaction

-- When the numbers and texts of a sent file were erased. The rest shows its batches as one file.
ALTER TABLE uploads ADD COLUMN IF NOT EXISTS erased_at timestamptz;

-- Files that still hold numbers and texts, the oldest first.
DROP INDEX CONCURRENTLY IF EXISTS uploads_to_erase;
CREATE INDEX CONCURRENTLY uploads_to_erase ON uploads (created_at) WHERE erased_at IS NULL;
