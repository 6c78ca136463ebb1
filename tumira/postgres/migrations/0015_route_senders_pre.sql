-- The sender that recipients see by this route, where the account has no name of its own; NULL for the carrier's.
ALTER TABLE routes ADD COLUMN sender text;
