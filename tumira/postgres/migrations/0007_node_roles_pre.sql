-- What a process does that has no carriers and so is no worker: web, or webhooks alone.
ALTER TABLE nodes ADD COLUMN role text NOT NULL DEFAULT 'web' CHECK (role IN ('web', 'webhooks'));
