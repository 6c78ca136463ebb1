-- outside a transaction

-- One login for a person, and what is found by its person.
DROP INDEX CONCURRENTLY IF EXISTS logins_of_person;
CREATE UNIQUE INDEX CONCURRENTLY logins_of_person ON logins (person_id);
DROP INDEX CONCURRENTLY IF EXISTS recovery_codes_of_person;
CREATE UNIQUE INDEX CONCURRENTLY recovery_codes_of_person ON recovery_codes (person_id, sha256);
DROP INDEX CONCURRENTLY IF EXISTS sessions_of_person;
CREATE INDEX CONCURRENTLY sessions_of_person ON sessions (person_id, id);
DROP INDEX CONCURRENTLY IF EXISTS sessions_of_member;
CREATE INDEX CONCURRENTLY sessions_of_member ON sessions (member_of, person_id);
