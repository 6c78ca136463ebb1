"""Who is in an account: the last owner stays, also when two owners change each other at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio
from argon2 import PasswordHasher

from tests.support.identity.people import new_phone
from tests.support.postgres.databases import drop, execute, sibling
from tumira.accounts.open_account import open_account
from tumira.core.errors import FieldError
from tumira.core.ids import AccountId
from tumira.identity import members, passwords
from tumira.identity.passwords import LOCAL, hash_secret
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.reauthenticate import PasswordCheck, Requester
from tumira.identity.roles import MemberRole
from tumira.identity.store import logins, people, sessions
from tumira.identity.store.sessions import SignedInCustomer
from tumira.postgres import migrate
from tumira.postgres.migrate import known
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

PASSWORD: Final = "correct horse battery"

locked_and_not = pytest.mark.parametrize("locked", [True, False], ids=["locked", "without the lock"])


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords._nobodys.cache_clear()
    yield
    passwords._nobodys.cache_clear()


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture
def old_url(server_url: str) -> Iterator[str]:
    """Give a database without tables."""
    drop(server_url, "tumira_before_people")
    execute(server_url, "CREATE DATABASE tumira_before_people TEMPLATE template0")
    yield sibling(server_url, "tumira_before_people")
    drop(server_url, "tumira_before_people")


async def open_with_owner(database: Database) -> Requester:
    phone = new_phone()
    account = await open_account(
        database, phone=phone, name="Ann", business="B", balance=Decimal(0), rate_limit=60, actor="test"
    )
    return await _with_password(database, account.id, Principal(PrincipalKind.CUSTOMER, account.id, phone))


async def join(database: Database, account_id: AccountId, role: MemberRole) -> Requester:
    """Return a person who opened another account and is now in this one too."""
    other = await open_with_owner(database)
    async with database.transaction() as connection:
        assert await people.insert_member(connection, account_id, other.principal.id, role)
    return Requester(other.principal, account_id, "Ben", LOCAL)


async def _with_password(database: Database, account_id: AccountId, principal: Principal) -> Requester:
    async with database.transaction() as connection:
        await logins.set_password(connection, principal, await hash_secret(PASSWORD, LOCAL))
    return Requester(principal, account_id, "Ann", LOCAL)


async def owners_of(database: Database, account_id: AccountId) -> int:
    async with database.connection() as connection:
        return len(await people.list_owners(connection, account_id))


async def test_the_last_owner_neither_leaves_nor_gets_another_role(database: Database) -> None:
    ann = await open_with_owner(database)
    ben = await join(database, ann.account_id, MemberRole.VIEWER)
    with pytest.raises(FieldError, match="needs an owner"):
        await members.leave(database, ann, PASSWORD)
    with pytest.raises(FieldError, match="needs an owner"):
        await members.change_role(database, ann, ann.principal.id, MemberRole.SENDER, PASSWORD)
    with pytest.raises(FieldError, match="needs an owner"):
        await members.remove(database, ann, ann.principal.id, PASSWORD)
    with pytest.raises(FieldError, match="no longer an owner"):
        await members.remove(database, ben, ann.principal.id, PASSWORD)
    assert await members.leave(database, ben, "wrong") is PasswordCheck.WRONG
    assert await members.leave(database, ben, PASSWORD) is PasswordCheck.RIGHT
    assert await owners_of(database, ann.account_id) == 1


# So slow that whoever does not wait for the other one overtakes them.
SLOW: Final = Statement("""
UPDATE members
   SET role = %(role)s
  FROM pg_sleep(0.3)
 WHERE account_id = %(account_id)s
   AND person_id = %(person_id)s
