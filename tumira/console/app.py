"""The routes of the operators' console."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.routing import Route

from tumira.console.pages import (
    account,
    accounts,
    carriers,
    changes,
    content,
    margin,
    messages,
    money,
    near_line,
    papers,
    prices,
    receipts,
    replies,
    routes,
    sender_names,
    sign_in,
    start,
    system,
    top_ups,
    traffic,
    vouchers,
    webhooks,
)
from tumira.console.session import Services
from tumira.core.settings.payments import Payments
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.html.cookies import Cookie
from tumira.html.page import Assets, Templates
from tumira.identity.store.devices import DAYS_KEPT
from tumira.identity.store.sessions import OPERATOR_HOURS_MAX
from tumira.postgres.pool import Database

_HOUR_S: Final = 3600


class Console:
    def __init__(
        self,
        database: Database,
        *,
        public_url: str,
        payments: Payments,
        support: Support = NO_SUPPORT,
        data_dir: Path | None = None,
        carrier_proxy: str | None = None,
        seller: Seller = NO_SELLER,
    ) -> None:
        self._services = Services(
            database=database,
            templates=Templates(Path(__file__).parent),
            session_cookie=Cookie("tumira_operator", public_url, OPERATOR_HOURS_MAX * _HOUR_S),
            device_cookie=Cookie("tumira_operator_device", public_url, DAYS_KEPT * 24 * _HOUR_S),
            public_url=public_url,
            payments=payments,
            support=support,
            data_dir=data_dir,
            carrier_proxy=carrier_proxy,
            seller=seller,
        )

    @property
    def assets(self) -> Assets:
        return self._services.templates.assets

    def routes(self) -> Sequence[Route]:
        modules = (
            sign_in,
            start,
            traffic,
            prices,
            content,
            near_line,
            sender_names,
            system,
            changes,
            messages,
            accounts,
            account,
            money,
            top_ups,
            vouchers,
            margin,
            papers,
            carriers,
            routes,
            receipts,
            replies,
            webhooks,
        )
        return [route for module in modules for route in module.routes(self._services)]
