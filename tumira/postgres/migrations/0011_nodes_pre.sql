-- Which version each process has, and up to which migration its code knows the schema: what it needs is not taken away
-- while it runs. NULL for processes of versions that did not say so.
ALTER TABLE nodes ADD COLUMN last_step integer;
ALTER TABLE workers ADD COLUMN version text, ADD COLUMN last_step integer;
