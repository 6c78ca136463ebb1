"""Requests for sender names and the decisions about them."""

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from tests.support.delivery.engine import Engine
from tests.support.processes.service import Caller
from tests.support.sending.owners import give_owner, texts_to_owner
from tumira.audit_log import OWNER, Actor
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import SenderNameId, new_id
from tumira.sender_names import manage, store
from tumira.sender_names.manage import NAMES_MAX, WAITING_MAX, NameRequest
from tumira.sender_names.places import Place
from tumira.sender_names.store import SenderName

OWN: Final = Actor(OWNER, "198.18.0.1")
ADMIN: Final = Actor("operator:Rudo", "198.18.0.2")
NOTE: Final = "We tell customers that their parcels have arrived."
PDF: Final = b"%PDF-1.7 registration"
ZW: Final = Place("ZW")
ZA: Final = Place("ZA")


async def ask(
    engine: Engine, caller: Caller, name: str, *, countries: Sequence[str] = ("ZW",), paper: bytes = b""
) -> SenderName:
    return await manage.ask(engine.database, caller.id, NameRequest(name, countries, NOTE, paper), OWN)


async def grant(engine: Engine, name: SenderName, place: Place = ZW, **options: object) -> SenderName:
    return await manage.grant(engine.database, name.id, place, note="", actor=ADMIN, **options)  # type: ignore[arg-type]


def states(name: SenderName) -> dict[str, tuple[str, bool]]:
    return {str(one.place): (one.state.value, one.in_use) for one in name.grants}


async def changes(engine: Engine, caller: Caller) -> list[tuple[str, str, str]]:
    rows = await engine.rows(
        "SELECT actor, what, detail FROM changes WHERE account_id = $1 AND what LIKE 'sender%' ORDER BY id",
        caller.id,
    )
    return [tuple(row) for row in rows]


async def test_a_name_is_asked_for_granted_replaced_and_revoked(engine: Engine) -> None:
    caller = await engine.open_account()
    phone = await give_owner(engine.database, caller.id)
    first = await ask(engine, caller, "Moyo Stores", countries=("ZW", "ZA"), paper=PDF)
    assert states(first) == {"ZW": ("requested", False), "ZA": ("requested", False)}
    assert first.paper_type == "application/pdf"
    assert states(await grant(engine, first)) == {"ZW": ("granted", True), "ZA": ("requested", False)}
    refused = await manage.refuse(engine.database, first.id, ZA, note="Numbers only", actor=ADMIN)
    assert states(refused)["ZA"] == ("refused", False)

    # A second name is granted beside the first, and used when an operator says so.
    second = await grant(engine, await ask(engine, caller, "MoyoAlerts"))
    assert states(second) == {"ZW": ("granted", False)}
    assert states(await manage.use(engine.database, second.id, ZW, actor=ADMIN)) == {"ZW": ("granted", True)}
    async with engine.database.connection() as connection:
        assert await store.list_in_use(connection, caller.id) == [(ZW, "MoyoAlerts")]
    revoked = await manage.revoke(engine.database, second.id, ZW, note="The network asked", actor=ADMIN)
    assert states(revoked) == {"ZW": ("revoked", False)}
    # Which name comes next is the operator's choice.
    async with engine.database.connection() as connection:
        assert await store.list_in_use(connection, caller.id) == []
        history = await store.list_history(connection, second.id, 10)
    assert [(one.actor, one.change, one.note) for one in history] == [
        ("operator:Rudo", "revoked", "The network asked"),
        ("operator:Rudo", "used", ""),
        ("operator:Rudo", "granted", ""),
        ("owner", "requested", ""),
    ]
    assert await changes(engine, caller) == [
        ("owner", "sender name requested", "Moyo Stores for ZW, ZA"),
        ("operator:Rudo", "sender name granted", "Moyo Stores for ZW"),
        ("operator:Rudo", "sender name refused", "Moyo Stores for ZA: Numbers only"),
        ("owner", "sender name requested", "MoyoAlerts for ZW"),
        ("operator:Rudo", "sender name granted", "MoyoAlerts for ZW"),
        ("operator:Rudo", "sender name in use", "MoyoAlerts for ZW"),
        ("operator:Rudo", "sender name revoked", "MoyoAlerts for ZW: The network asked"),
    ]
    told = await texts_to_owner(engine.database, phone)
    assert "Moyo Stores is granted for Zimbabwe" in told[0]
    assert "Moyo Stores was refused for South Africa" in told[1]


