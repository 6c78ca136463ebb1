"""Carriers are shown to operators, and changed by admins only."""

import asyncio
import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from tests.support.console.operators import ACTOR, NASTY, last_change
from tests.support.identity.customers import words
from tests.support.identity.people import alert, goes_to
from tests.support.processes.ports import free_port
from tests.support.processes.service import Service
from tumira.carriers.manage import add_carrier
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import BindRequest, Command
from tumira.delivery.smpp.server import ServerPeer
from tumira.delivery.store import latency as latencies

CARRIERS: Final = "/operator/carriers"
PASSWORD: Final = "hushhush"
URL: Final = f"smpp://user:{PASSWORD}@smpp.example.com?window=10&tps=50&binds=2"

_names: Final = (f"carrier-{place}" for place in range(1000))


def new_carrier(service: Service, url: str = URL, countries: list[str] | None = None) -> str:
    name = next(_names)
    service.run(add_carrier, name, url, countries, 100)
    return name


def stored(service: Service, name: str) -> Mapping[str, Any]:
    (row,) = service.sql("SELECT * FROM carriers WHERE name = $1", name)
    return dict(row)


def hold(
    service: Service, name: str, number: int, state: str, problem: str | None = None, *, silent: bool = False
) -> None:
    service.sql(
        "INSERT INTO binds"
        " (carrier_id, number, worker, leased_until, state, problem, outstanding, pace, silent)"
        " SELECT id, $2, 'node-1:77', now() + interval '10 minutes', $3, $4, 7, 12, $5"
        "   FROM carriers WHERE name = $1",
        name,
        number,
        state,
        problem,
        silent,
    )


def count(service: Service, name: str, outcome: str, back: timedelta, number: int) -> None:
    service.sql(
        "INSERT INTO outcomes SELECT $2, id, 'Econet', 'ZW', $3, $4 FROM carriers WHERE name = $1",
        name,
        latencies.slot_of(datetime.now(UTC) - back),
        outcome,
        number,
    )


def page_of(operator: httpx.Client, path: str = CARRIERS) -> str:
    """Return the words of a page, with HOUR and DAY for the begin of what it counts."""
    page = operator.get(path)
    assert page.status_code == 200, page.text
    assert PASSWORD not in page.text
    text = re.sub(r"([Ss]ince) \d{1,2} \w{3}, \d\d:\d\d\b", r"\1 DAY", words(page.text))
    return re.sub(r"([Ss]ince) \d\d:\d\d\b", r"\1 HOUR", text)


