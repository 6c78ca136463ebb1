"""What does the operator do about a top-up that needs somebody to look at it?"""

from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import Trouble
from tumira.core.ids import TOP_UP, TopUpId, write_id
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.states import Method, State
from tumira.topups.store import TopUp
from tumira.topups.voucher_pins import Issuer

# What has ended so is asked about no more: nothing that is said would move it.
_FINAL: Final = frozenset({State.REVERSED})


def can_be_asked(top_up: TopUp) -> bool:
    """Tell whether there is somebody to ask; deposits and our own vouchers are on our side."""
    is_elsewhere = top_up.method is Method.PAYNOW or (
        top_up.method is Method.VOUCHER and top_up.provider != Issuer.OWN
    )
    return is_elsewhere and top_up.state not in _FINAL


async def ask_again(database: Database, top_up_id: TopUpId, actor: Actor) -> None:
    """Have a worker ask the provider what became of a top-up, and carry that out."""
    async with database.transaction() as connection:
        found = await top_ups.find_any(connection, top_up_id)
        if found is None or not can_be_asked(found):
            raise Trouble("Nobody can be asked about this top-up.")
        await top_ups.make_due(connection, top_up_id)
        await audit_log.record_by_operator(
            connection, actor, "top-up asked about again", write_id(TOP_UP, top_up_id), found.account_id
        )
