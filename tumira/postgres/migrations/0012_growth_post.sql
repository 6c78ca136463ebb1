-- The index in the order of numbers, by which older versions search.

DROP INDEX messages_by_recipient;
