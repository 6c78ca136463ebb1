"""The routes of the dashboard, and its error pages."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.contextvars import get_contextvars

from tumira.core.database_errors import is_unavailable
from tumira.core.settings.payments import Payments
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.core.settings.support import Support
from tumira.core.translation import _
from tumira.dashboard.pages import (
    batches,
    compose,
    health,
    keys,
    landing,
    ledger,
    overview,
    passcodes,
    pay_by_usdt,
    pay_by_voucher,
    pay_by_wallet,
    replies,
    results,
    scheduled,
    second_factor,
    sender_names,
    settings,
    sign_in,
    sign_up,
    top_up,
    top_up_progress,
    upload,
    upload_form,
    webhooks,
)
from tumira.dashboard.pages.contacts import list_settings, lists, one_list, texts
from tumira.dashboard.pages.papers import details, invoices, statements
from tumira.dashboard.pages.people import approvals, join, members
from tumira.dashboard.permissions import check_table
from tumira.dashboard.session import Services, top_up_path
from tumira.html.cookies import Cookie
from tumira.html.page import PRIVATE, Assets, Templates
from tumira.identity.code_rules import CodeLimits
from tumira.identity.passwords import HashingBusyError
from tumira.identity.store.devices import DAYS_KEPT
from tumira.identity.store.sessions import DAYS_MAX, PENDING_MINUTES
from tumira.identity.store.verifications import HOURS_KEPT
from tumira.postgres.pool import Database
from tumira.sending.batcher import Batcher
from tumira.uploads.check_file import FileChecker

_HOUR_S: Final = 3600
_log: Final = structlog.get_logger()


class Dashboard:
    """The customers' pages, and the public ones that lead there."""

    def __init__(
        self,
        database: Database,
        batcher: Batcher,
        *,
        public_url: str,
        code_limits: CodeLimits,
        webhooks_allow_private: bool,
        payments: Payments,
        support: Support,
        keep_weeks: int | None,
        seller: Seller = NO_SELLER,
        mail_is_set_up: bool,
    ) -> None:
        self._services = Services(
            database=database,
            batcher=batcher,
            checker=FileChecker(database),
            templates=Templates(
                Path(__file__).parent,
                support,
                {"top_up_path": top_up_path},
                mail_is_set_up=mail_is_set_up,
            ),
            session_cookie=Cookie("tumira_session", public_url, DAYS_MAX * 24 * _HOUR_S),
            device_cookie=Cookie("tumira_device", public_url, DAYS_KEPT * 24 * _HOUR_S),
            verification_cookie=Cookie("tumira_verification", public_url, HOURS_KEPT * _HOUR_S),
            pending_cookie=Cookie("tumira_half_session", public_url, PENDING_MINUTES * 60),
            code_limits=code_limits,
            public_url=public_url,
            webhooks_allow_private=webhooks_allow_private,
            payments=payments,
            support=support,
            keep_weeks=keep_weeks,
            seller=seller,
            mail_is_set_up=mail_is_set_up,
        )

    @property
    def assets(self) -> Assets:
        return self._services.templates.assets

    def routes(self) -> Sequence[Route]:
        modules = (
            landing,
            sign_up,
            sign_in,
            join,
            overview,
            health,
            compose,
            # Before the pages of a file, whose addresses look like that of the sample.
            upload_form,
            upload,
            results,
            lists,
            one_list,
            list_settings,
            texts,
            scheduled,
            batches,
            replies,
            sender_names,
            keys,
            webhooks,
            top_up,
            pay_by_wallet,
            pay_by_usdt,
            pay_by_voucher,
            # After the ways to pay, whose addresses look like those of top-ups.
            top_up_progress,
            invoices,
            statements,
            ledger,
            members,
            approvals,
            settings,
            passcodes,
            details,
            second_factor,
        )
        routes = [route for module in modules for route in module.routes(self._services)]
        check_table(routes)
        return routes

    async def refuse(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._trouble(request, error.status_code, error.detail, error.headers)

    async def fail(self, request: Request, error: Exception) -> Response:
        """Say that it was not the customer's fault."""
        if isinstance(error, HashingBusyError):
            _log.warning("password hashing queue full", reason=error.reason, path=request.url.path)
            words = _("Too many people are signing in right now. Try again in a moment")
            return self._trouble(request, 503, words)
        if is_unavailable(error):
            _log.warning("database unavailable", error=repr(error))
            words = _("The service is not available right now. Try again in a moment")
            return self._trouble(request, 503, words)
        _log.error("page failed", exc_info=error, path=request.url.path)
        return self._trouble(request, 500, _("This is our fault, not yours. Nothing was sent or charged"))

    def _trouble(
        self, request: Request, status: int, words: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        # A framework's own words are those of the protocol, and say nothing about what to do.
        said = None if words == HTTPStatus(status).phrase else words
        retry = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
        return self._services.templates.page(
            "trouble.html.jinja",
            status,
            headers={**PRIVATE, **retry, **(headers or {})},
            code=status,
            said=said,
            is_console=request.url.path.startswith("/operator"),
            request_id=get_contextvars().get("request_id"),
        )
