"""Texts near the line in the console."""

import html
import re
from datetime import UTC, datetime
from typing import Final

import httpx

from tests.support.console.operators import ACTOR, changes_of, walk
from tests.support.content.near_line import find_near_text
from tests.support.identity.people import alert, goes_to
from tests.support.processes.service import Caller, Service
from tumira.content import near_line
from tumira.content.near_line_store import MarkedSend
from tumira.content.store import digest_of
from tumira.core.days import local_day
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database

NEAR: Final = "/operator/content/near"
TEXT: Final = "Dear Tendai, your parcel 1042 waits at our counter in Harare."


def marked(service: Service, *texts: str, business: str = "Corner Shop", messages: int = 1) -> Caller:
    """Open an account that consents to review, and record sends of these texts."""
    caller = service.open_account()
    service.sql("UPDATE accounts SET business = $2, review_consent = true WHERE id = $1", caller.id, business)
    sends = [MarkedSend(caller.id, messages, 0.3, text) for text in texts]
    service.run(near_line.record, sends)
    return caller


def path_of(caller: Caller, text: str = TEXT) -> str:
    return f"{NEAR}/{caller.account_id}/{digest_of(text).hex()}"


def test_a_batch_is_marked_for_operators_and_its_answer_is_like_any_other(
    service: Service, admin: httpx.Client
) -> None:
    caller = service.open_account()
    near, ordinary = (service.send(caller, body=body) for body in (find_near_text(), "Your code is 493817."))
    assert near.status_code == ordinary.status_code == 202
    assert near.json().keys() == ordinary.json().keys()
    for sent, is_marked in ((near, True), (ordinary, False)):
        batch_id = sent.json()["batch_id"]
        page = admin.get(f"/operator/messages/batches/{batch_id}").text
        assert ("near the line" in page) is is_marked
        (message,) = re.findall(r'href="(/operator/messages/msg_\w+)"', page)
        assert ("near the line" in admin.get(message).text) is is_marked
        looked_up = service.call(caller, "GET", f"/messages/{message.rpartition('/')[2]}")
        assert "near" not in looked_up.text


def test_a_text_is_confirmed_once_and_the_operator_is_named(service: Service, admin: httpx.Client) -> None:
    caller = marked(service, TEXT)
    assert path_of(caller) in admin.get(NEAR).text
    assert TEXT in html.unescape(admin.get(path_of(caller)).text)
    assert goes_to(admin.post(path_of(caller) + "/fine")) == NEAR + "?done=fine"
    assert changes_of(service, caller.id) == [
        (ACTOR, "text near the line confirmed as a service message", "")
    ]
    assert path_of(caller) not in admin.get(NEAR).text
    page = admin.get(path_of(caller)).text
    assert "service message" in page
    assert "Refuse such texts" not in page
    again = admin.post(path_of(caller) + "/fine")
    assert (again.status_code, "already" in alert(again)) == (409, True)


def test_such_texts_are_refused_with_a_template_made_of_the_text(
    service: Service, admin: httpx.Client
) -> None:
    caller = marked(service, TEXT)
    page = html.unescape(admin.get(path_of(caller)).text)
    template = "Dear {name}, your parcel {number} waits at our counter in Harare."
    assert template in page
    assert service.send(caller, body=TEXT).status_code == 202
    wrong = admin.post(path_of(caller) + "/block", data={"text": "short", "note": ""})
    assert wrong.status_code == 422
    form = {"text": template, "note": "It invites to shop."}
    assert goes_to(admin.post(path_of(caller) + "/block", data=form)) == NEAR + "?done=blocked"
    refused = service.send(caller, body=TEXT.replace("Tendai", "Rudo"))
    assert refused.status_code == 422
    assert "blocked_template" in refused.text
    assert path_of(caller) not in admin.get(NEAR).text
    (row,) = service.sql("SELECT review FROM near_line_texts WHERE account_id = $1", caller.id)
    assert row["review"] == "blocked"


def test_a_text_without_consent_is_on_no_page(service: Service, admin: httpx.Client) -> None:
    caller = marked(service, TEXT)
    service.run(manage_accounts.review, caller.id, consent=False)
    assert path_of(caller) not in admin.get(NEAR).text
    assert admin.get(path_of(caller)).status_code == 404
    for path in ("x/" + "0" * 64, f"{caller.account_id}/zz", f"{caller.account_id}/{'0' * 64}"):
        assert admin.get(f"{NEAR}/{path}").status_code == 404


def test_accounts_often_near_the_line_are_shown_with_their_share(
    service: Service, admin: httpx.Client
) -> None:
    often = marked(service, TEXT, business="Often Shop", messages=60)
    quiet = marked(service, business="Quiet Shop")
    service.run(manage_accounts.review, quiet.id, consent=False)
    service.run(record_quietly, quiet)
    service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, undelivered, expired, failed)"
        " VALUES ($1, $2, 'ZW', 240, 0, 0, 0)",
        often.id,
        local_day(datetime.now(UTC)),
    )
    page = admin.get(NEAR).text
    first, rest = page.split("Often Shop", 1)
    assert "Quiet Shop" in first
    assert "25%" in rest.split('id="texts"')[0]
    assert "no consent" in first.split("Quiet Shop")[1]
    assert f"/operator/accounts/{often.account_id}" in page
    of_account = html.unescape(admin.get(f"/operator/accounts/{often.account_id}").text)
    assert "60 messages in 30 days, 25% of all" in of_account
    nobody = service.open_account()
    assert "never in 30 days" in admin.get(f"/operator/accounts/{nobody.account_id}").text


async def record_quietly(database: Database, caller: Caller) -> None:
    await near_line.record(database, [MarkedSend(caller.id, 30, 0.3, None)])


def test_the_list_goes_on_without_gap_or_repetition(service: Service, admin: httpx.Client) -> None:
    for shop in range(4):
        marked(
            service,
            *(f"Our {word} opens on Sunday." for word in ("bakery", "deli", "kiosk", "bar", "spa", "gym")),
            business=f"Shop {shop}",
        )
    marked(service, *(f"Your {word} is open again." for word in ("bakery", "deli", "kiosk", "bar")))
    seen = walk(admin, NEAR, "Older texts", r'href="(/operator/content/near/[^"]+)"')
    kept = service.sql("SELECT FROM near_line_texts WHERE review IS NULL")
    assert len(kept) > 25
    assert len(seen) == len(set(seen)) == len(kept)
