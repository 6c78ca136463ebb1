"""How carriers over HTTP are reached, and the credit left with them."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec
from msgspec import Struct

from tumira.carriers.store import HttpAccess
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# The token stays: the provider was told the address, and receipts are under way to it.
SQL_UPSERT: Final = Statement("""
INSERT INTO http_carriers (carrier_id, profile, profile_text, url, options, secrets, safe_repeat, hook_token)
SELECT id, %(profile)s, %(profile_text)s, %(url)s, %(options)s::text::jsonb, %(secrets)s::text::jsonb,
       %(safe_repeat)s, %(hook_token)s
  FROM carriers
 WHERE name = %(name)s
    ON CONFLICT (carrier_id) DO UPDATE
   SET profile = excluded.profile, profile_text = excluded.profile_text, url = excluded.url,
       options = excluded.options, secrets = excluded.secrets, safe_repeat = excluded.safe_repeat,
       balance = NULL, currency = NULL, balance_at = NULL
""")


async def upsert(connection: Connection, name: str, access: HttpAccess, *, safe_repeat: bool) -> None:
    await SQL_UPSERT.rows(
        connection,
        name=name,
        profile=access.profile,
        profile_text=access.profile_text,
        url=access.url,
        options=msgspec.json.encode(access.options).decode(),
        secrets=msgspec.json.encode(access.secrets).decode(),
        safe_repeat=safe_repeat,
        hook_token=access.hook_token,
    )


SQL_DELETE: Final = Statement("""
DELETE FROM http_carriers USING carriers
 WHERE carriers.id = http_carriers.carrier_id
   AND carriers.name = %(name)s
""")


async def delete(connection: Connection, name: str) -> None:
    """Forget that a carrier was reached over HTTP."""
    await SQL_DELETE.rows(connection, name=name)


SQL_EMPTY: Final = Statement("""
UPDATE http_carriers
   SET secrets = '{}'
  FROM carriers
 WHERE carriers.id = http_carriers.carrier_id
   AND carriers.name = %(name)s
""")


async def empty_secrets(connection: Connection, name: str) -> None:
    await SQL_EMPTY.rows(connection, name=name)


SQL_LIST_SAFE: Final = Statement("SELECT carrier_id FROM http_carriers WHERE safe_repeat")


async def list_safe(connection: Connection) -> frozenset[int]:
    """Return the carriers to which a message in doubt may be sent again under its old reference."""
    return frozenset(row["carrier_id"] for row in await SQL_LIST_SAFE.rows(connection))


SQL_SET_BALANCE: Final = Statement("""
UPDATE http_carriers
   SET balance = %(amount)s, currency = %(currency)s, balance_at = clock_timestamp()
 WHERE carrier_id = %(carrier_id)s
""")


async def set_balance(connection: Connection, carrier_id: int, amount: Decimal, currency: str) -> None:
    await SQL_SET_BALANCE.rows(connection, carrier_id=carrier_id, amount=amount, currency=currency)


class CarrierBalance(Struct, frozen=True):
    """The credit left with a carrier, as it told at a moment."""

    carrier_id: int
    carrier: str
    amount: Decimal
    currency: str
    at: datetime


SQL_BALANCES: Final = Statement("""
SELECT carriers.id, carriers.name, http_carriers.balance, http_carriers.currency, http_carriers.balance_at
  FROM http_carriers
  JOIN carriers ON carriers.id = http_carriers.carrier_id
 WHERE carriers.removed_at IS NULL
   AND http_carriers.balance IS NOT NULL
 ORDER BY carriers.name
""")


async def list_balances(connection: Connection) -> Sequence[CarrierBalance]:
    return [CarrierBalance(*row) for row in await SQL_BALANCES.rows(connection)]
