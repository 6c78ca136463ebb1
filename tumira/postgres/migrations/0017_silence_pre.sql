-- A message that was in doubt at one carrier is sent again through another, and a carrier that does not answer is shown.
-- outside a transaction

-- The carrier that a message in the queue avoids, and until when.
ALTER TABLE queue ADD COLUMN IF NOT EXISTS avoid integer, ADD COLUMN IF NOT EXISTS avoid_until timestamptz;
-- Whether the line is there and submits are not answered.
ALTER TABLE binds ADD COLUMN IF NOT EXISTS silent boolean NOT NULL DEFAULT false;

DROP INDEX CONCURRENTLY IF EXISTS queue_avoiding;
CREATE INDEX CONCURRENTLY queue_avoiding ON queue (lane, turn, message_id) WHERE avoid IS NOT NULL;
