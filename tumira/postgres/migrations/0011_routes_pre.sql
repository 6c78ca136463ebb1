-- The network of the recipient by its key, as in `econet`; NULL for messages from before.
ALTER TABLE messages ADD COLUMN network text;

-- What a carrier takes for a segment, in its own currency and in US dollars; NULL where that is not known.
ALTER TABLE parts
    ADD COLUMN cost     numeric(14, 6),
    ADD COLUMN currency text,
    ADD COLUMN cost_usd numeric(14, 6);

-- What a unit of a currency is worth in US dollars.
CREATE TABLE rates (
    currency text PRIMARY KEY CHECK (currency ~ '^[A-Z]{3}$'),
    usd      numeric(18, 8) NOT NULL CHECK (usd > 0),
    set_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO rates (currency, usd) VALUES ('USD', 1);

-- Which carrier takes the messages to a network, or with NULL to a country: the lowest priority first, and of one
-- priority the cheapest. A carrier without a route to a country serves it by its own countries and priority.
CREATE TABLE routes (
    country    text NOT NULL REFERENCES destinations (country),
    network    text CHECK (network ~ '^[a-z0-9]+$'),
    carrier_id integer NOT NULL REFERENCES carriers (id),
    priority   integer NOT NULL CHECK (priority >= 0),
    cost       numeric(14, 6) CHECK (cost >= 0),
    currency   text NOT NULL REFERENCES rates (currency),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE NULLS NOT DISTINCT (country, network, carrier_id)
);
CREATE INDEX routes_of_carrier ON routes (carrier_id);
-- A network with a route has a queue of its own from the next call on: every process keeps that with the tariff.
CREATE TRIGGER routes_changed AFTER INSERT OR UPDATE OR DELETE ON routes
    FOR EACH STATEMENT EXECUTE FUNCTION tariff_changed();

-- The networks of numbers that kept their digits when they changed networks: digits without the plus.
CREATE TABLE number_networks (
    number    bigint PRIMARY KEY,
    network   text NOT NULL,
    source    text NOT NULL CHECK (source IN ('receipt', 'lookup')),
    learnt_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX number_networks_by_age ON number_networks (learnt_at);

-- By local day: what carriers took for the segments that were handed over to them, and what customers paid for
-- messages that a carrier had, less refunds. `carrier_id` is 0 where no carrier is known to have had a message.
CREATE TABLE margin_days (
    day        date NOT NULL,
    carrier_id integer NOT NULL,
    country    text NOT NULL,
    network    text NOT NULL,
    account_id uuid NOT NULL,
    segments   bigint NOT NULL DEFAULT 0,
    -- Those of them whose cost is not known.
    unpriced   bigint NOT NULL DEFAULT 0,
    cost_usd   numeric(20, 6) NOT NULL DEFAULT 0,
    charged    numeric(20, 4) NOT NULL DEFAULT 0,
    refunded   numeric(20, 4) NOT NULL DEFAULT 0,
    PRIMARY KEY (day, carrier_id, country, network, account_id)
) WITH (fillfactor = 50);
