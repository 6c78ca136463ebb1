"""Refused texts and templates in the database: retention, consent and races."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import Batchers, broken_promises, open_batchers, send_call
from tumira.audit_log import Actor
from tumira.content import review as content_review
from tumira.content import store as content_store
from tumira.content import template_store
from tumira.content.check import describe_refusal
from tumira.content.review import list_refusals, list_templates
from tumira.content.store import ContentRefusal, NewRefusal
from tumira.content.templates import TemplateVerdict
from tumira.core.errors import ContentRejected, OperatorError
from tumira.core.ids import AccountId, TemplateId, new_id
from tumira.identity import manage_accounts
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database
from tumira.sending.types import Answered, Decision, Refused

FORGET: Final = next(task for task in MAINTENANCE_TASKS if task.name == "forget refused texts")
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
OTHER: Final = "Mega deals today: 30% off every phone in store. Hurry and shop now, limited offer!"
PARCEL: Final = "Your parcel {number} waits at {shop}."

TESTER: Final = Actor("test")


@pytest_asyncio.fixture
async def batchers(database_url: str) -> AsyncIterator[Batchers]:
    async with open_batchers(database_url, 1) as opened:
        yield opened


@pytest_asyncio.fixture
async def caller(database_url: str) -> Caller:
    return await new_caller(database_url)


async def refuse(batchers: Batchers, caller: Caller, *texts: str) -> None:
    decisions = await batchers.ask_all([send_call(caller, body=text) for text in texts])
    assert all(is_rejected(decision) for decision in decisions), decisions


def is_rejected(decision: Decision) -> bool:
    return isinstance(decision, Refused) and isinstance(decision.refusal, ContentRejected)


async def refused(batchers: Batchers, caller: Caller | None = None) -> list[ContentRefusal]:
    account_id = None if caller is None else caller.id
    async with batchers.database.connection() as connection:
        return list(await content_store.list_latest(connection, account_id, 100))


async def execute(batchers: Batchers, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    async with batchers.database.connection() as connection:
        return await connection.fetch(statement, *arguments)


async def allow(
    database: Database,
    text: str,
    account_id: AccountId | None = None,
    verdict: TemplateVerdict = TemplateVerdict.ALLOW,
) -> template_store.Template:
    return await content_review.add_template(database, text, account_id, verdict, note="why", actor=TESTER)


async def test_a_text_is_counted_once_for_each_account_and_only_its_words_are_kept(
    batchers: Batchers, caller: Caller, database_url: str
) -> None:
    other = await new_caller(database_url)
    await refuse(batchers, caller, ADVERT)
    (first,) = await refused(batchers)
    # Texts that differ only in their numbers count as one.
    calls = [(caller, ADVERT.replace("50", "7")), (other, ADVERT), (caller, ADVERT), (caller, ADVERT)]
    decisions = await batchers.ask_all([send_call(one, body=text) for one, text in calls])
    assert all(is_rejected(decision) for decision in decisions)
    await refuse(batchers, caller, OTHER)
    latest, again = await refused(batchers, caller)
    assert (latest.count, again.count) == (1, 4)
    assert again.first_at == first.first_at == first.last_at < again.last_at < latest.last_at
    assert [one.count for one in await refused(batchers, other)] == [1]
    assert len(await refused(batchers)) == 3

    assert (first.account_id, first.text) == (caller.id, None)
    assert first.reasons
    for reason in first.reasons:
        assert set(reason) == {"words", "category"}
        assert reason["words"] in ADVERT
        assert reason["words"] != ADVERT
    assert 0.5 <= first.score <= 1
    for row in await execute(batchers, "SELECT r::text FROM content_refusals AS r"):
        assert ADVERT not in row[0]


async def test_with_consent_the_text_is_kept_and_without_it_is_erased(
    batchers: Batchers, caller: Caller
) -> None:
    assert (await manage_accounts.review(batchers.database, caller.id, consent=True)).review_consent
    await refuse(batchers, caller, ADVERT, OTHER)
    assert {one.text for one in await refused(batchers)} == {ADVERT, OTHER}

    assert not (await manage_accounts.review(batchers.database, caller.id, consent=False)).review_consent
    assert [one.text for one in await refused(batchers)] == [None, None]

    await refuse(batchers, caller, ADVERT)
    assert [one.text for one in await refused(batchers)] == [None, None]


async def test_a_call_that_is_refused_while_consent_is_withdrawn_leaves_no_text(
    batchers: Batchers, caller: Caller
) -> None:
    await manage_accounts.review(batchers.database, caller.id, consent=True)
    for _ in range(4):
        decision, _ = await asyncio.gather(
            batchers.batchers[0].ask(send_call(caller, body=ADVERT)),
            manage_accounts.review(batchers.database, caller.id, consent=False),
        )
        assert is_rejected(decision)
        assert [one.text for one in await refused(batchers)] == [None]
        await manage_accounts.review(batchers.database, caller.id, consent=True)


async def test_an_accepted_send_among_refused_ones_is_accepted_and_nothing_else_is_paid(
    batchers: Batchers, caller: Caller
) -> None:
    calls = [send_call(caller, body=body) for body in (ADVERT, "Your code is 493817.", ADVERT)]
    decisions = await batchers.ask_all(calls)
    assert [isinstance(decision, Answered) for decision in decisions] == [False, True, False]
    rows = await execute(batchers, "SELECT balance::text FROM accounts WHERE id = $1", caller.id)
    assert rows[0][0] == "99.9600"
    assert [one.count for one in await refused(batchers)] == [2]
    assert await broken_promises(batchers.database) == []


async def test_a_blocked_text_is_noted_as_such(batchers: Batchers, caller: Caller) -> None:
    await allow(batchers.database, "Your code is {code}, and no other", verdict=TemplateVerdict.BLOCK)
    await refuse(batchers, caller, "Your code is 7, and no other")
    (kept,) = await refused(batchers)
    assert (kept.category, kept.score, list(kept.reasons)) == ("blocked_template", 1.0, [])


async def test_refusals_are_forgotten_after_30_days_without_another_and_not_before(
    batchers: Batchers, caller: Caller
) -> None:
    await refuse(batchers, caller, ADVERT, OTHER)
    for text, days in ((ADVERT, 31), (OTHER, 29)):
        noted = describe_refusal(
            caller.id, text, ContentRejected.blocked(), datetime.now(UTC), keep_text=False
        )
        await execute(
            batchers,
            "UPDATE content_refusals SET first_at = now() - interval '90 days',"
            " last_at = now() - make_interval(days => $2) WHERE digest = $1",
            noted.digest,
            days,
        )
    await fill(batchers, caller, 1100, days=31)
    assert FORGET.more_at == 1000
    assert [await run_task(batchers.database, FORGET) for _ in range(3)] == [1000, 101, 0]
    await refuse(batchers, caller, OTHER)
    (kept,) = await refused(batchers)
    assert kept.count == 2


async def fill(batchers: Batchers, caller: Caller, count: int, days: int = 0) -> None:
    """Give an account this many refused texts, each a second older than the one before."""
    await execute(
        batchers,
        "INSERT INTO content_refusals"
        "       (account_id, digest, first_at, last_at, count, category, score, reasons)"
        " SELECT $1, sha256(n::text::bytea), at, at, 1, 'marketing', 1, '[]'"
        "   FROM generate_series(1, $2::integer) AS n,"
        "        LATERAL (SELECT now() - make_interval(days => $3, secs => n) AS at)",
        caller.id,
        count,
        days,
    )


async def test_an_account_keeps_its_newest_and_others_lose_nothing(
    batchers: Batchers, caller: Caller, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_store, "PER_ACCOUNT_MAX", 100)
    other = await new_caller(database_url)
    await fill(batchers, caller, 130)
    await fill(batchers, other, 100)
    assert await run_task(batchers.database, FORGET) == 30
    assert await run_task(batchers.database, FORGET) == 0
    rows = await execute(
        batchers,
        "SELECT account_id, count(*), extract(epoch FROM max(last_at) - min(last_at))::integer AS span"
        "  FROM content_refusals GROUP BY account_id",
    )
    assert {row["account_id"]: (row["count"], row["span"]) for row in rows} == {
        caller.id: (100, 99),
        other.id: (100, 99),
    }


async def test_forgetting_does_not_wait_for_a_text_that_is_being_refused(
    batchers: Batchers, caller: Caller
) -> None:
    await fill(batchers, caller, 3, days=31)
    async with batchers.database.transaction() as connection:
        (digest,) = await connection.fetchrow("SELECT digest FROM content_refusals LIMIT 1") or (b"",)
        again = NewRefusal(caller.id, digest, datetime.now(UTC), "marketing", 0.9, [], None)
        await content_store.record(connection, [again])
        assert await run_task(batchers.database, FORGET) == 2
    (kept,) = await refused(batchers)
    assert kept.count == 2


async def test_refusals_are_found_by_an_index_however_many_there_are(
    batchers: Batchers, caller: Caller
) -> None:
    await fill(batchers, caller, 5000)
    async with batchers.database.transaction() as connection:
        for statement, arguments in (
            (content_store.SQL_LIST, [20]),
            (content_store.SQL_LIST_OF_ACCOUNT, [caller.id, 20]),
        ):
            rows = await connection.fetch(f"EXPLAIN {statement.text}", *arguments)
            plan = "\n".join(row[0] for row in rows)
            assert "Index Scan" in plan, plan
            assert "Seq Scan" not in plan, plan


async def test_the_version_rises_with_every_change_of_the_templates(
    batchers: Batchers, caller: Caller
) -> None:
    async def version() -> int:
        async with batchers.database.connection() as connection:
            return (await template_store.get_policy(connection)).version

    versions = [await version()]
    added = await allow(batchers.database, PARCEL, caller.id)
    versions.append(await version())
    await content_review.remove_template(batchers.database, added.id, TESTER)
    versions.append(await version())
    await execute(batchers, "TRUNCATE templates")
    versions.append(await version())
    assert versions == [1, 2, 3, 4]


async def test_templates_are_read_again_only_when_they_changed(
    batchers: Batchers, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    get_policy = template_store.get_policy

    async def counted(connection: Any) -> Any:
        nonlocal reads
        reads += 1
        return await get_policy(connection)

    monkeypatch.setattr(template_store, "get_policy", counted)
    for expected in (1, 2):
        for _ in range(3):
            await refuse(batchers, caller, OTHER)
        assert reads == expected
        await allow(batchers.database, f"{PARCEL} Number {{n}} of {expected}")


async def test_of_two_who_add_the_same_template_one_does(batchers: Batchers, caller: Caller) -> None:
    for account_id in (caller.id, None):
        done = await asyncio.gather(
            *(allow(batchers.database, PARCEL, account_id) for _ in range(4)), return_exceptions=True
        )
        added = [one for one in done if isinstance(one, template_store.Template)]
        said = [str(one) for one in done if isinstance(one, OperatorError)]
        assert (len(added), len(said)) == (1, 3)
        assert all(one.startswith("This template exists already as tpl_") for one in said)
    assert len(await list_templates(batchers.database, caller.id)) == 2


async def test_there_are_at_most_so_many_templates(
    batchers: Batchers, caller: Caller, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await new_caller(database_url)
    monkeypatch.setattr(content_review, "OWN_MAX", 2)
    monkeypatch.setattr(content_review, "IN_ALL_MAX", 3)
    done = await asyncio.gather(
        *(allow(batchers.database, f"{PARCEL} Number {number}.", caller.id) for number in range(4)),
        return_exceptions=True,
    )
    assert [str(one) for one in done if isinstance(one, OperatorError)] == [
        "An account can have at most 2 templates. Remove one first."
    ] * 2
    await allow(batchers.database, PARCEL, other.id)
    with pytest.raises(OperatorError, match="There can be at most 3 templates"):
        await allow(batchers.database, PARCEL)


async def test_what_cannot_be_done_is_said_in_one_line(batchers: Batchers) -> None:
    for text, note, said in (
        ("{a}{b}", "", "Put text between placeholders"),
        (PARCEL, "a bell\a", "cannot be shown"),
        (PARCEL, "a" * 201, "at most 200 characters"),
    ):
        with pytest.raises(OperatorError, match=said):
            await content_review.add_template(
                batchers.database, text, None, TemplateVerdict.ALLOW, note=note, actor=TESTER
            )
    nobody = AccountId(new_id(0))
    for action in (
        allow(batchers.database, PARCEL, nobody),
        list_templates(batchers.database, nobody),
        list_refusals(batchers.database, nobody, 10),
        manage_accounts.review(batchers.database, nobody, consent=True),
    ):
        with pytest.raises(OperatorError, match="no such account"):
            await action
    with pytest.raises(OperatorError, match="does not exist"):
        await content_review.remove_template(batchers.database, TemplateId(new_id(0)), TESTER)


async def test_an_accounts_list_holds_what_counts_for_it(
    batchers: Batchers, caller: Caller, database_url: str
) -> None:
    other = await new_caller(database_url)
    added = [await allow(batchers.database, PARCEL, one) for one in (caller.id, None, other.id)]
    assert list(await list_templates(batchers.database, caller.id)) == added[:2]
    assert list(await list_templates(batchers.database, other.id)) == added[1:]
    assert list(await list_templates(batchers.database, None)) == added
