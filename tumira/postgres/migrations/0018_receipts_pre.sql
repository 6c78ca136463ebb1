-- outside a transaction
-- A receipt counts for a message in doubt only if it came after the message was claimed. And receipts that match
-- nothing are found by the number they are for, and are tried in turns: each carrier's by themselves.

-- Of a doubt: when the message had been claimed, by the clock of the database. NULL where older code wrote it.
ALTER TABLE incidents ADD COLUMN IF NOT EXISTS claimed_at timestamptz;

-- The last eight digits are the same however a carrier writes the number.
DROP INDEX CONCURRENTLY IF EXISTS unmatched_receipts_of_number;
CREATE INDEX CONCURRENTLY unmatched_receipts_of_number ON unmatched_receipts (carrier_id, right(recipient, 8), id);

DROP INDEX CONCURRENTLY IF EXISTS unmatched_receipts_of_carrier;
CREATE INDEX CONCURRENTLY unmatched_receipts_of_carrier ON unmatched_receipts (carrier_id, next_try_at);
