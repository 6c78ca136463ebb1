"""Callbacks of carriers: only those who know the address are heard, and nothing of it is logged or shown."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette

from tests.support.identity.people import goes_to
from tests.support.processes.ports import free_port
from tests.support.processes.service import Service
from tumira.carriers.manage import add_http_carrier, new_access
from tumira.console.pages.carrier_hooks import BODY_BYTES_MAX, CarrierHooks
from tumira.postgres.pool import Database

CARRIERS: Final = "/operator/carriers"
SECRET: Final = "hush-hush-hush"
URL: Final = "https://api.bulksms.com/v1"


@pytest.fixture
def hook(service: Service) -> Iterator[str]:
    access = new_access("bulksms", URL, {"user": "shop"}, {"password": SECRET})
    service.run(add_http_carrier, "hooked", access, None, 100)
    yield f"{service.base}/hooks/carriers/{access.hook_token}"
    service.sql("UPDATE carriers SET removed_at = now() WHERE name = 'hooked'")
    service.sql("DELETE FROM http_carriers")


def post(url: str, body: bytes) -> httpx.Response:
    return httpx.post(url, content=body, headers={"content-type": "application/json"}, trust_env=False)


def test_an_unknown_token_finds_nothing(service: Service, hook: str) -> None:
    for token in ("", "x", hook.rsplit("/", 1)[1][:-1], hook.rsplit("/", 1)[1] + "x"):
        assert post(f"{service.base}/hooks/carriers/{token}", b"[]").status_code == 404
    service.sql("UPDATE carriers SET removed_at = now() WHERE name = 'hooked'")
    assert post(hook, b"[]").status_code == 404


def test_a_registration_and_an_unknown_message_are_answered_with_success(service: Service, hook: str) -> None:
    assert post(hook, b"[]").status_code == 200
    report = b'[{"id": "7f3a", "type": "SENT", "to": "263771200001", "status": {"type": "DELIVERED"}}]'
    assert post(hook, report).status_code == 200
    # As with SMPP, it is kept for a while.
    (kept,) = service.sql("SELECT carrier_ref, state FROM unmatched_receipts")
    assert (kept["carrier_ref"], kept["state"]) == ("7f3a", "DELIVRD")
    service.sql("DELETE FROM unmatched_receipts")


def test_too_large_a_body_is_refused_and_nothing_is_stored(service: Service, hook: str) -> None:
    assert post(hook, b"[" + b" " * BODY_BYTES_MAX + b"]").status_code == 413
    assert service.sql("SELECT FROM unmatched_receipts") == []


def test_a_carrier_over_http_is_added_and_shown(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    fields = {
        "name": "paged",
        "profile": "bulksms",
        "url": URL,
        "settings": "user=shop\nwindow=7",
        "secrets": f"password={SECRET}",
        "priority": "9",
    }
    refused = admin.post(CARRIERS, data=fields | {"secrets": SECRET})
    assert (refused.status_code, SECRET in refused.text) == (422, False)
    refused = admin.post(CARRIERS, data=fields | {"profile": "never"})
    assert (refused.status_code, SECRET in refused.text) == (422, False)
    assert str(goes_to(admin.post(CARRIERS, data=fields))).startswith(CARRIERS + "?done=")
    (row,) = service.sql(
        "SELECT hook_token FROM http_carriers JOIN carriers ON id = carrier_id WHERE name = 'paged'"
    )
    service.sql("UPDATE http_carriers SET balance = 12.5, currency = 'USD', balance_at = now()")
    page = admin.get(f"{CARRIERS}/paged").text
    assert row["hook_token"] in page
    assert "12.5 USD" in page
    assert "0 of 7 in use" in page
    change = {"priority": "9", "countries": "", "window": "8", "tps": "0"}
    assert goes_to(admin.post(f"{CARRIERS}/paged/change", data=change)) == f"{CARRIERS}/paged?done=changed"
    assert "0 of 8 in use" in admin.get(f"{CARRIERS}/paged").text
    # Who may not change a carrier may not report in its name.
    seen = viewer.get(f"{CARRIERS}/paged").text
    assert row["hook_token"] not in seen
    for text in (page, seen, viewer.get(CARRIERS).text):
        assert SECRET not in text
    service.sql("DELETE FROM http_carriers")
    service.sql("UPDATE carriers SET removed_at = now() WHERE name = 'paged'")


def test_a_reply_is_stored_once(service: Service, hook: str) -> None:
    reply = b"""[{"id": "r-1", "type": "RECEIVED", "from": "263771200001", "to": "27821230001",
        "body": "Thank you", "status": {"type": "RECEIVED"},
        "submission": {"date": "2026-11-15T10:00:00Z"}}]"""
    for _ in range(2):
        assert post(hook, reply).status_code == 200
    (row,) = service.sql("SELECT number, payload FROM reply_parts")
    assert (row["number"], row["payload"]) == ("263771200001", b"Thank you")
    service.sql("DELETE FROM reply_parts")


async def test_a_callback_that_cannot_be_stored_is_to_be_repeated() -> None:
    nowhere = Database(f"postgresql://tumira@127.0.0.1:{free_port()}/tumira")
    app = Starlette(routes=CarrierHooks(nowhere, "http://sms.example").routes())
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://sms.example"
        ) as caller:
            answer = await caller.post("/hooks/carriers/0123456789012345678901", content=b"[]")
    finally:
        await nowhere.close()
    assert answer.status_code == 503
