"""Owners reach their own endpoints only; every change is in the audit log; failed events are replayed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import asyncpg
import pytest

from tests.support.postgres.databases import complete, execute
from tests.support.processes.service import new_caller
from tests.support.webhooks.commands import Allowing, add
from tests.support.webhooks.office import URL, Office, new_attempt
from tumira import audit_log
from tumira.accounts.api_keys import Scope
from tumira.audit_log import Actor
from tumira.cli.output import actor
from tumira.core.ids import ENDPOINT, KEY, AccountId, EndpointId, EventId, KeyId, new_id, write_id
from tumira.events import Event
from tumira.identity import manage_keys
from tumira.webhooks import attempts, leases, manage, replay, view
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.manage import By, EndpointError, NoEndpointError

HER: Final = Actor(audit_log.OWNER, "198.18.0.1")


async def noted(office: Office, account_id: AccountId) -> Sequence[tuple[str, str, str | None, str]]:
    rows = await office.rows(
        "SELECT what, actor, address, detail FROM changes WHERE account_id = $1 ORDER BY id", account_id
    )
    return [(row["what"], row["actor"], row["address"], row["detail"]) for row in rows][1:]


NOW: Final = datetime.now(UTC)
# Each is called with a database, an endpoint and who acts.
ACTIONS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "change": partial(
        manage.change_endpoint,
        url=None,
        types=["message.failed"],
        change_types=True,
        description="changed",
        allow_private=False,
    ),
    "pause": manage.pause_endpoint,
    "resume": partial(manage.resume_endpoint, from_now=True),
    "rotate": manage.rotate_secret,
    "test": manage.send_test,
    "replay one": partial(replay.replay_event, event_id=EventId(new_id(1))),
    "replay after": partial(replay.replay_after, after=0),
    "replay between": partial(replay.replay_between, from_at=NOW, until_at=NOW),
    "replay failed": partial(replay.replay_failed, since=NOW),
    "remove": manage.remove_endpoint,
}


async def test_a_foreign_endpoint_looks_like_an_unknown_one_and_is_not_even_locked(office: Office) -> None:
    theirs = await office.add(account_id=office.theirs)
    unknown = EndpointId(new_id(1))
    before = await office.stored(theirs.id)
    async with office.database.transaction() as connection:
        # Who waited for this lock would not answer before it is let go.
        await leases.lock_endpoints(connection, [theirs.id])
        for name, action in ACTIONS.items():
            said = []
            for endpoint_id in (theirs.id, unknown):
                with pytest.raises(NoEndpointError) as refused:
                    await action(office.database, endpoint_id, by=By(HER, office.ours))
                said.append(str(refused.value))
            assert len(set(said)) == 1, name
    with pytest.raises(NoEndpointError):
        await manage.get_endpoint(office.database, office.ours, theirs.id)
    assert await office.stored(theirs.id) == before
    assert await noted(office, office.ours) == []
    assert [what for what, *_ in await noted(office, office.theirs)] == ["endpoint added"]


async def test_each_change_is_noted_once_with_who_made_it(office: Office) -> None:
    endpoint = await office.add(URL + "/token?key=1234")
    for by in (By(HER, office.ours), By(Actor("cli:root"))):
        for name in ("pause", "pause", "resume", "rotate", "change", "change"):
            await ACTIONS[name](office.database, endpoint.id, by=by)
    await ACTIONS["test"](office.database, endpoint.id, by=By(HER, office.ours))
    await ACTIONS["remove"](office.database, endpoint.id, by=By(HER, office.ours))
    place = f"https://hooks.example.com ({write_id(ENDPOINT, endpoint.id)})"
    both = ["endpoint paused", "endpoint resumed", "endpoint secret rotated"]
    found = await noted(office, office.ours)
    assert [what for what, *_ in found] == [
        "endpoint added",
        *both,
        "endpoint changed",
        *both,
        "endpoint removed",
    ]
    assert [who for _, *who, _ in found] == [
        ["operator", None],
        *[[HER.name, HER.address]] * 4,
        *[["cli:root", None]] * 3,
        [HER.name, HER.address],
    ]
    assert {detail for *_, detail in found} == {
        place,
        f"{place}: from now on",
        f"{place}: events, description",
    }
    assert await noted(office, office.theirs) == []


async def test_a_change_that_cannot_be_noted_is_not_made(office: Office) -> None:
    endpoint = await office.add()
    key_id, _ = await manage_keys.create_key(office.database, office.ours, "kept", [Scope.SEND])
    before = await office.stored(endpoint.id)
    await office.rows("ALTER TABLE changes ADD CONSTRAINT known CHECK (actor <> 'nobody')")
    nobody = Actor("nobody")
    for name in ("change", "pause", "resume", "rotate", "remove"):
        with pytest.raises(asyncpg.CheckViolationError):
            await ACTIONS[name](office.database, endpoint.id, by=By(nobody, office.ours))
    for made in (
        manage.add_endpoint(
            office.database, office.ours, URL + "/2", None, "", allow_private=False, by=By(nobody)
        ),
        manage_keys.create_key(office.database, office.ours, "lost", [Scope.SEND], actor=nobody),
        manage_keys.revoke_key(office.database, key_id, actor=nobody),
        manage_keys.revoke_key(office.database, key_id, owner_id=office.ours, actor=nobody),
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await made
    assert await office.stored(endpoint.id) == before
    assert len(await manage.list_endpoints(office.database, office.ours, 100)) == 1
    keys = await office.rows(
        "SELECT name, revoked_at FROM api_keys WHERE account_id = $1 AND name <> 'test'", office.ours
    )
    assert [tuple(key) for key in keys] == [("kept", None)]


async def test_of_many_who_revoke_a_key_at_once_one_is_noted(office: Office) -> None:
    key_id, _ = await manage_keys.create_key(office.database, office.ours, "till", [Scope.SEND], actor=HER)
    await asyncio.gather(
        *(manage_keys.revoke_key(office.database, key_id, owner_id=office.ours, actor=HER) for _ in range(4)),
        *(manage_keys.revoke_key(office.database, key_id) for _ in range(4)),
    )
    assert not await manage_keys.revoke_key(office.database, key_id, owner_id=office.theirs, actor=HER)
    assert not await manage_keys.revoke_key(
        office.database, KeyId(new_id(1)), owner_id=office.ours, actor=HER
    )
    described = f"till ({write_id(KEY, key_id)})"
    found = await noted(office, office.ours)
    assert Counter((what, detail) for what, *_, detail in found) == {
        ("key created", described): 1,
        ("key revoked", described): 1,
    }
    assert await noted(office, office.theirs) == []


async def tried(
    office: Office, endpoint: Endpoint, event: Event, *statuses: int | None, **values: Any
) -> None:
    values = {"sequence": event.sequence, **values}
    made = [
        new_attempt(endpoint.id, event.id, number=number, status=status, **values)
        for number, status in enumerate(statuses, start=1)
    ]
    async with office.database.transaction() as connection:
        await attempts.insert_attempts(connection, made)


async def retries_of(office: Office, endpoint: Endpoint) -> Sequence[tuple[int, int]]:
    rows = await office.rows(
        "SELECT sequence, tries FROM webhook_retries WHERE endpoint_id = $1 AND due_at <= now()"
        " ORDER BY sequence",
        endpoint.id,
    )
    return [(row["sequence"], row["tries"]) for row in rows]


async def test_what_failed_and_never_arrived_is_tried_anew(office: Office) -> None:
    endpoint = await office.add(types=["balance.low", "message.failed"])
    other = await office.add(URL + "/2")
    told = await office.add_events(9)
    now = datetime.now(UTC)
    await tried(office, endpoint, told[0], 500, None, 500)
    await tried(office, endpoint, told[1], 500, 200)
    await tried(office, endpoint, told[2], 204)
    await tried(office, endpoint, told[3], 301)
    await tried(office, endpoint, told[4], None)
    # A test, what it does not take any more, what is of another day, and what failed elsewhere.
    await tried(office, endpoint, told[5], 500, sequence=0)
    await tried(office, endpoint, told[6], 500, type="message.sent")
    await tried(office, endpoint, told[7], 500, at=now - timedelta(days=2))
    await tried(office, other, told[8], 500)
    # It waits already, and has been tried three times: it is only hurried.
    await office.put_off(endpoint.id, told[4], timedelta(hours=5))

    replayed = await replay.replay_failed(
        office.database, endpoint.id, now - timedelta(days=1), by=By(HER, office.ours)
    )

    assert replayed == 3
    assert await retries_of(office, endpoint) == [(1, 0), (4, 0), (5, 3)]
    assert await retries_of(office, other) == []
    # All that happened in the time for which events are kept, and no more than that.
    assert await replay.replay_failed(office.database, endpoint.id, now - timedelta(days=900)) == 4


async def test_no_more_is_tried_anew_in_one_go_than_a_bound(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "FAILED_MAX", 2)
    endpoint = await office.add()
    for event in await office.add_events(3):
        await tried(office, endpoint, event, 500)
    since = datetime.now(UTC) - timedelta(hours=1)
    assert await replay.replay_failed(office.database, endpoint.id, since) == 2
    assert await retries_of(office, endpoint) == [(1, 0), (2, 0)]


async def test_tests_that_wait_are_bounded(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage, "TESTS_MAX", 3)
    endpoint = await office.add()
    results = await asyncio.gather(
        *(manage.send_test(office.database, endpoint.id) for _ in range(6)), return_exceptions=True
    )
    assert sum(isinstance(one, EndpointError) for one in results) == 3
    assert len(await retries_of(office, endpoint)) == 3


async def test_tries_are_read_by_their_owner_alone(office: Office) -> None:
    endpoint, theirs = await office.add(), await office.add(account_id=office.theirs)
    (event,) = await office.add_events(1)
    await tried(office, endpoint, event, 500, 200)
    read = view.list_attempts
    found, is_more = await read(office.database, office.ours, endpoint.id, None, 1)
    assert (len(found), is_more) == (1, True)
    rest, is_more = await read(office.database, office.ours, endpoint.id, found[0].id, 1)
    assert (len(rest), is_more) == (1, False)
    assert await read(office.database, office.theirs, endpoint.id, None, 1) == ([], False)
    assert await view.find_attempt(office.database, theirs, found[0].id) is None
    for account_id, is_found in ((office.ours, True), (office.theirs, False)):
        latest = await view.find_latest_attempt(office.database, account_id, endpoint.id, event.id)
        assert (latest is not None) == is_found


@pytest.mark.long
def test_what_is_done_at_the_command_line_is_noted_with_the_system_user(database_url: str) -> None:
    caller = complete(new_caller(database_url))
    cli = Allowing(database_url)
    endpoint = add(cli, caller)["endpoint_id"]
    for words in (("change", "--description", "x"), ("pause",), ("resume",), ("rotate",), ("remove",)):
        cli.json("webhook", words[0], endpoint, *words[1:])
    key = cli.json("key", "create", "--account", caller.account_id, "--name", "till")["key_id"]
    cli.json("key", "revoke", key)
    rows = execute(database_url, "SELECT what, actor, address FROM changes ORDER BY id OFFSET 1")
    assert [row["what"] for row in rows] == [
        "endpoint added",
        "endpoint changed",
        "endpoint paused",
        "endpoint resumed",
        "endpoint secret rotated",
        "endpoint removed",
        "key created",
        "key revoked",
    ]
    assert {(row["actor"], row["address"]) for row in rows} == {(actor().name, None)}
