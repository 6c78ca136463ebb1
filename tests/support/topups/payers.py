"""Customers who pay through the dashboard's pages."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import httpx

from tests.support.identity.customers import Customer, open_session
from tests.support.identity.customers import words as read
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.sending.batchers import broken_promises
from tests.topups.test_addresses import XPUB
from tumira.core.ids import TOP_UP, TopUpId, new_id, read_id, write_id
from tumira.topups.settle import settle
from tumira.topups.states import ProviderAnswer

PLACE: Final = "/dashboard/top-up"
LEDGER: Final = "/dashboard/ledger"
WALLET: Final = PLACE + "/wallet"
USDT: Final = PLACE + "/usdt"
VOUCHER: Final = PLACE + "/voucher"

PAYNOW_URL: Final = "https://paynow.example"
SECRET: Final = "flash-secret"
PIN: Final = "1234567890123456"
HOSTILE: Final = "\"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 99 * 99 * 99 }}'"
ENVIRONMENT: Final = {
    "TUMIRA_PAYNOW_URL": PAYNOW_URL,
    "TUMIRA_PAYNOW_ID": "1201",
    "TUMIRA_PAYNOW_KEY": "paynow-key",
    "TUMIRA_USDT_RPC_URLS": "https://rpc.example",
    "TUMIRA_USDT_XPUB": XPUB,
    "TUMIRA_VOUCHER_ONEVOUCHER_KEY": "consumer",
    "TUMIRA_VOUCHER_ONEVOUCHER_SECRET": SECRET,
    "TUMIRA_VOUCHER_ONEVOUCHER_ACCOUNT": "1234-5678-1234-5678",
    "TUMIRA_VOUCHER_OTT_USER": "user",
    "TUMIRA_VOUCHER_OTT_PASSWORD": "password",
    "TUMIRA_VOUCHER_OTT_KEY": "key",
    "TUMIRA_VOUCHER_OTT_VENDOR": "99",
    "TUMIRA_VOUCHER_ZAR_RATE": "18.50@2026-11-01",
}


@dataclass(frozen=True, slots=True)
class Payer(Customer):
    def form(self, path: str) -> str:
        found = re.search(r'name="form" value="(top_\w+)"', self.page(path))
        assert found is not None
        return found[1]

    def start(self, wallet: str = "ecocash", amount: str = "10") -> TopUpId:
        # So few may wait for one number, and so few of one account, that each test would be in another's way.
        phone = f"+2637712{next(_numbers):05}"
        return started(self.post(WALLET, form=self.form(WALLET), amount=amount, wallet=wallet, phone=phone))

    def tell(self, top_up_id: TopUpId, answer: ProviderAnswer) -> None:
        self.service.run(settle, top_up_id, answer)

    def said(self, top_up_id: TopUpId) -> str:
        return words(self.page(path_of(top_up_id)))

    def rows(self) -> Sequence[Any]:
        return self.service.sql(
            "SELECT * FROM top_ups WHERE account_id = $1 ORDER BY id DESC", self.caller.id
        )


_numbers: Final = iter(range(20_000, 30_000))


def path_of(top_up_id: UUID) -> str:
    return f"{PLACE}/{write_id(TOP_UP, top_up_id)}"


def started(answer: httpx.Response) -> TopUpId:
    assert answer.status_code == 303, answer.text
    top_up_id = read_id(TOP_UP, answer.headers["location"].removeprefix(PLACE + "/"))
    assert top_up_id is not None
    return TopUpId(top_up_id)


def words(page: str) -> str:
    return re.sub(r" (?=[.,;])", "", read(page))


def new_form_id(ago: timedelta = timedelta()) -> str:
    return write_id(TOP_UP, new_id(int((datetime.now(UTC) - ago).timestamp() * 1000)))


def sign_in(service: Service) -> Payer:
    caller = service.open_account("1")
    return Payer(service, caller, open_session(service, caller))


@contextmanager
def run_paid(server_url: str) -> Iterator[Service]:
    """Run a service with every way to pay, whose money adds up at the end."""
    with clone(server_url) as url, run_web(url, **ENVIRONMENT) as running:
        yield running
        assert running.run(broken_promises) == []
