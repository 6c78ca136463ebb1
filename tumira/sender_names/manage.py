"""Requests for sender names by customers, and decisions about them by operators."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import AccountId, SenderNameId, new_id
from tumira.core.translation import _, mark
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.destinations import Tariff
from tumira.pricing.store import get_tariff
from tumira.sender_names import look_alikes, store
from tumira.sender_names.look_alikes import LookAlike
from tumira.sender_names.name_rules import NOTE_MAX, NOTE_MIN, check_name, paper_type
from tumira.sender_names.places import Place, check_place, describe_place
from tumira.sender_names.store import GrantState, OtherName, SenderName
from tumira.sending.owner_notices import NoticeKind, OwnerNotice, notify_owners

# Of one account: names in all, and names that wait for a decision.
NAMES_MAX: Final = 20
WAITING_MAX: Final = 5
# A shorter beginning of a business's name says nothing.
_BUSINESS_MIN: Final = 4

_NO_NAME: Final = mark("This sender name does not exist. `tumira sender list` shows all names.")
_WHAT: Final = {
    GrantState.GRANTED: "sender name granted",
    GrantState.REFUSED: "sender name refused",
    GrantState.REVOKED: "sender name revoked",
}
_SUBJECTS: Final = {
    GrantState.GRANTED: mark("Your sender name is granted"),
    GrantState.REFUSED: mark("Your sender name was refused"),
    GrantState.REVOKED: mark("Your sender name was revoked"),
}
_NOTICES: Final = {
    GrantState.GRANTED: mark(
        "Your sender name {name} is granted for {place}. See Sender names in the dashboard."
    ),
    GrantState.REFUSED: mark(
        "Your sender name {name} was refused for {place}. The reason is in the dashboard, under Sender names."
    ),
    GrantState.REVOKED: mark(
        "Your sender name {name} for {place} was revoked. Your messages go out under our name. The reason is "
        "in the dashboard, under Sender names."
    ),
}


@dataclass(frozen=True, slots=True)
class NameRequest:
    """What a customer asks for."""

    name: str
    countries: Collection[str]
    note: str
    paper: bytes = b""


@dataclass(frozen=True, slots=True)
class Warnings:
    """Whom a name may be taken for: protected names, and other accounts with their names."""

    look_alikes: Sequence[LookAlike]
    others: Sequence[OtherName]

    def __bool__(self) -> bool:
        return bool(self.look_alikes or self.others)


async def find_warnings(connection: Connection, account_id: AccountId, name: str) -> Warnings:
    key = look_alikes.fold(name)
    names = [
        one
        for one in await store.list_other_names(connection, account_id, key)
        if look_alikes.is_near(key, look_alikes.fold(one.name))
    ]
    words = sorted({word.lower() for word in look_alikes.split_words(name)})
    businesses = [
        one
        for one in await store.list_businesses(connection, account_id, words)
        if len(key) >= _BUSINESS_MIN and look_alikes.fold(one.business).startswith(key)
    ]
    return Warnings(look_alikes.find_look_alikes(name), [*names, *businesses])


async def ask(database: Database, account_id: AccountId, request: NameRequest, actor: Actor) -> SenderName:
    """Ask for a name in some countries, again where it was refused or revoked before."""
    fault = check_name(request.name)
    if fault is not None:
        raise FieldError("name", fault)
    note = _check_note(request.note)
    paper = None
    if request.paper:
        kind = paper_type(request.paper)
        if kind is None:
            raise FieldError("paper", _("Choose a PDF, JPEG or PNG file."))
        paper = (request.paper, kind)
    async with database.transaction() as connection:
        await store.lock(connection)
        tariff = await get_tariff(connection)
        known = await store.list_of_account(connection, account_id)
        before = next((one for one in known if one.name == request.name), None)
        places = _check_request(request, before, known, tariff)
        name_id = await store.upsert_name(
            connection,
            SenderNameId(new_id(time.time_ns() // 1_000_000)),
            account_id,
            request.name,
            look_alikes.fold(request.name),
            note,
            paper,
        )
        name = await _get(connection, name_id)
        for place in places:
            await store.set_grant(
                connection, name, place, GrantState.REQUESTED, in_use=False, note="", actor=audit_log.OWNER
            )
        detail = f"{request.name} for {', '.join(map(str, places))}"
        await audit_log.record(connection, account_id, actor, "sender name requested", detail)
        return await _get(connection, name_id)


def _check_request(
    request: NameRequest, before: SenderName | None, known: Sequence[SenderName], tariff: Tariff
) -> Sequence[Place]:
    """Return the places to ask for: those where nothing is asked or granted yet."""
    if not request.countries or not set(request.countries) <= set(tariff.names):
        raise FieldError("country", _("Choose at least one country."))
    if before is None and len(known) >= NAMES_MAX:
        text = _("You have asked for {most} names, which is the most.")
        raise FieldError("name", text.format(most=NAMES_MAX))
    if sum(one.is_waiting for one in known if one is not before) >= WAITING_MAX:
        text = _("{most} of your names wait for a decision. Wait for one of them.")
        raise FieldError("name", text.format(most=WAITING_MAX))
    is_open = (GrantState.REQUESTED, GrantState.GRANTED)
    places = [Place(country) for country in tariff.names if country in request.countries]
    new = [
        place
        for place in places
        if before is None or (grant := before.find_grant(place)) is None or grant.state not in is_open
    ]
    if not new:
        raise FieldError("name", _("You have asked for this name already. Its state is shown below."))
    return new


async def grant(
    database: Database,
    name_id: SenderNameId,
    place: Place,
    *,
    note: str,
    actor: Actor,
    use: bool = False,
    look_alike_reason: str = "",
) -> SenderName:
    """Grant a name in a place, and use it there if `use` or if no name is in use yet.

    A name that may be taken for that of another business is granted only with a reason.
    """
    reason = " ".join(look_alike_reason.split())
    async with database.transaction() as connection:
        name, before = await _lock(connection, name_id, place)
        if before is GrantState.GRANTED:
            text = _("{name} is granted for {place} already.")
            raise OperatorError(text.format(name=name.name, place=place))
        if await find_warnings(connection, name.account_id, name.name) and not reason:
            raise FieldError(
                "reason",
                _("This name looks like another one. Confirm that it is theirs, and enter how you know."),
            )
        in_use = use or not await store.has_name_in_use(connection, name.account_id, place)
        detail = f"look-alike confirmed: {reason}" if reason else ""
        await _decide(connection, name, place, GrantState.GRANTED, note, actor, in_use=in_use, detail=detail)
        return await _get(connection, name_id)


async def refuse(
    database: Database, name_id: SenderNameId, place: Place, *, note: str, actor: Actor
) -> SenderName:
    """Refuse a name in a place: also in one network of a country where it is granted."""
    async with database.transaction() as connection:
        name, before = await _lock(connection, name_id, place)
        if before is GrantState.GRANTED:
            text = _("{name} is granted for {place}. Revoke it instead.")
            raise OperatorError(text.format(name=name.name, place=place))
        if before is GrantState.REFUSED:
            text = _("{name} was refused for {place} already.")
            raise OperatorError(text.format(name=name.name, place=place))
        await _decide(connection, name, place, GrantState.REFUSED, note, actor, in_use=False)
        return await _get(connection, name_id)


async def revoke(
    database: Database, name_id: SenderNameId, place: Place, *, note: str, actor: Actor
) -> SenderName:
    """Revoke a granted name: no message that is claimed from now on goes out under it."""
    async with database.transaction() as connection:
        name, before = await _lock(connection, name_id, place)
        if before is not GrantState.GRANTED:
            raise _not_granted(name, place)
        await _decide(connection, name, place, GrantState.REVOKED, note, actor, in_use=False)
        return await _get(connection, name_id)


async def use(database: Database, name_id: SenderNameId, place: Place, *, actor: Actor) -> SenderName:
    """Use a granted name in a place, instead of another name of the account."""
    async with database.transaction() as connection:
        name, _state = await _lock(connection, name_id, place)
        granted = name.find_grant(place)
        if granted is None or granted.state is not GrantState.GRANTED:
            raise _not_granted(name, place)
        if not granted.in_use:
            await store.set_grant(
                connection,
                name,
                place,
                GrantState.GRANTED,
                in_use=True,
                note=granted.note,
                actor=actor.name,
                change=store.USED,
            )
            await _record(connection, name, actor, "sender name in use", f"{name.name} for {place}")
        return await _get(connection, name_id)


async def _lock(
    connection: Connection, name_id: SenderNameId, place: Place
) -> tuple[SenderName, GrantState | None]:
    """Return a name that nobody else decides about now, and its state in a place."""
    await store.lock(connection)
    name = await _get(connection, name_id)
    check_place(place, await get_tariff(connection))
    found = name.find_grant(place)
    return name, None if found is None else found.state


def _not_granted(name: SenderName, place: Place) -> OperatorError:
    return OperatorError(_("{name} is not granted for {place}.").format(name=name.name, place=place))


async def _decide(
    connection: Connection,
    name: SenderName,
    place: Place,
    state: GrantState,
    note: str,
    actor: Actor,
    *,
    in_use: bool,
    detail: str = "",
) -> None:
    note = " ".join(note.split())
    if len(note) > NOTE_MAX:
        raise FieldError("note", _("Enter a note of at most {most} characters.").format(most=NOTE_MAX))
    if state is not GrantState.GRANTED and not note:
        raise FieldError("note", _("Enter a reason. The customer can read it."))
    await store.set_grant(connection, name, place, state, in_use=in_use, note=note, actor=actor.name)
    words = f"{name.name} for {place}" + (f": {note}" if note else "")
    await _record(connection, name, actor, _WHAT[state], words, detail)
    tariff = await get_tariff(connection)
    notice = OwnerNotice(
        name.account_id,
        _(_SUBJECTS[state]),
        _(_NOTICES[state]).format(name=name.name, place=describe_place(place, tariff)),
    )
    await notify_owners(connection, NoticeKind.SENDER_NAME, [notice], datetime.now(UTC))


async def _record(
    connection: Connection, name: SenderName, actor: Actor, what: str, words: str, detail: str = ""
) -> None:
    """Record a decision for the customer, and for operators with what only they see."""
    await audit_log.record(connection, name.account_id, Actor(actor.name), what, words)
    whole = "; ".join(part for part in (words, detail) if part)
    await audit_log.record_by_operator(connection, actor, what, whole, name.account_id)


async def _get(connection: Connection, name_id: SenderNameId) -> SenderName:
    name = await store.find_name(connection, name_id)
    if name is None:
        raise OperatorError(_(_NO_NAME))
    return name


def _check_note(note: str) -> str:
    note = note.strip()
    if len(note) < NOTE_MIN:
        raise FieldError("note", _("Say what your business sends, and why the name is yours."))
    if len(note) > NOTE_MAX:
        raise FieldError("note", _("Enter at most {most} characters.").format(most=NOTE_MAX))
    return note