async def test_a_decision_follows_only_where_it_makes_sense(engine: Engine) -> None:
    caller = await engine.open_account()
    name = await ask(engine, caller, "Moyo Stores")
    with pytest.raises(OperatorError, match="not granted for ZW"):
        await manage.revoke(engine.database, name.id, ZW, note="No", actor=ADMIN)
    with pytest.raises(OperatorError, match="not granted for ZW"):
        await manage.use(engine.database, name.id, ZW, actor=ADMIN)
    with pytest.raises(FieldError, match="Enter a reason"):
        await manage.refuse(engine.database, name.id, ZW, note=" ", actor=ADMIN)
    await grant(engine, name)
    with pytest.raises(OperatorError, match="granted for ZW already"):
        await grant(engine, name)
    with pytest.raises(OperatorError, match="Revoke it instead"):
        await manage.refuse(engine.database, name.id, ZW, note="No", actor=ADMIN)
    with pytest.raises(FieldError, match="Choose one of these places"):
        await grant(engine, name, Place("XX"))
    with pytest.raises(OperatorError, match="does not exist"):
        await manage.grant(engine.database, SenderNameId(new_id(0)), ZW, note="", actor=ADMIN)
    with pytest.raises(FieldError, match="asked for this name already"):
        await ask(engine, caller, "Moyo Stores")


async def test_a_name_is_asked_for_again_after_a_refusal_and_keeps_its_paper(engine: Engine) -> None:
    caller = await engine.open_account()
    name = await ask(engine, caller, "Moyo Stores", paper=PDF)
    await manage.refuse(engine.database, name.id, ZW, note="Send your registration", actor=ADMIN)
    again = await ask(engine, caller, "Moyo Stores")
    assert (again.id, again.paper_type, again.is_waiting) == (name.id, "application/pdf", True)
    async with engine.database.connection() as connection:
        assert await store.find_paper(connection, name.id) == (PDF, "application/pdf")


async def test_requests_are_checked_and_limited(engine: Engine) -> None:
    caller = await engine.open_account()
    for request, field in (
        (NameRequest("A", ["ZW"], NOTE), "name"),
        (NameRequest("Moyo Stores", [], NOTE), "country"),
        (NameRequest("Moyo Stores", ["XX"], NOTE), "country"),
        (NameRequest("Moyo Stores", ["ZW"], "short"), "note"),
        (NameRequest("Moyo Stores", ["ZW"], "x" * 501), "note"),
        (NameRequest("Moyo Stores", ["ZW"], NOTE, b"<html>"), "paper"),
    ):
        with pytest.raises(FieldError) as refused:
            await manage.ask(engine.database, caller.id, request, OWN)
        assert refused.value.field == field
    names = [await ask(engine, caller, f"Shop {letter}") for letter in "ABCDE"]
    assert len(names) == WAITING_MAX
    with pytest.raises(FieldError, match="wait for a decision"):
        await ask(engine, caller, "Shop F")
    for place in range(WAITING_MAX, NAMES_MAX):
        await manage.refuse(engine.database, names[-1].id, ZW, note="No", actor=ADMIN)
        names.append(await ask(engine, caller, f"Shop {chr(65 + place)}"))
    await manage.refuse(engine.database, names[-1].id, ZW, note="No", actor=ADMIN)
    with pytest.raises(FieldError, match="which is the most"):
        await ask(engine, caller, "Shop Z")


