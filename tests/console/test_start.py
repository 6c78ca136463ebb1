"""The start page lists what needs action, each with its link, and says so when nothing does."""

from typing import Final

import httpx
import pytest

from tests.support.full_service import ADVERT, add_top_up, paid
from tests.support.identity.customers import link, words
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.carriers.manage import add_carrier, keep_simulator
from tumira.console.pages.start import list_full_disk
from tumira.content.review import ask_review
from tumira.content.store import digest_of
from tumira.topups.states import Expired, PaymentInDoubt, StillPending

START: Final = "/operator"
NOTHING: Final = "Nothing needs action."
OK_AUDIT: Final = "INSERT INTO audits (asked_by, finished_at, broken) VALUES ('test', now(), '{}')"


@pytest.fixture(scope="module", autouse=True)
def _healthy(service: Service) -> None:
    """Make a gateway in which nothing needs action."""
    service.run(add_carrier, "main", "smpp://user:secret@smpp.example.com", None, 1)
    service.sql(
        "INSERT INTO binds (carrier_id, number, worker, leased_until, state)"
        " SELECT id, 1, 'one', now() + interval '1 hour', 'bound' FROM carriers"
    )
    service.sql("INSERT INTO workers (id, seen_at) VALUES ('one', now() + interval '1 hour')")
    service.sql(OK_AUDIT)


def test_nothing_needs_action(admin: httpx.Client, viewer: httpx.Client) -> None:
    for browser in (admin, viewer):
        said = words(browser.get(START).text)
        assert NOTHING in said


@pytest.mark.parametrize(
    ("broken", "repaired", "title", "path"),
    [
        (
            "UPDATE binds SET state = 'down'",
            "UPDATE binds SET state = 'bound'",
            "1 carrier is not working",
            "/operator/carriers",
        ),
        (
            "UPDATE binds SET state = 'failing', silent = true",
            "UPDATE binds SET state = 'bound', silent = false",
            "1 carrier is not working",
            "/operator/carriers",
        ),
        (
            "DELETE FROM workers",
            "INSERT INTO workers (id, seen_at) VALUES ('one', now() + interval '1 hour')",
            "No worker is running",
            "/operator/system",
        ),
        (
            (
                "INSERT INTO audits (asked_by, finished_at, broken) VALUES ('test', now(),"
                """ '{"balance": [{}], "debit": [{}]}')"""
            ),
            OK_AUDIT,
            "The last audit failed 2 checks",
            "/operator/system",
        ),
        (
            "INSERT INTO audits (asked_by, finished_at, problem) VALUES ('test', now(), 'It took too long.')",
            OK_AUDIT,
            "The last audit did not finish",
            "/operator/system",
        ),
        (
            "INSERT INTO ledger_proofs (account_id, broken_at) SELECT id, now() FROM accounts LIMIT 1",
            "DELETE FROM ledger_proofs",
            "1 account does not add up",
            "/operator/system",
        ),
        (
            (
                "INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, receipt,"
                " received_at, next_try_at)"
                " SELECT 1, n::text, '', 'DELIVRD', '', now(), now() FROM generate_series(1, 101) AS n"
            ),
            "DELETE FROM unmatched_receipts",
            "100 or more receipts match no message",
            "/operator/receipts",
        ),
        (
            (
                "INSERT INTO webhook_endpoints (id, account_id, url, secret, position, failing_since)"
                " SELECT uuidv7(), id, 'https://example.com', sha256('a'), 0, now() FROM accounts LIMIT 1"
            ),
            "DELETE FROM webhook_endpoints",
            "1 webhook endpoint has problems",
            "/operator/webhooks",
        ),
    ],
)
def test_what_is_wrong_is_listed_until_it_is_repaired(
    service: Service, admin: httpx.Client, broken: str, repaired: str, title: str, path: str
) -> None:
    service.sql(broken)
    page = admin.get(START).text
    service.sql(repaired)
    assert link(page, title) == path, words(page)
    assert NOTHING not in page
    assert NOTHING in admin.get(START).text


def test_top_ups_and_reviews_that_wait_are_listed(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    for _ in range(2):
        doubt = PaymentInDoubt("no answer", is_last=True)
        add_top_up(service, caller.id, StillPending("PN-7"), doubt)
    add_top_up(service, caller.id, Expired(), paid())
    digest = digest_of(ADVERT)
    service.sql(
        "INSERT INTO content_refusals"
        " (account_id, digest, first_at, last_at, count, category, score, reasons)"
        " VALUES ($1, $2, now(), now(), 3, 'offer', 0.99, '[]')",
        caller.id,
        digest,
    )
    service.run(ask_review, caller.id, digest, ADVERT, "", actor=Actor("owner", "198.18.0.1"))
    page = admin.get(START).text
    for title, path in (
        ("2 top-ups are in doubt", "/operator/top-ups?show=doubt"),
        ("1 top-up was paid after it had expired", "/operator/top-ups?show=late"),
        ("1 refused text waits for review", "/operator/content"),
    ):
        assert link(page, title) == path, words(page)


def test_a_simulator_that_is_the_only_carrier_is_listed(service: Service, admin: httpx.Client) -> None:
    service.sql("UPDATE carriers SET countries = '{ZA}'")
    service.run(keep_simulator, 2775)
    page = admin.get(START).text
    assert link(page, "The simulator is the only carrier for Zimbabwe") == "/operator/carriers", words(page)


@pytest.mark.parametrize(("free", "said"), [(9, ["The disk is 91 % full"]), (10, [])])
def test_a_disk_that_fills_up_is_listed(free: int, said: list[str]) -> None:
    assert [item.title for item in list_full_disk(100, free)] == said
