-- Who may try how often, which codes were really sent, and which numbers were proved by the phone itself.

-- A browser in which somebody has signed in. It has tries of its own, so that strangers who guess cannot keep
-- its owner out. The number is that of a customer, or `operator:` and that of an operator.
CREATE TABLE devices (
    phone        text NOT NULL,
    token_sha256 bytea NOT NULL CHECK (length(token_sha256) = 32),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (phone, token_sha256)
);
CREATE INDEX devices_of_token ON devices (token_sha256);
CREATE INDEX devices_by_age ON devices (seen_at);

-- What was tried: tries of one kind do not use up those of another.
ALTER TABLE attempts ADD COLUMN kind text NOT NULL DEFAULT 'password';

-- Whether a text was sent: a forgotten password of a number without an account sends none, and must not use up
-- what is for others. And which known browser asked, if one did.
ALTER TABLE codes
    ADD COLUMN sent boolean NOT NULL DEFAULT true,
    ADD COLUMN device_sha256 bytea,
    -- The code of the e-mail is another one than that of the text: so it is known which of them was proved.
    ADD COLUMN email_hash text;

-- NULL where a sign-up was confirmed by e-mail alone. Of the accounts before nobody knows; they count as proved,
-- or their owners could do nothing from one day to the next.
ALTER TABLE logins ADD COLUMN phone_proved_at timestamptz DEFAULT now();
