"""Networks of numbers that kept their digits: learnt from receipts and lookups, and forgotten with age."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from tumira.delivery.outcomes import Outcome, Reported
from tumira.delivery.store.settlement import LockedMessage
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.networks import PORTED_COUNTRIES, find_network, ported_digits, read_code

# After that a number may have moved on; its next receipt or lookup says so.
AGE_MAX: Final = timedelta(days=90)
# A number that is being looked up is not looked up by another node. If this one dies, it is soon forgotten.
LOOKUP_MAX: Final = timedelta(minutes=10)


def learn_networks(outcomes: Iterable[Outcome], messages: Mapping[UUID, LockedMessage]) -> Mapping[int, str]:
    """Return the networks that receipts name for numbers, where they are not those of the prefixes."""
    learnt: dict[int, str] = {}
    for one in outcomes:
        if type(one) is not Reported or one.receipt.network is None:
            continue
        message, network = messages[one.message_id], read_code(one.receipt.network)
        digits = ported_digits(message.recipient)
        if network is None or digits is None or network.country != message.country:
            continue
        # Also where the network is that of the prefix again, or where only the age is renewed.
        if network.key not in {message.network} & {find_network(message.recipient)}:
            learnt[int(digits)] = network.key
    return learnt


SQL_RECORD: Final = Statement("""
INSERT INTO number_networks (number, network, source)
SELECT number, network, 'receipt'
  FROM unnest(%(numbers)s::bigint[], %(networks)s::text[]) AS learnt (number, network)
 ORDER BY number
    ON CONFLICT (number) DO UPDATE
   SET network = excluded.network, source = excluded.source, learnt_at = clock_timestamp()
""")


async def record_learnt(connection: Connection, learnt: Mapping[int, str]) -> None:
    await SQL_RECORD.rows(connection, numbers=list(learnt), networks=list(learnt.values()))


SQL_LIST_SENT: Final = Statement("""
SELECT id, recipient
  FROM messages
 WHERE id > %(after)s
   AND id < %(until)s
   AND country = ANY(%(countries)s::text[])
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_sent(
    connection: Connection, after: UUID, until: UUID, count_max: int
) -> Sequence[tuple[UUID, str]]:
    """Return messages between two ids, with their recipients, in countries where numbers are ported."""
    rows = await SQL_LIST_SENT.rows(
        connection, after=after, until=until, countries=sorted(PORTED_COUNTRIES), count_max=count_max
    )
    return [(row["id"], row["recipient"]) for row in rows]


# Until it is looked up a number has the network of its prefix, and only for a short time.
SQL_CLAIM: Final = Statement("""
INSERT INTO number_networks (number, network, source, learnt_at)
SELECT number, network, 'lookup', clock_timestamp() - %(age_max)s::interval + %(lookup_max)s::interval
  FROM unnest(%(numbers)s::bigint[], %(networks)s::text[]) AS wanted (number, network)
 ORDER BY number
    ON CONFLICT (number) DO NOTHING
RETURNING number
""")


async def claim_lookups(connection: Connection, numbers: Iterable[str]) -> Sequence[int]:
    """Return those of these numbers whose network is not known, so that this node looks them up."""
    wanted = {int(digits): find_network(one) for one in numbers if (digits := ported_digits(one)) is not None}
    rows = await SQL_CLAIM.rows(
        connection,
        numbers=list(wanted),
        networks=list(wanted.values()),
        age_max=AGE_MAX,
        lookup_max=LOOKUP_MAX,
    )
    return [row["number"] for row in rows]


SQL_STORE: Final = Statement("""
UPDATE number_networks
   SET network = %(network)s, learnt_at = clock_timestamp()
 WHERE number = %(number)s
   AND source = 'lookup'
""")


async def store_lookup(connection: Connection, number: int, network: str) -> None:
    """Store what a lookup said, unless a receipt has said something meanwhile."""
    await SQL_STORE.rows(connection, number=number, network=network)


SQL_DELETE_OLD: Final = Statement("""
DELETE FROM number_networks
 WHERE ctid = ANY(ARRAY(
       SELECT ctid
         FROM number_networks
        WHERE learnt_at < statement_timestamp() - %(age_max)s::interval
        ORDER BY learnt_at
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    return len(await SQL_DELETE_OLD.rows(connection, age_max=AGE_MAX, count_max=count_max))


SQL_DELETE_NUMBER: Final = Statement("DELETE FROM number_networks WHERE number = %(number)s")


async def delete_number(connection: Connection, number: str) -> None:
    digits = ported_digits(number)
    if digits is not None:
        await SQL_DELETE_NUMBER.rows(connection, number=int(digits))
