-- Who signs in: a person has one phone and one password, and belongs to accounts, with a role in each.
CREATE TABLE people (
    id         uuid PRIMARY KEY,
    phone      text NOT NULL UNIQUE,
    name       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE members (
    account_id uuid NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    person_id  uuid NOT NULL REFERENCES people (id),
    -- identity/roles.py says what each may do.
    role       text NOT NULL CHECK (role IN ('owner', 'developer', 'finance', 'sender', 'viewer')),
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When the person last chose this account, of several.
    used_at    timestamptz,
    PRIMARY KEY (account_id, person_id)
);
CREATE INDEX members_of_person ON members (person_id);

-- An account begins with the person of its number as its owner. A trigger, so that versions before this one do it too.
CREATE FUNCTION account_has_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO people (id, phone, name) VALUES (NEW.id, NEW.phone, NEW.name) ON CONFLICT (phone) DO NOTHING;
    INSERT INTO members (account_id, person_id, role)
    SELECT NEW.id, p.id, 'owner' FROM people p WHERE p.phone = NEW.phone;
    RETURN NULL;
END
$$;

-- Twice: most accounts before the trigger locks the table, and those that were opened meanwhile.
INSERT INTO people (id, phone, name, created_at) SELECT id, phone, name, created_at FROM accounts WHERE phone <> 'system';
CREATE TRIGGER account_has_owner AFTER INSERT ON accounts
    FOR EACH ROW WHEN (NEW.phone <> 'system') EXECUTE FUNCTION account_has_owner();
INSERT INTO people (id, phone, name, created_at) SELECT id, phone, name, created_at FROM accounts WHERE phone <> 'system'
    ON CONFLICT DO NOTHING;
INSERT INTO members (account_id, person_id, role, since)
SELECT a.id, p.id, 'owner', a.created_at FROM accounts a JOIN people p ON p.phone = a.phone
    ON CONFLICT DO NOTHING;

-- Passwords, codes and sessions are a person's. Triggers fill in what one version writes and another reads: versions
-- before this one know `account_id` alone, and let whoever it stands for into that account as its owner. So for
-- everybody who is not, or no longer, the owner that opened the account, it is the id of no account, or NULL.
CREATE FUNCTION login_of_person() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.person_id IS NULL THEN
        SELECT p.id INTO NEW.person_id FROM accounts a JOIN people p ON p.phone = a.phone WHERE a.id = NEW.account_id;
    ELSE
        NEW.account_id := coalesce(
            (SELECT account_id FROM members
              WHERE account_id = NEW.person_id AND person_id = NEW.person_id AND role = 'owner'),
            gen_random_uuid());
    END IF;
    RETURN NEW;
END
$$;
ALTER TABLE logins ADD COLUMN person_id uuid REFERENCES people (id);
UPDATE logins SET person_id = account_id;
ALTER TABLE logins DROP CONSTRAINT logins_account_id_fkey;
CREATE TRIGGER login_of_person BEFORE INSERT ON logins FOR EACH ROW EXECUTE FUNCTION login_of_person();

CREATE FUNCTION code_of_person() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.person_id IS NULL THEN
        SELECT p.id INTO NEW.person_id FROM accounts a JOIN people p ON p.phone = a.phone WHERE a.id = NEW.account_id;
    ELSE
        SELECT l.account_id INTO NEW.account_id FROM logins l WHERE l.person_id = NEW.person_id;
    END IF;
    RETURN NEW;
END
$$;
ALTER TABLE recovery_codes ADD COLUMN person_id uuid REFERENCES people (id);
UPDATE recovery_codes SET person_id = account_id;
ALTER TABLE recovery_codes DROP CONSTRAINT recovery_codes_account_id_fkey;
CREATE TRIGGER code_of_person BEFORE INSERT ON recovery_codes FOR EACH ROW EXECUTE FUNCTION code_of_person();
ALTER TABLE half_sessions ADD COLUMN person_id uuid REFERENCES people (id);
ALTER TABLE half_sessions DROP CONSTRAINT half_sessions_account_id_fkey;
UPDATE half_sessions SET person_id = account_id;
CREATE TRIGGER code_of_person BEFORE INSERT ON half_sessions FOR EACH ROW EXECUTE FUNCTION code_of_person();

-- `member_of` is the account that the session is in.
CREATE FUNCTION session_of_person() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.person_id IS NULL THEN
        SELECT a.id, p.id INTO NEW.member_of, NEW.person_id
          FROM accounts a JOIN people p ON p.phone = a.phone WHERE a.id = NEW.account_id;
    ELSE
        NEW.account_id := (SELECT l.account_id FROM logins l
                            WHERE l.person_id = NEW.person_id AND l.account_id = NEW.member_of);
    END IF;
    RETURN NEW;
END
$$;
ALTER TABLE sessions ADD COLUMN person_id uuid REFERENCES people (id), ADD COLUMN member_of uuid REFERENCES accounts (id),
    ALTER COLUMN account_id DROP NOT NULL;
UPDATE sessions SET person_id = account_id, member_of = account_id;
CREATE TRIGGER session_of_person BEFORE INSERT OR UPDATE OF member_of ON sessions
    FOR EACH ROW EXECUTE FUNCTION session_of_person();

CREATE FUNCTION no_longer_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE logins SET account_id = gen_random_uuid() WHERE person_id = OLD.person_id AND account_id = OLD.account_id;
    UPDATE sessions SET account_id = NULL WHERE person_id = OLD.person_id AND account_id = OLD.account_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER no_longer_owner AFTER DELETE OR UPDATE OF role ON members
    FOR EACH ROW WHEN (OLD.role = 'owner') EXECUTE FUNCTION no_longer_owner();

-- Who made a change: `actor` is their name then. NULL for operators, and for changes before there were people.
ALTER TABLE changes ADD COLUMN person_id uuid REFERENCES people (id);

-- Invitations to an account, each for one number.
CREATE TABLE invites (
    id           uuid PRIMARY KEY,
    account_id   uuid NOT NULL REFERENCES accounts (id),
    phone        text NOT NULL,
    role         text NOT NULL CHECK (role IN ('owner', 'developer', 'finance', 'sender', 'viewer')),
    -- The secret of the link, and the code beside it.
    token_sha256 bytea NOT NULL UNIQUE CHECK (length(token_sha256) = 32),
    code_hash    text NOT NULL,
    tries        smallint NOT NULL DEFAULT 0 CHECK (tries BETWEEN 0 AND 5),
    invited_by   uuid NOT NULL REFERENCES people (id),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When each text was sent: they are limited by account and by number.
    sent_at      timestamptz[] NOT NULL DEFAULT ARRAY[clock_timestamp()],
    ended_at     timestamptz,
    -- How it ended.
    state        text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'accepted', 'revoked')),
    CHECK ((state = 'open') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX invites_open ON invites (account_id, phone) WHERE state = 'open';
CREATE INDEX invites_of_account ON invites (account_id, created_at);
CREATE INDEX invites_of_phone ON invites (phone, created_at);
CREATE INDEX invites_by_age ON invites (created_at);
