"""In which order do messages wait for a carrier?"""

from collections.abc import Mapping
from typing import Final

from tumira.ids import AccountId
from tumira.store.sql import Connection, Statement

SQL_ADVANCE_FLOWS: Final = Statement("""
INSERT INTO flows (account_id, country, lane, next_turn)
SELECT account_id, country, lane, next_turn
  FROM unnest(%(account_ids)s::uuid[], %(countries)s::text[], %(lanes)s::smallint[], %(next_turns)s::bigint[])
       AS flow (account_id, country, lane, next_turn)
    ON CONFLICT (account_id, country, lane) DO UPDATE SET next_turn = excluded.next_turn
""")


async def advance_flows(connection: Connection, next_turns: Mapping[tuple[AccountId, str, int], int]) -> None:
    """Set the next turn of flows whose accounts we hold locked."""
    flows = list(next_turns)
    await SQL_ADVANCE_FLOWS.rows(
        connection,
        account_ids=[account_id for account_id, _, _ in flows],
        countries=[country for _, country, _ in flows],
        lanes=[lane for _, _, lane in flows],
        next_turns=[next_turns[flow] for flow in flows],
    )
