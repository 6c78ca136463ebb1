-- Money that comes in: through Paynow, as USDT on BNB Smart Chain, and by vouchers.

-- One payment of an account's owner. It is credited once, by one transfer that names it.
CREATE TABLE top_ups (
    id                 uuid PRIMARY KEY,
    account_id         uuid NOT NULL REFERENCES accounts (id),
    method             text NOT NULL CHECK (method IN ('paynow', 'usdt', 'voucher')),
    -- The wallet, the network, or who issued the voucher.
    provider           text NOT NULL,
    state              text NOT NULL DEFAULT 'started' CHECK (state IN (
        'started', 'pending', 'doubt', 'credited', 'failed', 'expired', 'reversed'
    )),
    -- What the provider was asked to take, in the currency in which it is paid; NULL for all that there is.
    currency           text NOT NULL CHECK (currency IN ('USD', 'USDT', 'ZAR')),
    asked              numeric(14, 2) CHECK (asked > 0),
    -- What was taken, and what the account got for it.
    paid               numeric(38, 18) CHECK (paid > 0),
    amount             numeric(14, 4) CHECK (amount > 0),
    -- How many of the currency made a dollar when it was started, and since when the operator says so.
    rate               numeric(14, 6) NOT NULL DEFAULT 1 CHECK (rate > 0),
    rate_on            date,
    -- The phone of the wallet, or where change is sent.
    phone              text,
    provider_reference text,
    -- What the provider gave us: where to ask, what to show the customer.
    kept               jsonb NOT NULL DEFAULT '{}',
    -- Why it failed, in one word; what is unclear, for the operator.
    reason             text,
    problem            text,
    -- A voucher's PIN while it may still be needed, sealed; and a keyed hash of it, so that nobody tries it twice at
    -- once. The change is a new voucher, which is the customer's: sealed until they say that they have it.
    sealed_pin         bytea,
    pin_hash           bytea CHECK (length(pin_hash) = 32),
    sealed_change      bytea,
    -- What could not be taken back from the balance.
    owed               numeric(14, 4) NOT NULL DEFAULT 0 CHECK (owed >= 0),
    -- When somebody has to look at it again; NULL when nobody has to.
    due_at             timestamptz DEFAULT clock_timestamp(),
    -- When the provider was asked for the money, or may have been: it is never asked twice.
    asked_at           timestamptz,
    tries              integer NOT NULL DEFAULT 0,
    -- The operator's word on one that was in doubt.
    note               text,
    resolved_by        text,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at        timestamptz,
    CONSTRAINT credited_says_what CHECK (
        state NOT IN ('credited', 'reversed')
        OR (amount IS NOT NULL AND paid IS NOT NULL AND provider_reference IS NOT NULL)
    )
);
CREATE INDEX top_ups_of_account ON top_ups (account_id, id);
CREATE INDEX top_ups_due ON top_ups (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX top_ups_by_state ON top_ups (state, id);
-- What a provider took once is credited once, whichever of our rows it is told for.
CREATE UNIQUE INDEX top_ups_credited_once ON top_ups (
    (CASE method WHEN 'paynow' THEN 'paynow' ELSE provider END), provider_reference
) WHERE state IN ('credited', 'reversed');
CREATE UNIQUE INDEX top_ups_one_try_per_pin ON top_ups (provider, pin_hash)
    WHERE pin_hash IS NOT NULL AND state IN ('started', 'pending', 'doubt');

-- A top-up moves money once to the customer, and at most once back.
ALTER TABLE transfers ADD COLUMN top_up_id uuid;
ALTER TABLE transfers ADD CONSTRAINT a_top_up_is_named CHECK (
    (from_book LIKE 'topup:%' OR to_book LIKE 'topup:%') = (top_up_id IS NOT NULL)
) NOT VALID;
CREATE UNIQUE INDEX transfers_one_each_way_per_top_up ON transfers (top_up_id, to_book) WHERE top_up_id IS NOT NULL;

-- Vouchers that the operator issues. Their codes are long, so that a plain hash keeps them secret.
CREATE TABLE vouchers (
    id          uuid PRIMARY KEY,
    code_sha256 bytea NOT NULL UNIQUE CHECK (length(code_sha256) = 32),
    -- Its last four letters, by which the operator finds it.
    tail        text NOT NULL,
    amount      numeric(14, 4) NOT NULL CHECK (amount > 0),
    note        text NOT NULL DEFAULT '',
    issued_by   text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz,
    voided_at   timestamptz,
    voided_by   text,
    void_note   text,
    top_up_id   uuid UNIQUE REFERENCES top_ups (id),
    CONSTRAINT not_both CHECK (voided_at IS NULL OR top_up_id IS NULL)
);

-- Where an account is paid USDT: an address of its own, from the operator's public key. It is never given to another
-- account, and is watched for ever.
CREATE TABLE usdt_addresses (
    address     text PRIMARY KEY CHECK (address ~ '^0x[0-9a-f]{40}$'),
    account_id  uuid NOT NULL REFERENCES accounts (id),
    -- Which public key it was derived from, and at which place.
    key_sha256  bytea NOT NULL CHECK (length(key_sha256) = 32),
    place       integer NOT NULL CHECK (place >= 0),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (account_id, key_sha256),
    UNIQUE (key_sha256, place)
);

-- A transfer of the token to one of those addresses, as the chain shows it. Until it is final it may vanish.
CREATE TABLE usdt_deposits (
    chain_id     bigint NOT NULL,
    tx_hash      text NOT NULL CHECK (tx_hash ~ '^0x[0-9a-f]{64}$'),
    log_index    integer NOT NULL,
    account_id   uuid NOT NULL REFERENCES accounts (id),
    address      text NOT NULL REFERENCES usdt_addresses (address),
    sender       text NOT NULL,
    -- In the token's smallest unit.
    units        numeric(78, 0) NOT NULL CHECK (units > 0),
    block_number bigint NOT NULL,
    block_hash   text NOT NULL,
    -- `final` ones wait until the account's come to the smallest top-up.
    state        text NOT NULL DEFAULT 'seen' CHECK (state IN ('seen', 'final', 'credited', 'orphaned')),
    top_up_id    uuid REFERENCES top_ups (id),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_id, tx_hash, log_index),
    CONSTRAINT credited_by_a_top_up CHECK ((state = 'credited') = (top_up_id IS NOT NULL))
);
CREATE INDEX usdt_deposits_of_account ON usdt_deposits (account_id, seen_at);
CREATE INDEX usdt_deposits_open ON usdt_deposits (block_number) WHERE state IN ('seen', 'final');
CREATE INDEX usdt_deposits_of_top_up ON usdt_deposits (top_up_id) WHERE top_up_id IS NOT NULL;

-- How far the chain was read, and what the last block read was called: when it is called otherwise now, blocks
-- were exchanged and are read again.
CREATE TABLE usdt_cursors (
    chain_id     bigint NOT NULL,
    contract     text NOT NULL,
    block_number bigint NOT NULL,
    block_hash   text NOT NULL,
    looked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_id, contract)
);
