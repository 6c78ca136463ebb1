-- What data_coding 0 means to a carrier over SMPP.
ALTER TABLE carriers ADD COLUMN alphabet text NOT NULL DEFAULT 'gsm7' CHECK (alphabet IN ('gsm7', 'latin1', 'ascii'));