""")


@locked_and_not
async def test_of_two_owners_who_demote_each_other_one_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, locked: bool
) -> None:
    monkeypatch.setattr(people, "SQL_SET_ROLE", SLOW)
    if not locked:
        unlocked = Statement("SELECT person_id FROM members WHERE account_id = %(account_id)s")
        monkeypatch.setattr(people, "SQL_LOCK", unlocked)
    ann = await open_with_owner(database)
    ben = await join(database, ann.account_id, MemberRole.OWNER)
    results = await asyncio.gather(
        members.change_role(database, ann, ben.principal.id, MemberRole.VIEWER, PASSWORD),
        members.change_role(database, ben, ann.principal.id, MemberRole.VIEWER, PASSWORD),
        return_exceptions=True,
    )
    assert (await owners_of(database, ann.account_id) == 1) is locked
    assert any(isinstance(one, FieldError) for one in results) is locked


async def test_the_number_of_an_account_becomes_that_of_an_owner_who_stays(database: Database) -> None:
    ann = await open_with_owner(database)
    async with database.transaction() as connection:
        cleo = await people.insert_person(connection, uuid4(), new_phone(), "Cleo")
        await people.insert_member(connection, ann.account_id, cleo, MemberRole.OWNER)
    assert await members.leave(database, ann, PASSWORD) is PasswordCheck.RIGHT
    async with database.connection() as connection:
        (owner,) = await people.list_owners(connection, ann.account_id)
        phone = await connection.fetchval("SELECT phone FROM accounts WHERE id = $1", ann.account_id)
    assert (owner.person_id, owner.phone) == (cleo, phone)
    # Whoever left may open another account with their number.
    opened = await open_account(
        database,
        phone=ann.principal.phone,
        name="Ann",
        business="New",
        balance=Decimal(0),
        rate_limit=60,
        actor="test",
    )
    async with database.connection() as connection:
        (owner,) = await people.list_owners(connection, opened.id)
    assert owner.person_id == ann.principal.id


async def test_an_older_version_lets_in_only_the_owner_who_opened_the_account(database: Database) -> None:
    """The statements of the version before, which know nothing of people."""
    ann = await open_with_owner(database)
    ben = await join(database, ann.account_id, MemberRole.OWNER)
    old_login = (
        "SELECT l.password_hash FROM accounts a JOIN logins l ON l.account_id = a.id WHERE a.phone = $1"
    )
    async with database.connection() as connection:
        assert await connection.fetchval(old_login, ann.principal.phone) is not None
        await connection.execute(
            "INSERT INTO sessions (id, token_sha256, account_id, address, browser)"
            " VALUES (gen_random_uuid(), sha256('x'), $1, '', '')",
            ann.account_id,
        )
        row = await connection.fetchrow("SELECT person_id, member_of FROM sessions")
        assert row is not None
        assert tuple(row) == (ann.principal.id, ann.account_id)
        opened = await connection.fetchval(
            "INSERT INTO accounts (id, phone, name, business) VALUES (gen_random_uuid(), $1, 'Dan', 'D')"
            " RETURNING id",
            new_phone(),
        )
        await connection.execute("INSERT INTO logins (account_id, password_hash) VALUES ($1, 'x')", opened)
        assert (
            await connection.fetchval("SELECT person_id FROM logins WHERE account_id = $1", opened) == opened
        )
    assert await members.change_role(database, ben, ann.principal.id, MemberRole.VIEWER, PASSWORD)
    async with database.connection() as connection:
        assert await connection.fetchval(old_login, ann.principal.phone) is None
        assert await connection.fetchval("SELECT account_id FROM sessions") is None


@pytest.mark.long
async def test_the_accounts_of_older_versions_get_their_owners(old_url: str) -> None:
    """The migration on a database with accounts, logins, codes and sessions."""
    steps = known()
    (people_step,) = [step.number for step in steps if step.name.endswith("_people_pre")]
    database = Database(old_url)
    try:
        await migrate.migrate(database, [step for step in steps if step.number < people_step])
        async with database.connection() as connection:
            await connection.execute("""
                INSERT INTO accounts (id, phone, name, business)
                SELECT gen_random_uuid(), '+26377120000' || n, 'Name ' || n, 'B' FROM generate_series(1, 3) n;
                INSERT INTO logins (account_id, password_hash)
                SELECT id, phone FROM accounts WHERE name IN ('Name 1', 'Name 2');
                INSERT INTO recovery_codes SELECT account_id, sha256('x') FROM logins;
                INSERT INTO sessions (id, token_sha256, account_id, address, browser)
                SELECT gen_random_uuid(), sha256(password_hash::bytea), account_id, '', '' FROM logins;
            """)
        await migrate.migrate(database, steps)
        async with database.connection() as connection:
            rows = await connection.fetch("""
                SELECT a.id = m.person_id AND m.role = 'owner' AND p.phone = a.phone AND p.name = a.name
                  FROM accounts a JOIN members m ON m.account_id = a.id JOIN people p ON p.id = m.person_id
            """)
            assert [row[0] for row in rows] == [True] * 3
            login = await logins.find(connection, PrincipalKind.CUSTOMER, "+263771200001")
            assert login is not None
            assert (login.password_hash, login.has_account) == ("+263771200001", True)
            token = await connection.fetchval("SELECT sha256('+263771200001'::bytea)")
            found = await sessions.find(connection, SignedInCustomer, token)
            assert found is not None
            assert (found.role, found.person_phone) == (MemberRole.OWNER, "+263771200001")
            homeless = "SELECT count(*) FROM recovery_codes WHERE person_id IS NULL"
            assert await connection.fetchval(homeless) == 0
    finally:
        await database.close()