def post(operator: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return operator.post(path, data=fields)


def test_every_state_of_a_carrier_is_said_in_words(service: Service, viewer: httpx.Client) -> None:
    bare = new_carrier(service)
    page = page_of(viewer, f"{CARRIERS}/{bare}")
    assert "No worker No worker is connected to this carrier." in page
    assert page.count("Not connected") == 2
    assert "0 of 20 in use" in page
    for state, said in (
        ("bound", "Working Accepting messages."),
        ("throttled", "Throttled Accepting messages, but has asked us to slow down."),
        ("failing", "Failing Refusing messages"),
        ("connecting", "Disconnected There is no connection to this carrier."),
        ("down", "Disconnected There is no connection to this carrier."),
    ):
        name = new_carrier(service)
        hold(service, name, 1, state, "RSYSERR (0x08)")
        page = page_of(viewer, f"{CARRIERS}/{name}")
        assert said in page
        assert "RSYSERR (0x08)" in page
        assert "node-1:77" in page
        assert "7 of 10 in use" in page
        assert "12 a second now. At most 50 a second." in page
        assert f"{name}/2 Not connected" in page
    name, mixed = new_carrier(service), new_carrier(service)
    problem = "silent: 12 submits in a row were not answered in time"
    hold(service, name, 1, "failing", problem, silent=True)
    hold(service, mixed, 1, "failing", problem, silent=True)
    hold(service, mixed, 2, "failing", "RSYSERR (0x08)")
    count(service, name, "no answer", timedelta(), 12)
    count(service, name, "no answer", timedelta(hours=3), 30)
    page = page_of(viewer, f"{CARRIERS}/{name}")
    assert "Not responding Connected, but not answering." in page
    assert problem in page
    assert "No response 12 since HOUR, 42 since DAY" in page
    # One of its binds refuses, so it is not silent altogether.
    assert "Failing Refusing messages" in page_of(viewer, f"{CARRIERS}/{mixed}")


def test_what_a_carrier_makes_of_its_messages_is_counted(service: Service, viewer: httpx.Client) -> None:
    name, other = new_carrier(service), new_carrier(service)
    for outcome, lately, before in (
        ("delivered", 90, 900),
        ("undelivered", 10, 0),
        ("ABSENT_SUBSCRIBER", 8, 40),
        ("RTHROTTLED (0x58)", 3, 1),
        ("no answer", 0, 5),
        ("sent", 120, 1000),
    ):
        count(service, name, outcome, timedelta(minutes=2), lately)
        count(service, name, outcome, timedelta(hours=9), before)
    count(service, name, "delivered", timedelta(days=2), 5000)
    page = page_of(viewer, f"{CARRIERS}/{name}")
    assert "90.0% since HOUR, 99.0% since DAY" in page
    assert re.search(r"120 since HOUR \((1\.[789]|2\.0) a minute\), 1,120 since DAY", page)
    assert "Outcome Since HOUR Since DAY" in page
    assert "Outcomes of messages delivered 90 990 undelivered 10 10" in page
    assert "Failure reasons ABSENT_SUBSCRIBER 8 48" in page
    assert "Errors from the carrier no answer 0 5 RTHROTTLED (0x58) 3 4" in page
    # The same by the hour, as charts.
    source = viewer.get(f"{CARRIERS}/{name}").text
    assert "Submitted 1,120 · Delivered 990 · Failed 10" in source
    assert "ABSENT_SUBSCRIBER 48" in source
    assert "no answer 5 · RTHROTTLED (0x58) 4" in source
    assert "Nothing since DAY." in page_of(viewer, f"{CARRIERS}/{other}")
    listed = page_of(viewer)
    assert listed.index(name) < listed.index(other)


def test_a_carrier_is_added_and_its_password_never_shown_again(service: Service, admin: httpx.Client) -> None:
    name = next(_names)
    answer = post(admin, CARRIERS, name=name, url=URL, countries="zw; ZA", priority="7")
    assert goes_to(answer) == CARRIERS + "?done=added"
    row = stored(service, name)
    assert (row["countries"], row["priority"], row["password"]) == (["ZW", "ZA"], 7, PASSWORD)
    change = last_change(service)
    assert (change["actor"], change["what"]) == (ACTOR, "carrier added")
    assert change["detail"] == (
        f"{name}: smpp://user:***@smpp.example.com:2775?window=10&tps=50&binds=2, ZW,ZA, priority 7"
    )
    assert "smpp://user:***@smpp.example.com:2775" in page_of(admin)
    # One that is there is not replaced by a slip.
    again = post(admin, CARRIERS, name=name, url=URL.replace("tps=50", "tps=60"), priority="7")
    assert again.status_code == 422
    assert f"A carrier named {name} exists already." in html.unescape(again.text)
    assert (stored(service, name)["tps"], last_change(service)["what"]) == (50, "carrier added")


def test_what_cannot_be_a_carrier_is_refused_beside_its_field(service: Service, admin: httpx.Client) -> None:
    before = service.sql("SELECT count(*) FROM carriers")[0][0]
    for field, value, fault in (
        ("name", NASTY, "up to 32 lowercase letters"),
        ("url", f"http://user:{PASSWORD}@host", "must begin with smpp://"),
        ("url", "smpp://" + "x" * 1000, "at most 1000 characters"),
        ("countries", "ZW,XX", "XX is not a country that you can send to"),
        ("countries", NASTY, "One of these is not a country"),
        ("priority", "1" * 10, "a whole number"),
        ("priority", "", "a whole number"),
    ):
        fields = {"name": "fresh", "url": URL, "countries": "ZW", "priority": "5"} | {field: value}
        refused = post(admin, CARRIERS, **fields)
        assert refused.status_code == 422
        assert fault in alert(refused)
        assert f'id="{field}-fault"' in refused.text
        assert PASSWORD not in refused.text
        assert "<script>alert" not in refused.text
    assert service.sql("SELECT count(*) FROM carriers")[0][0] == before


def test_a_carrier_is_changed_and_the_rest_of_it_stays(service: Service, admin: httpx.Client) -> None:
    name = new_carrier(service, countries=["ZW"])
    before = stored(service, name)
    path = f"{CARRIERS}/{name}"
    same = {"priority": "100", "countries": "ZW", "window": "10", "tps": "50"}
    assert goes_to(post(admin, path + "/change", **same)) == path + "?done=same"
    assert stored(service, name) == before
    wanted = {"priority": "5", "countries": "", "window": "32", "tps": "0"}
    assert goes_to(post(admin, path + "/change", **wanted)) == path + "?done=changed"
    after = stored(service, name)
    different = {column for column in after if after[column] != before[column]}
    assert different == {"priority", "countries", "window_size", "tps", "changed_at"}
    assert (after["priority"], after["countries"], after["window_size"], after["tps"]) == (5, None, 32, 0)
    assert last_change(service)["detail"] == (
        f"{name}: priority 100 → 5, countries ZW → all countries, window 10 → 32, tps 50 → 0"
    )
    for field, value in (("window", "0"), ("window", "10001"), ("tps", "100001"), ("countries", "QQ")):
        refused = post(admin, path + "/change", **(wanted | {field: value}))
        assert (refused.status_code, stored(service, name)) == (422, after)
        assert f'id="{field}-fault"' in refused.text


def test_a_carrier_is_removed_once_its_name_is_typed(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    service.sql("DELETE FROM binds")
    service.sql("UPDATE carriers SET removed_at = now()")
    page = page_of(viewer)
    assert "No carriers yet, so no messages can be sent." in page
    assert "Add one below" not in page
    other, name = new_carrier(service, countries=["ZA"]), new_carrier(service)
    hold(service, other, 1, "bound")
    assert "No carrier is accepting messages for Zimbabwe." in page_of(viewer)
    path = f"{CARRIERS}/{name}"
    page = page_of(admin, path)
    assert (
        "This is the only carrier for Zimbabwe. Without it, messages to these countries fail at once." in page
    )
    assert "This is the only carrier" not in page_of(admin, f"{CARRIERS}/{other}")
    refused = post(admin, path + "/remove", confirmed=other)
    assert (refused.status_code, stored(service, name)["removed_at"]) == (422, None)
    assert goes_to(post(admin, path + "/remove", confirmed=name)) == CARRIERS + "?done=removed"
    assert stored(service, name)["removed_at"] is not None
    assert (last_change(service)["what"], last_change(service)["detail"]) == ("carrier removed", name)
    for gone in (path, f"{CARRIERS}/never", f"{CARRIERS}/{'x' * 3000}"):
        assert admin.get(gone).status_code == 404
    for action in ("change", "test", "remove"):
        assert post(admin, f"{path}/{action}", confirmed=name).status_code == 404
    # Added again, it is the same carrier, whose receipts still match.
    assert goes_to(post(admin, CARRIERS, name=name, url=URL, priority="1")) == CARRIERS + "?done=added"


class Smsc(ServerPeer):
    """A carrier that lets one user in."""

    system_id = "testsmsc"

    def bound(self, bind: BindRequest, command: Command) -> int:
        del command
        return CommandStatus.ROK if bind.password == PASSWORD else CommandStatus.RINVPASWD


async def test_a_carrier_is_tested_from_the_page(service: Service, admin: httpx.Client) -> None:
    smsc = await asyncio.get_running_loop().create_server(Smsc, "127.0.0.1", 0)
    port = smsc.sockets[0].getsockname()[1]

    async def said(url: str) -> tuple[int, str]:
        name = await asyncio.to_thread(new_carrier, service, url)
        answer = await asyncio.to_thread(post, admin, f"{CARRIERS}/{name}/test", test="yes")
        assert PASSWORD[1:] not in answer.text
        return answer.status_code, words(answer.text)

    try:
        status, text = await said(f"smpp://user:{PASSWORD}@127.0.0.1:{port}")
        assert (status, "system ID: testsmsc" in text) == (200, True)
        status, text = await said(f"smpp://user:x{PASSWORD[1:]}@127.0.0.1:{port}")
        assert (status, "The password is wrong" in text) == (422, True)
    finally:
        smsc.close()
        await smsc.wait_closed()
    nobody = free_port()
    status, text = await said(f"smpp://user:{PASSWORD}@127.0.0.1:{nobody}")
    assert (status, f"127.0.0.1:{nobody} refused the connection." in text) == (422, True)
