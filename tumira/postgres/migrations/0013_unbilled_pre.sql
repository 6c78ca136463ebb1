-- What an account had stored on the day `spent_on` by sends that cost nothing, in octets.

ALTER TABLE accounts ADD COLUMN unbilled_today bigint NOT NULL DEFAULT 0;
