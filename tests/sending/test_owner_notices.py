"""Alerts to owners: free, with the change that they are about, and bounded."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import pytest
import pytest_asyncio

from tests.support.delivery.engine import Engine, open_engine
from tests.support.processes.service import Caller
from tests.support.sending.owners import give_owner, texts_to_owner
from tumira.accounts import store as accounts
from tumira.core.ids import AccountId
from tumira.pricing.segments import Encoding, measure
from tumira.sending import owner_notices
from tumira.sending.low_balance import tell_low_balances
from tumira.sending.owner_notices import NOTICES_A_DAY, NoticeKind, OwnerNotice, notify_owners

NUMBER: Final = "+263771299999"
MORE: Final = NOTICES_A_DAY + 2


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with open_engine(database_url) as engine:
        yield engine


async def notify(engine: Engine, account_id: AccountId, times: int = 1) -> None:
    for _ in range(times):
        async with engine.database.transaction() as connection:
            notice = OwnerNotice(account_id, "Subject", "Something happened.")
            await notify_owners(connection, NoticeKind.REFUND, [notice], datetime.now(UTC))


async def mails_of(engine: Engine) -> list[tuple[str, str]]:
    return [(row["recipient"], row["body"]) for row in await engine.rows("SELECT * FROM mails ORDER BY id")]


async def low(engine: Engine, caller: Caller) -> str:
    """Send what takes the balance of an account below its threshold, and return its owner's number."""
    phone = await give_owner(engine.database, caller.id, "owner@example.com")
    await engine.send(caller, [NUMBER])
    return phone


async def test_a_low_balance_is_told_by_text_and_mail_at_no_cost(engine: Engine) -> None:
    phone = await low(engine, await engine.open_account("1.02"))

    (text,) = await texts_to_owner(engine.database, phone)

    assert text == (
        "Tumira: Your balance is US$0.98, below your alert of US$1.00. At zero, messages are refused. "
        "Top up in the dashboard."
    )
    assert (measure(text).encoding, measure(text).segments) == (Encoding.GSM_7, 1)
    ((to, mail),) = await mails_of(engine)
    assert to == "owner@example.com"
    assert "US$0.98" in mail
    assert await engine.audit() == []


async def test_what_is_rolled_back_alerts_nobody(engine: Engine) -> None:
    caller = await engine.open_account("0.50")
    phone = await give_owner(engine.database, caller.id)
    async with engine.database.connection() as connection:
        await connection.execute("BEGIN")
        locked = await accounts.lock(connection, caller.id)
        await tell_low_balances(connection, [locked], datetime.now(UTC))
        assert await connection.fetchval("SELECT count(*) FROM messages") == 1
        await connection.execute("ROLLBACK")
    assert await texts_to_owner(engine.database, phone) == []
    assert await engine.rows("SELECT FROM events") == []


@pytest.mark.parametrize("most", [NOTICES_A_DAY, MORE])
async def test_alerts_of_a_kind_are_bounded_and_those_of_another_are_not_used_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The twin with a higher limit sends all of them."""
    monkeypatch.setattr(owner_notices, "NOTICES_A_DAY", most)
    caller = await engine.open_account("1.02")
    phone = await give_owner(engine.database, caller.id)
    await notify(engine, caller.id, MORE)

    told = await texts_to_owner(engine.database, phone)

    assert len(told) == most
    assert ["No more alerts" in text for text in told] == [False] * (most - 1) + [True]
    await engine.send(caller, [NUMBER])
    assert len(await texts_to_owner(engine.database, phone)) == most + 1
    await engine.rows("UPDATE security_notices SET since = since - interval '25 hours'")
    await notify(engine, caller.id)
    assert len(await texts_to_owner(engine.database, phone)) == most + 2


@pytest.mark.parametrize(
    "unwilling",
    [
        "UPDATE logins SET notice_texts = false, low_balance_mail = false",
        "UPDATE logins SET phone_proved_at = NULL",
        "UPDATE accounts SET closed_at = now()",
        "DELETE FROM logins",
    ],
)
async def test_who_does_not_want_alerts_or_could_not_turn_them_off_gets_none(
    engine: Engine, unwilling: str
) -> None:
    caller = await engine.open_account("1.02")
    phone = await give_owner(engine.database, caller.id, "owner@example.com")
    await engine.rows(unwilling)
    await notify(engine, caller.id)
    assert (await texts_to_owner(engine.database, phone), await mails_of(engine)) == ([], [])


async def test_text_and_mail_are_chosen_apart(engine: Engine) -> None:
    caller = await engine.open_account()
    phone = await give_owner(engine.database, caller.id, "owner@example.com")
    for chosen, expected in (("notice_texts", (1, 0)), ("low_balance_mail", (1, 1))):
        await engine.rows(
            "UPDATE logins SET notice_texts = $1 = 'notice_texts', low_balance_mail = $1 <> 'notice_texts'",
            chosen,
        )
        await notify(engine, caller.id)
        texts, mails = await texts_to_owner(engine.database, phone), await mails_of(engine)
        assert (len(texts), len(mails)) == expected
