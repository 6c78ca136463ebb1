"""The actions on endpoints and their limits, also when several run at the same time."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.support.webhooks.office import URL, Office, new_attempt
from tumira import events
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId, EndpointId, EventId, new_id
from tumira.webhooks import attempts, endpoints, manage, replay
from tumira.webhooks.health import Health
from tumira.webhooks.manage import ENDPOINTS_MAX, OVERLAP, EndpointError
from tumira.webhooks.retries import Backlog
from tumira.webhooks.signature import read_secret


def refusals(results: Sequence[Any]) -> Sequence[str]:
    wrong = [one for one in results if isinstance(one, BaseException)]
    assert all(isinstance(one, OperatorError) for one in wrong), wrong
    return [str(one) for one in wrong]


async def test_of_many_at_once_five_endpoints_are_added_and_never_six(office: Office) -> None:
    adds = [office.add(f"{URL}/{number}") for number in range(12)]
    refused = refusals(await asyncio.gather(*adds, return_exceptions=True))

    assert refused == ["An account can have 5 endpoints at most. Remove one first."] * 7
    found = await manage.list_endpoints(office.database, office.ours, 100)
    assert len(found) == ENDPOINTS_MAX
    assert (await office.add(account_id=office.theirs)).account_id == office.theirs
    await manage.remove_endpoint(office.database, found[0][0].id)
    await office.add(f"{URL}/again")
    with pytest.raises(OperatorError, match="Remove one first"):
        await office.add(f"{URL}/more")


async def test_without_the_lock_two_at_once_make_a_sixth(office: Office) -> None:
    first, *_ = [await office.add(f"{URL}/{number}") for number in range(ENDPOINTS_MAX - 1)]
    there = []
    async with office.database.transaction() as one, office.database.transaction() as other:
        for connection, number in ((one, 10), (other, 11)):
            there.append(len(await endpoints.list_endpoints(connection, office.ours, ENDPOINTS_MAX)))
            another = structs.replace(first, id=EndpointId(new_id(number)), url=f"{URL}/{number}", types=None)
            await endpoints.insert(connection, another)

    assert there == [4, 4]
    assert len(await manage.list_endpoints(office.database, office.ours, 100)) == ENDPOINTS_MAX + 1


async def test_an_url_is_the_url_of_one_endpoint_however_it_is_spelt(office: Office) -> None:
    refused = refusals(await asyncio.gather(*(office.add() for _ in range(4)), return_exceptions=True))
    assert refused == ["You already have an endpoint with this URL. Change that one instead."] * 3
    assert (await office.add(account_id=office.theirs)).url == URL
    second = await office.add(f"{URL}/2")
    for twice in (office.add("HTTPS://Hooks.Example.COM:443/tumira"), office.change(second.id, url=URL)):
        with pytest.raises(OperatorError, match="already have an endpoint with this URL"):
            await twice
    assert (await office.stored(second.id)).url == f"{URL}/2"


async def test_the_secret_that_is_shown_is_the_one_that_signs_and_is_never_printed(office: Office) -> None:
    endpoint, shown = await manage.add_endpoint(
        office.database, office.ours, URL, None, "", allow_private=False
    )

    stored = await office.stored(endpoint.id)
    assert read_secret(shown) == stored.secret
    assert shown not in repr(endpoint)
    assert repr(bytes(stored.secret)) not in repr(stored)


async def test_after_two_rotations_the_first_secret_signs_nothing(office: Office) -> None:
    endpoint = await office.add()
    both = await asyncio.gather(*(manage.rotate_secret(office.database, endpoint.id) for _ in range(2)))
    secrets = {read_secret(secret) for _, secret in both}
    now = datetime.now(UTC)
    stored = await office.stored(endpoint.id)
    assert len({bytes(endpoint.secret), *secrets}) == 3
    assert set(stored.secrets_at(now)) == secrets
    until = stored.old_secret_until
    assert until is not None
    assert stored.created_at <= until - OVERLAP <= datetime.now(UTC)
    assert set(stored.secrets_at(until - timedelta(milliseconds=1))) == secrets
    assert stored.secrets_at(until) == (stored.secret,)

    # Of many who saw the same, one rotates.
    results = await asyncio.gather(
        *(manage.rotate_secret(office.database, endpoint.id, seen=stored.changed_at) for _ in range(5)),
        return_exceptions=True,
    )
    assert len(refusals(results)) == 4
    assert (await office.stored(endpoint.id)).old_secret == stored.secret


async def test_a_resumed_endpoint_gets_what_was_missed_at_once(office: Office) -> None:
    endpoint = await office.add()
    first, *_ = await office.add_events(3)
    await office.move(endpoint.id, 1)
    await office.put_off(endpoint.id, first, timedelta(hours=5))
    await manage.pause_endpoint(office.database, endpoint.id)
    assert await office.waiting(endpoint.id) == Backlog(1, 0, 2)
    await office.fail(endpoint.id)

    resumed = await manage.resume_endpoint(office.database, endpoint.id, from_now=False)

    stored = await office.stored(endpoint.id)
    assert (resumed.state, resumed.position, stored.state, stored.position) == ("active", 1, "active", 1)
    assert stored.health == Health(succeeded_at=stored.health.succeeded_at)
    assert await office.waiting(endpoint.id) == Backlog(1, 0, 2)
    due = await office.due(endpoint.id)
    assert [(retry.event_id, retry.attempts) for retry in due] == [(first.id, 3)]


async def test_resumed_from_now_nothing_of_the_past_waits_and_all_of_it_can_be_replayed(
    office: Office,
) -> None:
    endpoint, other = await office.add(), await office.add(f"{URL}/2")
    first, *_ = await office.add_events(4)
    for one in (endpoint, other):
        await office.move(one.id, 2)
        await office.put_off(one.id, first, timedelta(hours=5))
        await replay.replay_after(office.database, one.id, 0)
    assert await office.waiting(endpoint.id) == Backlog(1, 2, 2)
    await manage.pause_endpoint(office.database, endpoint.id)

    resumed = await manage.resume_endpoint(office.database, endpoint.id, from_now=True)

    assert (resumed.state, resumed.position) == ("active", 4)
    assert await office.waiting(endpoint.id) == Backlog(0, 0, 0)
    assert await office.waiting(other.id) == Backlog(1, 2, 2)
    assert await replay.replay_after(office.database, endpoint.id, 0) == 4


async def test_at_a_new_url_it_begins_afresh_and_otherwise_goes_on_as_it_was(office: Office) -> None:
    endpoint = await office.add()
    (event,) = await office.add_events(1)
    await office.move(endpoint.id, 1)
    await office.put_off(endpoint.id, event, timedelta(hours=5))
    health = await office.fail(endpoint.id)
    for url, description, words in (
        ("ftp://hooks.example.com/", "Shop", "must begin with https"),
        (f"{URL}/new", "x" * 201, "at most 200 characters"),
    ):
        with pytest.raises(OperatorError, match=words):
            await office.change(endpoint.id, url=url, description=description)
    stored = await office.stored(endpoint.id)
    assert (stored.url, stored.description) == (URL, "")

    await office.change(endpoint.id, description="é" * 200, types=["message.failed"], change_types=True)
    stored = await office.stored(endpoint.id)
    assert (stored.description, stored.types, stored.health) == ("é" * 200, ["message.failed"], health)
    assert await office.due(endpoint.id) == []

    await office.change(endpoint.id, url=f"{URL}/new")
    stored = await office.stored(endpoint.id)
    assert (stored.url, stored.description, stored.types) == (f"{URL}/new", "é" * 200, ["message.failed"])
    assert (stored.health.failures, stored.health.backoff_until, stored.health.warnings) == (0, None, 0)
    assert len(await office.due(endpoint.id)) == 1
    await office.change(endpoint.id, types=None, change_types=True)
    assert (await office.stored(endpoint.id)).types is None


async def test_a_worker_can_tell_every_change_from_the_last(office: Office) -> None:
    endpoint = await office.add()
    seen = [(await office.stored(endpoint.id)).changed_at]
    for step in (
        office.change(endpoint.id, description="Shop"),
        manage.pause_endpoint(office.database, endpoint.id),
        manage.resume_endpoint(office.database, endpoint.id, from_now=False),
        manage.rotate_secret(office.database, endpoint.id),
    ):
        await step
        seen.append((await office.stored(endpoint.id)).changed_at)

    assert seen == sorted(set(seen))


async def test_a_replay_ends_where_the_endpoint_is(office: Office) -> None:
    endpoint = await office.add()
    await office.add_events(5)
    await office.move(endpoint.id, 3)

    counts = [
        await replay.replay_after(office.database, endpoint.id, after) for after in (0, 2, 3, 4, 5, 2**70)
    ]

    assert counts == [3, 1, 0, 0, 0, 0]
    assert await office.stretches(endpoint.id) == [(0, 3), (2, 3)]
    assert await office.waiting(endpoint.id) == Backlog(0, 4, 2)


async def test_a_replay_of_some_time_takes_both_its_ends_and_no_more(office: Office) -> None:
    endpoint = await office.add()
    began = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
    await office.add_events(5, at=began)
    await office.add_events(5, at=began, account_id=office.theirs)
    await office.move(endpoint.id, 4)

    async def between(first_s: float, last_s: float) -> int:
        return await replay.replay_between(
            office.database,
            endpoint.id,
            began + timedelta(seconds=first_s),
            began + timedelta(seconds=last_s),
        )

    assert [await between(1, 2), await between(0.5, 1.5), await between(-99, 99)] == [2, 1, 4]
    # Before, between two, after, turned around, and what comes by itself.
    assert [await between(*ends) for ends in ((-9, -1), (1.2, 1.8), (5, 9), (2, 1), (4, 4))] == [0] * 5
    assert await office.stretches(endpoint.id) == [(1, 3), (1, 2), (0, 4)]


async def test_one_event_is_replayed_alone_and_only_its_owners(office: Office) -> None:
    endpoint = await office.add()
    picky = await office.add(f"{URL}/2", ["message.failed"])
    _, second, _ = await office.add_events(3)
    (foreign,) = await office.add_events(1, account_id=office.theirs)
    for one in (endpoint, picky):
        await office.move(one.id, 3)
    test_id = await manage.send_test(office.database, endpoint.id)

    assert await replay.replay_event(office.database, endpoint.id, second.id) == 1
    (fourth,) = await office.add_events(1)
    # It comes by itself.
    assert await replay.replay_event(office.database, endpoint.id, fourth.id) == 0

    for endpoint_id, event_id, words in (
        (endpoint.id, foreign.id, "no such event; `tumira webhook attempts`"),
        (endpoint.id, EventId(new_id(1)), "no such event; `tumira webhook attempts`"),
        (endpoint.id, test_id, "`tumira webhook test` sends another"),
        (picky.id, second.id, "does not take balance.low; `tumira webhook change`"),
    ):
        with pytest.raises(OperatorError, match=words):
            await replay.replay_event(office.database, endpoint_id, event_id)
    assert await office.stretches(endpoint.id) == [(1, 2)]
    assert await office.stretches(picky.id) == []


async def test_what_is_not_active_is_neither_tested_nor_replayed(office: Office) -> None:
    endpoint = await office.add()
    (event,) = await office.add_events(1)
    await office.move(endpoint.id, 1)
    now = datetime.now(UTC)
    for state in ("paused", "disabled"):
        await office.rows(
            "UPDATE webhook_endpoints SET state = $2 WHERE id = $1 RETURNING id", endpoint.id, state
        )
        for action in (
            manage.send_test(office.database, endpoint.id),
            replay.replay_after(office.database, endpoint.id, 0),
            replay.replay_event(office.database, endpoint.id, event.id),
            replay.replay_between(office.database, endpoint.id, now - timedelta(1), now),
            replay.replay_failed(office.database, endpoint.id, now - timedelta(1)),
        ):
            with pytest.raises(EndpointError) as refused:
                await action
            assert str(refused.value) == f"The endpoint is {state}: `tumira webhook resume` first."
            assert refused.value.plain == f"The endpoint is {state}. Resume it first."
    assert await office.waiting(endpoint.id) == Backlog(0, 0, 0)


async def test_a_removed_endpoint_leaves_its_attempts_and_nothing_that_waits(office: Office) -> None:
    endpoint, other = await office.add(), await office.add(f"{URL}/2")
    (event,) = await office.add_events(1)
    for one in (endpoint, other):
        await office.move(one.id, 1)
        await office.put_off(one.id, event, timedelta(hours=5))
        await replay.replay_after(office.database, one.id, 0)
    both = [endpoint.id, other.id]
    attempt = new_attempt(endpoint.id, event.id, answer="no")
    async with office.database.transaction() as connection:
        await attempts.insert_attempts(connection, [attempt])

    assert (await manage.remove_endpoint(office.database, endpoint.id)).id == endpoint.id

    for table in ("webhook_retries", "webhook_replays"):
        rows = await office.rows(f"SELECT endpoint_id FROM {table} WHERE endpoint_id = ANY($1)", both)
        assert [row[0] for row in rows] == [other.id]
    async with office.database.connection() as connection:
        assert await attempts.list_attempts(connection, None, endpoint.id, 10) == [attempt]


async def test_a_test_has_no_number_and_does_not_wait_for_a_rest(office: Office) -> None:
    endpoint = await office.add()
    await office.add_events(2)
    health = await office.fail(endpoint.id)

    event_id = await manage.send_test(office.database, endpoint.id)

    (row,) = await office.rows("SELECT sequence, type, account_id FROM events WHERE id = $1", event_id)
    assert tuple(row) == (0, "webhook.test", office.ours)
    async with office.database.connection() as connection:
        assert await events.last_sequence(connection, office.ours) == 2
    due = await office.due(endpoint.id)
    assert [(retry.event_id, retry.sequence, retry.attempts) for retry in due] == [(event_id, 0, 0)]
    # Only the rest is lifted: whether it works again is what the test finds out.
    assert (await office.stored(endpoint.id)).health == structs.replace(health, backoff_until=None)


async def test_a_list_is_one_accounts_or_everybodys_with_what_waits_for_each(office: Office) -> None:
    await office.add_events(4, account_id=office.theirs)
    first, second = await office.add(), await office.add(f"{URL}/2")
    # Only what happens from now on waits for it.
    foreign = await office.add(account_id=office.theirs)
    (event, *_) = await office.add_events(3)
    await office.move(second.id, 2)
    await office.put_off(second.id, event, timedelta(hours=1))
    await replay.replay_after(office.database, second.id, 0)

    async def listed(account_id: AccountId | None, count_max: int = 10) -> dict[EndpointId, Backlog]:
        found = await manage.list_endpoints(office.database, account_id, count_max)
        return {endpoint.id: waiting for endpoint, waiting in found}

    assert await listed(office.ours) == {first.id: Backlog(0, 0, 3), second.id: Backlog(1, 2, 1)}
    assert await listed(office.theirs) == {foreign.id: Backlog(0, 0, 0)}
    everybodys = list(await listed(None, 1000))
    assert [one for one in everybodys if one in {first.id, second.id, foreign.id}] == [
        first.id,
        second.id,
        foreign.id,
    ]
    assert list(await listed(None, 2)) == everybodys[:2]
    with pytest.raises(OperatorError, match="no such account"):
        await listed(AccountId(new_id(1)))


async def test_its_owner_is_warned_of_an_endpoint_that_fails_and_of_a_disabled_one(office: Office) -> None:
    endpoint = await office.add()
    since = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)

    def warned(state: str = "active", reason: str | None = None, **health: Any) -> str | None:
        changed = structs.replace(endpoint, state=state, reason=reason, health=Health(**health))
        return manage.warning(changed)

    assert warned() is None
    assert warned(failures=3, failing_since=since) is None
    assert warned(failures=30, failing_since=since, warnings=1) == (
        "Failing since 15 Nov, 10:30. It will be disabled on 20 Nov, 10:30 unless an event is delivered."
    )
    assert warned(state="disabled", reason="It answered 410 Gone.") == (
        "Disabled: It answered 410 Gone. Fix your server, then resume the endpoint to get the events it "
        "missed."
    )
