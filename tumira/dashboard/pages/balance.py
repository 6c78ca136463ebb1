"""The balance of now, for the bar at the top of every page."""

from collections.abc import Sequence

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.page import HEADERS, PRIVATE, write_usd


def routes(services: Services) -> Sequence[Route]:
    return [private(services, "/dashboard/balance/now", show_balance)]


async def show_balance(session: CustomerSession) -> Response:
    return JSONResponse(
        {"balance": write_usd(session.customer.balance), "is_too_low": session.is_too_low},
        headers={**HEADERS, **PRIVATE},
    )
