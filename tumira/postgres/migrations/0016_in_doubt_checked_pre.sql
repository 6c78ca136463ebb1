ALTER TABLE carriers VALIDATE CONSTRAINT carriers_in_doubt_check;
