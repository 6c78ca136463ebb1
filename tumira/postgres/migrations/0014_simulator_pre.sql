-- Which carriers are the simulator of `tumira serve`, whatever their name: it takes no message that another carrier can.
ALTER TABLE carriers ADD COLUMN simulator boolean NOT NULL DEFAULT false;
UPDATE carriers SET simulator = true WHERE name = 'simulator' AND host = '127.0.0.1' AND system_id = 'simulator';

-- Nobody binds to a removed carrier, so its password is not kept.
UPDATE carriers SET password = '' WHERE removed_at IS NOT NULL;
