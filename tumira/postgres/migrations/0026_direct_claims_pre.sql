-- Whether a message was claimed with its accept, for a worker on the same machine (sending/direct/claims.py).
ALTER TABLE in_flight ADD COLUMN is_direct boolean NOT NULL DEFAULT false;
