-- Money of all accounts by day and books, added up from the transfers by a task of the worker.
CREATE TABLE money_days (
    day       date NOT NULL,
    from_book text NOT NULL,
    to_book   text NOT NULL,
    transfers bigint NOT NULL,
    amount    numeric(20, 4) NOT NULL,
    PRIMARY KEY (day, from_book, to_book)
) WITH (fillfactor = 50);

-- Transfers are added up to `transfer_id`. Those up to `ready_id` are all committed or gone once every
-- transaction below `ready_xid` has ended: a transfer with a lower id may be committed after one with a higher.
CREATE TABLE money_cursor (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    transfer_id bigint NOT NULL,
    ready_id    bigint NOT NULL,
    ready_xid   bigint NOT NULL
);
INSERT INTO money_cursor (transfer_id, ready_id, ready_xid) VALUES (0, 0, 0);
