"""An approval is asked for once, decided by another person, and lets its send happen once."""

import time
from datetime import timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio
from argon2 import PasswordHasher
from msgspec import structs

from tests.support.delivery.engine import Engine
from tests.support.identity.people import new_phone
from tests.support.uploads.files import check_file
from tumira.approvals import manage, store
from tumira.approvals.manage import NotOpenError
from tumira.approvals.store import Approval, ApprovalState
from tumira.core.errors import AccountSuspended, FieldError, Refusal
from tumira.core.ids import AccountId, BatchId, UploadId, new_id
from tumira.identity import passwords
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.reauthenticate import PasswordCheck, Requester
from tumira.identity.roles import MemberRole
from tumira.identity.store import logins, people
from tumira.sending.compose import Draft
from tumira.uploads.check_rows import Wanted

PASSWORD: Final = "correct horse battery"
DRAFT: Final = Draft("+263771200001 +263771200002", "Your order is ready.", "order 7")
COST: Final = Decimal("0.08")
BATCH: Final = BatchId(new_id(1))


async def person(
    engine: Engine, account_id: AccountId, name: str, role: MemberRole = MemberRole.SENDER
) -> Requester:
    phone = new_phone()
    async with engine.database.transaction() as connection:
        person_id = await people.insert_person(connection, new_id(time.time_ns() // 1_000_000), phone, name)
        await people.insert_member(connection, account_id, person_id, role)
    return Requester(Principal(PrincipalKind.CUSTOMER, person_id, phone), account_id, name, "127.0.0.1")


class Office:
    def __init__(self, engine: Engine, asker: Requester, decider: Requester) -> None:
        self.engine = engine
        self.asker = asker
        self.decider = decider
        self.sends: list[Approval] = []
        self.answer: BatchId | Refusal | None = BATCH

    async def ask(self, form: str = "one", upload_id: UploadId | None = None) -> UUID:
        draft = DRAFT if upload_id is None else None
        return await manage.ask(
            self.engine.database,
            self.asker,
            token=form,
            count=2,
            cost=COST,
            draft=draft,
            upload_id=upload_id,
        )

    async def send(self, approval: Approval) -> BatchId | Refusal | None:
        self.sends.append(approval)
        return self.answer

    async def approve(self, approval_id: UUID, who: Requester | None = None) -> Refusal | None:
        return await manage.approve(self.engine.database, who or self.decider, approval_id, self.send)

    async def get(self, approval_id: UUID) -> Approval:
        async with self.engine.database.connection() as connection:
            found = await store.find(connection, self.asker.account_id, approval_id)
        assert found is not None
        return found

    async def waiting(self) -> int:
        async with self.engine.database.connection() as connection:
            return await store.count_waiting(connection, self.asker.account_id)

    async def age(self, by: timedelta) -> None:
        await self.engine.rows("UPDATE approvals SET asked_at = asked_at - $1::interval", by)

    async def recorded(self) -> list[tuple[str, str]]:
        rows = await self.engine.rows(
            "SELECT actor, what FROM changes WHERE person_id IS NOT NULL ORDER BY id"
        )
        return [(row["actor"], row["what"]) for row in rows]


@pytest_asyncio.fixture
async def office(engine: Engine) -> Office:
    caller = await engine.open_account("1")
    return Office(engine, await person(engine, caller.id, "Rudo"), await person(engine, caller.id, "Tariro"))


async def test_a_send_that_is_asked_for_again_is_the_same_one_until_it_is_decided(office: Office) -> None:
    first = await office.ask()
    assert await office.ask() == first
    other = await office.ask("two")
    assert other != first
    assert await office.waiting() == 2
    assert await office.recorded() == [("Rudo", "approval asked for")] * 2
    await manage.decline(office.engine.database, office.decider, first, "Wrong day")
    assert await office.waiting() == 1
    again = await office.ask()
    assert again != first
    async with office.engine.database.connection() as connection:
        listed = await store.list_approvals(connection, office.asker.account_id, 9)
        assert [one.id for one in listed] == [again, other, first]
        assert await store.list_approvals(connection, office.asker.account_id, 1) == listed[:1]


async def test_another_person_approves_it_and_it_is_sent_once(office: Office) -> None:
    approval_id = await office.ask()
    with pytest.raises(NotOpenError):
        await office.approve(approval_id, office.asker)
    stranger = await person(office.engine, (await office.engine.open_account()).id, "Chipo")
    with pytest.raises(NotOpenError):
        await office.approve(approval_id, stranger)
    assert office.sends == []
    assert await office.approve(approval_id) is None
    (sent,) = office.sends
    assert (sent.draft, sent.count, sent.cost, sent.asker) == (DRAFT, 2, COST, "Rudo")
    found = await office.get(approval_id)
    assert (found.state, found.batch_id, found.decider, found.draft) == (
        ApprovalState.APPROVED,
        BATCH,
        "Tariro",
        None,
    )
    for again in (
        office.approve(approval_id),
        manage.decline(office.engine.database, office.decider, approval_id, ""),
    ):
        with pytest.raises(NotOpenError):
            await again
    assert len(office.sends) == 1
    assert await office.recorded() == [("Rudo", "approval asked for"), ("Tariro", "send approved")]


async def test_a_send_that_is_refused_waits_again(office: Office) -> None:
    approval_id = await office.ask()
    office.answer = AccountSuspended()
    assert await office.approve(approval_id) is office.answer
    found = await office.get(approval_id)
    assert (found.state, found.draft) == (ApprovalState.WAITING, DRAFT)
    assert await office.recorded() == [("Rudo", "approval asked for")]
    office.answer = BATCH
    assert await office.approve(approval_id) is None


async def test_of_two_who_approve_at_once_both_are_told_and_it_is_recorded_once(office: Office) -> None:
    approval_id = await office.ask()
    third = await person(office.engine, office.asker.account_id, "Chipo")

    async def send(approval: Approval) -> BatchId | Refusal | None:
        # Meanwhile another person approves it too, and gets the same batch.
        assert approval.state is ApprovalState.WAITING
        assert await office.approve(approval.id, third) is None
        return BATCH

    assert await manage.approve(office.engine.database, office.decider, approval_id, send) is None
    assert (await office.get(approval_id)).decider == "Chipo"
    assert [what for _, what in await office.recorded()] == ["approval asked for", "send approved"]


async def test_what_may_have_been_sent_is_neither_declined_nor_withdrawn(office: Office) -> None:
    approval_id = await office.ask()
    database = office.engine.database
    with pytest.raises(NotOpenError):
        await manage.withdraw(database, office.decider, approval_id)
    async with database.transaction() as connection:
        await store.mark(
            connection, approval_id, ApprovalState.SENDING, decided_by=office.decider.principal.id
        )
    with pytest.raises(NotOpenError):
        await manage.withdraw(database, office.asker, approval_id)
    with pytest.raises(NotOpenError):
        await manage.decline(database, office.decider, approval_id, "no")
    # It is still open, and to be approved again.
    assert await office.waiting() == 1
    assert await office.approve(approval_id) is None
    other = await office.ask("two")
    await manage.withdraw(database, office.asker, other)
    found = await office.get(other)
    assert (found.state, found.draft) == (ApprovalState.WITHDRAWN, None)
    assert (await office.recorded())[-1] == ("Rudo", "send withdrawn")
    with pytest.raises(NotOpenError):
        await manage.withdraw(database, office.asker, UUID(int=1))


async def test_a_declined_send_keeps_its_text_and_says_why(office: Office) -> None:
    approval_id = await office.ask()
    await manage.decline(office.engine.database, office.decider, approval_id, "Wrong day")
    found = await office.get(approval_id)
    assert (found.state, found.note, found.draft) == (ApprovalState.DECLINED, "Wrong day", DRAFT)
    assert await office.recorded() == [("Rudo", "approval asked for"), ("Tariro", "send declined")]


async def test_an_approval_expires_after_two_days(office: Office) -> None:
    first = await office.ask()
    await office.age(timedelta(hours=47))
    assert (await office.get(first)).state is ApprovalState.WAITING
    assert await office.waiting() == 1
    await office.age(timedelta(hours=2))
    assert (await office.get(first)).state is ApprovalState.EXPIRED
    assert await office.waiting() == 0
    with pytest.raises(NotOpenError):
        await office.approve(first)
    second = await office.ask()
    assert second != first
    (row,) = await office.engine.rows("SELECT state, recipients FROM approvals WHERE id = $1", first)
    assert tuple(row) == ("expired", None)
    assert (await office.get(second)).draft == DRAFT


async def test_a_file_waits_for_its_own_approval_while_it_is_open(office: Office) -> None:
    account_id, database = office.asker.account_id, office.engine.database
    files = []
    for place in range(2):
        data = f"to,name\n+26377120000{place},Rudo".encode()
        wanted = Wanted(f"people{place}.csv", data, "Your parcel is here.", None, None)
        file = await check_file(database, account_id, wanted)
        assert isinstance(file, UUID), file
        files.append(UploadId(file))
    approval_id = await office.ask(upload_id=files[0])

    async def found(file: UploadId, of: AccountId = account_id) -> UUID | None:
        async with database.connection() as connection:
            one = await store.find_of_upload(connection, of, file)
        return None if one is None else one.id

    assert await found(files[0]) == approval_id
    assert await found(files[1]) is None
    assert await found(files[0], (await office.engine.open_account()).id) is None
    await office.age(timedelta(hours=49))
    assert await found(files[0]) is None
    await office.age(timedelta(hours=-49))
    await manage.decline(database, office.decider, approval_id, "no")
    assert await found(files[0]) is None


async def test_old_ones_and_numbers_that_are_erased_go(office: Office) -> None:
    open_, decided, other = [await office.ask(form) for form in ("one", "two", "three")]
    await manage.decline(office.engine.database, office.decider, decided, "no")
    await office.engine.rows("UPDATE approvals SET recipients = '+27821230001' WHERE id = $1", other)
    async with office.engine.database.transaction() as connection:
        now = await connection.fetchval("SELECT clock_timestamp()")
        await store.erase_number(connection, "771200002", now - timedelta(hours=1))
    assert (await office.get(open_)).draft == DRAFT
    async with office.engine.database.transaction() as connection:
        await store.erase_number(connection, "771200002", now)
    found = [await office.get(one) for one in (open_, decided, other)]
    assert [one.state for one in found] == ["expired", "declined", "waiting"]
    assert [one.draft for one in found] == [None, None, structs.replace(DRAFT, recipients="+27821230001")]
    async with office.engine.database.transaction() as connection:
        assert await store.delete_old(connection, 2) == 0
        await connection.execute("UPDATE approvals SET asked_at = asked_at - interval '31 days'")
        assert await store.delete_old(connection, 2) == 2
        assert await store.delete_old(connection, 2) == 1


async def test_a_rule_is_set_by_an_owner_who_knows_the_password_if_two_people_can_send(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    database, caller = engine.database, await engine.open_account("1")
    await person(engine, caller.id, "Chipo", MemberRole.VIEWER)
    async with database.transaction() as connection:
        (member,) = await people.list_owners(connection, caller.id)
        hashed = await passwords.hash_secret(PASSWORD, passwords.LOCAL)
        await logins.insert(connection, member.principal, None, hashed, phone_proved=True)
    owner = Requester(member.principal, caller.id, "Rudo", passwords.LOCAL)

    async def changes() -> list[str]:
        rows = await engine.rows(
            "SELECT detail FROM changes WHERE what = 'approval rule changed' ORDER BY id"
        )
        return [row["detail"] for row in rows]

    assert await manage.change_rule(database, owner, Decimal(2), "wrong") is PasswordCheck.WRONG
    # Nobody else could approve; without a rule nobody has to.
    with pytest.raises(FieldError, match="Invite a second owner or sender"):
        await manage.change_rule(database, owner, Decimal(2), PASSWORD)
    assert await manage.change_rule(database, owner, None, PASSWORD) is PasswordCheck.RIGHT
    assert not await manage.needs_approval(database, owner, Decimal(1000))
    await person(engine, caller.id, "Tariro")
    assert await manage.change_rule(database, owner, Decimal(2), PASSWORD) is PasswordCheck.RIGHT
    needs = [await manage.needs_approval(database, owner, Decimal(cost)) for cost in ("1.99", "2", "2.0001")]
    assert needs == [False, False, True]
    assert await changes() == ["off", "above 2.0000 USD"]


async def test_those_that_wait_come_first_and_the_drafts_to_a_number_are_found(office: Office) -> None:
    engine = office.engine
    first, second, third = [await office.ask(form) for form in ("one", "two", "three")]
    await manage.decline(engine.database, office.decider, third, "no")
    other = (await engine.open_account("1")).id
    stranger = await person(engine, other, "Chipo")
    foreign = await manage.ask(engine.database, stranger, token="one", count=2, cost=COST, draft=DRAFT)
    await engine.rows("UPDATE approvals SET recipients = '0771 200-009' WHERE id = $1", second)
    await engine.rows("UPDATE approvals SET asked_at = asked_at - interval '1 hour' WHERE id = $1", foreign)
    async with engine.database.transaction() as connection:
        listed = await store.list_approvals(connection, office.asker.account_id, 9)
        assert [one.id for one in listed] == [second, first, third]
        assert await store.count_waiting(connection, office.asker.account_id) == 2
        assert await store.count_waiting(connection, other) == 1
        to = await store.list_to(connection, "771200001", 9)
        assert [one["account_id"] for one in to] == [other, office.asker.account_id, office.asker.account_id]
        assert len(await store.list_to(connection, "771200001", 1)) == 1
        assert len(await store.list_to(connection, "771200009", 9)) == 1
        await store.erase_number(connection, "771200009", await connection.fetchval("SELECT now()"))
        assert await store.list_to(connection, "771200009", 9) == []
    # The same form of another account is another send, and one that expired there changes nothing here.
    await engine.rows("UPDATE approvals SET asked_at = asked_at - interval '3 days' WHERE id = $1", first)
    await manage.ask(engine.database, stranger, token="two", count=2, cost=COST, draft=DRAFT)
    (row,) = await engine.rows("SELECT state FROM approvals WHERE id = $1", first)
    assert row["state"] == "waiting"


async def test_old_ones_are_deleted_the_oldest_first_and_those_in_use_later(office: Office) -> None:
    every = [await office.ask(form) for form in ("one", "two", "three")]
    for place, one in enumerate(every):
        await office.engine.rows(
            "UPDATE approvals SET asked_at = asked_at - make_interval(days => $2) WHERE id = $1",
            one,
            33 - place,
        )
    async with office.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM approvals WHERE id = $1 FOR UPDATE", every[0])
        async with office.engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            assert await store.delete_old(connection, 1) == 1
    rows = await office.engine.rows("SELECT id FROM approvals ORDER BY id")
    assert [row["id"] for row in rows] == sorted([every[0], every[2]])
