"""Operators see requests for sender names with their evidence, and decide."""

import html
from typing import Final

import httpx

from tests.support.console.operators import ACTOR, NASTY, changes_of
from tests.support.identity.people import alert, goes_to, new_browser
from tests.support.processes.service import Caller, Service
from tumira.audit_log import OWNER, Actor
from tumira.core.ids import SENDER_NAME, write_id
from tumira.sender_names.manage import NameRequest, ask
from tumira.sender_names.store import SenderName

NAMES: Final = "/operator/sender-names"
PNG: Final = b"\x89PNG\r\n\x1a\n<script>alert(1)</script>"
NOTE: Final = "We tell customers that their parcels are here."


def asked(service: Service, name: str, paper: bytes = b"", note: str = NOTE) -> tuple[Caller, SenderName]:
    caller = service.open_account()
    service.sql("UPDATE accounts SET business = $2 WHERE id = $1", caller.id, f"Business of {name}")
    request = NameRequest(name, ["ZW", "ZA"], note, paper)
    return caller, service.run(ask, caller.id, request, Actor(OWNER, "198.18.0.1"))


def path_of(name: SenderName) -> str:
    return f"{NAMES}/{write_id(SENDER_NAME, name.id)}"


def states(service: Service, name: SenderName) -> list[tuple[str, str, bool]]:
    rows = service.sql(
        "SELECT country, state, in_use FROM sender_grants WHERE name_id = $1 ORDER BY country DESC", name.id
    )
    return [tuple(row) for row in rows]


def test_a_request_waits_on_the_start_page_and_is_granted(service: Service, admin: httpx.Client) -> None:
    caller, name = asked(service, "Kudzai Shop", PNG, NASTY)
    assert "wait for a decision" in admin.get("/operator").text.replace("waits", "wait")
    page = admin.get(NAMES).text
    assert path_of(name) in page.split('id="names"')[0]
    shown = admin.get(path_of(name))
    assert "Business of Kudzai Shop" in shown.text
    assert NASTY not in shown.text
    assert NASTY in html.unescape(shown.text)
    done = admin.post(path_of(name) + "/grant", data={"place": "ZW", "note": "Welcome"})
    assert goes_to(done) == f"{path_of(name)}?done=granted"
    done = admin.post(path_of(name) + "/refuse", data={"place": "ZA", "note": "Numbers only"})
    assert goes_to(done) == f"{path_of(name)}?done=refused"
    assert states(service, name) == [("ZW", "granted", True), ("ZA", "refused", False)]
    assert path_of(name) not in admin.get(NAMES).text.split('id="names"')[0]
    done = admin.post(path_of(name) + "/revoke", data={"place": "ZW", "note": "The network asked"})
    assert goes_to(done) == f"{path_of(name)}?done=revoked"
    assert states(service, name)[0] == ("ZW", "revoked", False)
    what = [change[1] for change in changes_of(service, caller.id)]
    assert what[-3:] == ["sender name granted", "sender name refused", "sender name revoked"]
    assert f"{ACTOR.removeprefix('operator:')}: The network asked" in admin.get(path_of(name)).text
    listed = admin.get(f"{NAMES}?account={caller.account_id}").text
    assert path_of(name) in listed


def test_a_look_alike_needs_a_tick_and_a_reason(service: Service, admin: httpx.Client) -> None:
    _caller, name = asked(service, "EC0CASH")
    assert "Looks like <strong>EcoCash</strong>, the name of a mobile wallet" in admin.get(path_of(name)).text
    for fields in ({}, {"reason": "Letter"}, {"confirmed": "1"}, {"confirmed": "1", "reason": " "}):
        refused = admin.post(path_of(name) + "/grant", data={"place": "ZW", **fields})
        assert refused.status_code == 422
        assert "looks like another one" in alert(refused)
    assert states(service, name)[0] == ("ZW", "requested", False)
    done = admin.post(
        path_of(name) + "/grant", data={"place": "ZW", "confirmed": "1", "reason": "Letter of EcoCash"}
    )
    assert goes_to(done) == f"{path_of(name)}?done=granted"


def test_the_default_of_an_account_is_chosen(service: Service, admin: httpx.Client) -> None:
    caller, first = asked(service, "Tatenda One")
    second = service.run(ask, caller.id, NameRequest("Tatenda Two", ["ZW"], NOTE), Actor(OWNER))
    for name in (first, second):
        admin.post(path_of(name) + "/grant", data={"place": "ZW"})
    assert states(service, second) == [("ZW", "granted", False)]
    assert "Use in Zimbabwe" in admin.get(path_of(second)).text
    assert (
        goes_to(admin.post(path_of(second) + "/use", data={"place": "ZW"})) == f"{path_of(second)}?done=used"
    )
    assert states(service, second) == [("ZW", "granted", True)]
    assert states(service, first)[0] == ("ZW", "granted", False)


def test_a_paper_is_a_file_and_never_a_page(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    _caller, name = asked(service, "Paper Shop", PNG)
    for browser in (admin, viewer):
        paper = browser.get(path_of(name) + "/paper")
        assert (paper.status_code, paper.content) == (200, PNG)
        assert paper.headers["content-type"] == "image/png"
        assert paper.headers["content-disposition"].startswith('attachment; filename="snd_')
        assert paper.headers["x-content-type-options"] == "nosniff"
        assert paper.headers["cache-control"] == "no-store"
        assert "sandbox" in paper.headers["content-security-policy"]
    _caller, without = asked(service, "No Paper")
    assert admin.get(path_of(without) + "/paper").status_code == 404
    assert goes_to(new_browser(service).get(path_of(name) + "/paper")) == "/operator/sign-in"


def test_a_viewer_reads_and_decides_nothing(service: Service, viewer: httpx.Client) -> None:
    _caller, name = asked(service, "Viewed Shop")
    page = viewer.get(path_of(name))
    assert page.status_code == 200
    assert "/grant" not in page.text
    for action in ("grant", "refuse", "revoke", "use"):
        done = viewer.post(f"{path_of(name)}/{action}", data={"place": "ZW", "note": "x"})
        assert done.status_code == 403
    assert states(service, name)[0] == ("ZW", "requested", False)


def test_what_is_wrong_is_said(service: Service, admin: httpx.Client) -> None:
    _caller, name = asked(service, "Wrong Shop")
    for action, data, words in (
        ("grant", {"place": "XX"}, "Choose one of these places"),
        ("refuse", {"place": "ZW", "note": ""}, "Enter a reason"),
        ("revoke", {"place": "ZW", "note": "x"}, "not granted"),
        ("use", {"place": "ZW"}, "not granted"),
    ):
        refused = admin.post(f"{path_of(name)}/{action}", data=data)
        assert (refused.status_code, words in alert(refused)) == (422, True), action
    assert admin.get(f"{NAMES}/snd_{'0' * 26}").status_code == 404
    assert admin.get(f"{NAMES}/nothing").status_code == 404
