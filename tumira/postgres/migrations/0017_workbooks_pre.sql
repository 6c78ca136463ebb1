-- Of a kept workbook: the sheet that was chosen, and the sheets that have rows.
ALTER TABLE kept_files
    ADD COLUMN sheet  text NOT NULL DEFAULT '',
    ADD COLUMN sheets text[] NOT NULL DEFAULT '{}';

-- How many rows of a checked sheet are hidden in its workbook. They are rows as all others.
ALTER TABLE uploads ADD COLUMN hidden_rows integer NOT NULL DEFAULT 0;