@pytest.mark.parametrize("name", ["EC0CASH", "Econet", "CBZ Alerts"])
async def test_a_look_alike_is_granted_only_with_a_reason(engine: Engine, name: str) -> None:
    caller = await engine.open_account()
    asked = await ask(engine, caller, name)
    for reason in ("", "  "):
        with pytest.raises(FieldError, match="looks like another") as stopped:
            await grant(engine, asked, look_alike_reason=reason)
        assert stopped.value.field == "reason"
    granted = await grant(engine, asked, look_alike_reason="Letter of the bank, seen by me")
    assert states(granted) == {"ZW": ("granted", True)}
    (row,) = await engine.rows("SELECT detail FROM operator_changes WHERE what = 'sender name granted'")
    assert "Letter of the bank" in row["detail"]
    # The customer does not read what the operator noted.
    assert all("Letter" not in detail for _actor, _what, detail in await changes(engine, caller))


async def test_the_names_and_businesses_of_other_accounts_are_look_alikes(engine: Engine) -> None:
    one, two, three = [await engine.open_account() for _ in range(3)]
    await engine.rows("UPDATE accounts SET business = 'Chikwanha Farms (Pvt) Ltd' WHERE id = $1", one.id)
    first = await grant(engine, await ask(engine, one, "Kudzai Shop"))

    async def found(caller: Caller, name: str) -> list[str]:
        async with engine.database.connection() as connection:
            return [other.name for other in (await manage.find_warnings(connection, caller.id, name)).others]

    for name in ("Kudzai Shop", "KUDZA1SH0P", "Kudzai-Shp", "Kduzai Shop"):
        assert await found(two, name) == ["Kudzai Shop"], name
    assert await found(one, "Kudzai Shop") == []
    assert await found(two, "Tendai Shop") == []
    assert await found(two, "Chikwanha") == ["Chikwanha Farms (Pvt) Ltd"]
    with pytest.raises(FieldError, match="looks like another"):
        await grant(engine, await ask(engine, two, "KudzaiShop"))
    # What nobody asks for or holds any more is free.
    await manage.revoke(engine.database, first.id, ZW, note="Gone", actor=ADMIN)
    assert await found(three, "Kudzai Shop") == ["KudzaiShop"]


async def test_two_operators_never_grant_look_alikes_at_once(engine: Engine) -> None:
    one, two = await engine.open_account(), await engine.open_account()
    asked = await ask(engine, one, "Kudzai Shop")
    await manage.refuse(engine.database, asked.id, ZW, note="Not yet", actor=ADMIN)
    other = await ask(engine, two, "Kudzai-Shop")
    await manage.refuse(engine.database, other.id, ZW, note="Not yet", actor=ADMIN)
    done = await asyncio.gather(grant(engine, asked), grant(engine, other), return_exceptions=True)
    assert sorted(isinstance(one, FieldError) for one in done) == [False, True]


async def test_a_closed_account_loses_its_names_and_papers(engine: Engine) -> None:
    caller = await engine.open_account()
    name = await grant(engine, await ask(engine, caller, "Moyo Stores", paper=PDF))
    async with engine.database.transaction() as connection:
        await store.close_account(connection, caller.id, OWNER)
    async with engine.database.connection() as connection:
        left = await store.find_name(connection, name.id)
        assert left is not None
        assert (states(left), left.paper_type, left.note) == ({"ZW": ("revoked", False)}, None, "")
        assert await store.list_in_use(connection, caller.id) == []


async def test_a_paper_is_erased_some_time_after_the_last_decision(engine: Engine) -> None:
    caller = await engine.open_account()
    waiting = await ask(engine, caller, "Moyo Stores", paper=PDF)
    decided = await grant(engine, await ask(engine, caller, "Moyo Farm", paper=PDF))
    fresh = await grant(engine, await ask(engine, caller, "Moyo Bus", paper=PDF))
    await engine.rows(
        "UPDATE sender_grants SET changed_at = now() - interval '91 days' WHERE name_id <> $1", fresh.id
    )
    async with engine.database.transaction() as connection:
        assert await store.erase_old_papers(connection, 10) == 1
        assert await store.erase_old_papers(connection, 10) == 0
        assert await store.find_paper(connection, decided.id) is None
        assert await store.find_paper(connection, waiting.id) is not None
        assert await store.find_paper(connection, fresh.id) is not None
