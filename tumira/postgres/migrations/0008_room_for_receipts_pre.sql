-- A receipt is written into the row of its segment. With room for it in the page, it needs no new index entries.
-- Later weeks are made so by postgres/partitions.py.
DO $$
DECLARE
    week regclass;
BEGIN
    FOR week IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'parts'::regclass AND NOT inhdetachpending LOOP
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 30)', week);
    END LOOP;
END $$;
