"""Limits of codes, attempts, sessions and keys under concurrency; each race has a twin without the lock."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from argon2 import PasswordHasher

from tests.support.chaos.node import first_true
from tests.support.delivery.settling import BLOCKED
from tests.support.identity.people import PASSWORD, code_in, new_phone
from tests.support.sending.batchers import broken_promises
from tumira.accounts import api_keys
from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.accounts.open_account import open_account
from tumira.accounts.store import SYSTEM
from tumira.core.ids import AccountId, KeyId, new_id
from tumira.identity import code_rules, manage_keys, passwords
from tumira.identity import sign_in as entering
from tumira.identity.code_rules import PASSWORD_LIMITS, AttemptLimits, CodeLimits
from tumira.identity.manage_keys import TooManyKeysError, create_key, revoke_own_key
from tumira.identity.passwords import LOCAL, hash_secret, matches
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.send_codes import (
    CodeSent,
    CodeThrottled,
    SignUpDetails,
    hash_token,
    new_token,
    send_again,
    start_reset,
    start_sign_up,
)
from tumira.identity.sign_in import (
    CodeExpired,
    Mismatch,
    SignedIn,
    SignUpUnfinished,
    TooManyAttempts,
    finish_reset,
    finish_sign_up,
)
from tumira.identity.store import attempts, logins, sessions, verifications
from tumira.identity.store.attempts import AttemptKind, Budget
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

ADDRESS: Final = "198.18.0.1"
GUEST: Final = Browser(ADDRESS, "a browser", None)
OTHER: Final = Browser("198.18.0.2", "a browser", None)
LIMITS: Final = CodeLimits(40, 500)
NEW: Final = "another good password"

# The same statements, so slow that whoever does not wait for the others overtakes them.
SLOW_CODE: Final = Statement("""
INSERT INTO codes (id, verification_id, phone, address, device_sha256, code_hash, email_hash, sent)
SELECT %(code_id)s, %(verification_id)s, %(phone)s, %(address)s, %(device)s, %(code_hash)s, %(email_hash)s,
       %(sent)s
  FROM pg_sleep(0.3)
""")
SLOW_ATTEMPT: Final = Statement(
    "INSERT INTO attempts (kind, phone, address) SELECT %(kind)s, %(phone)s, %(origin)s FROM pg_sleep(0.03)"
)
SLOW_KEY: Final = Statement("""
INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
SELECT %(key_id)s, %(account_id)s, %(name)s, %(sha256)s, %(scopes)s FROM pg_sleep(0.03)
""")
NO_LOCK: Final = Statement("SELECT 1")


def principal(account_id: AccountId) -> Principal:
    return Principal(PrincipalKind.ACCOUNT, account_id, "")


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture(scope="module")
def password_hash() -> str:
    return passwords._HASHER.hash(PASSWORD)


async def rows(database: Database, statement: str, *arguments: Any) -> Sequence[asyncpg.Record]:
    async with database.connection() as connection:
        return await connection.fetch(statement, *arguments)


async def text_to(database: Database, phone: str) -> str:
    found = await rows(
        database,
        "SELECT b.body FROM batches b JOIN messages m ON m.batch_id = b.id"
        " WHERE m.recipient = $1 ORDER BY b.id",
        phone,
    )
    return str(found[-1]["body"])


async def begin(
    database: Database,
    phone: str,
    address: str = ADDRESS,
    limits: CodeLimits = LIMITS,
) -> CodeSent | CodeThrottled:
    details = SignUpDetails("Tariro Moyo", "Moyo Stores", None, PASSWORD)
    return await start_sign_up(
        database, limits, Browser(address, "a browser", None), phone=phone, details=details, token=None
    )


async def open_with_password(database: Database, password_hash: str) -> tuple[AccountId, str]:
    phone = new_phone()
    account = await open_account(
        database, phone=phone, name="A", business="B", balance=Decimal(0), rate_limit=60, actor="test"
    )
    async with database.connection() as connection:
        await logins.set_password(connection, account.id, password_hash)
    return account.id, phone


async def test_a_code_is_stored_as_a_hash_and_its_text_costs_nobody_anything(database: Database) -> None:
    phone = new_phone()
    assert isinstance(await begin(database, phone), CodeSent)
    (code,) = await rows(database, "SELECT * FROM codes")
    sent = code_in(await text_to(database, phone))
    assert code["code_hash"].startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert await matches(sent, code["code_hash"], LOCAL)
    (message,) = await rows(
        database, "SELECT account_id, cost, lane FROM messages JOIN queue ON message_id = id"
    )
    assert tuple(message) == (SYSTEM, 0, 0)
    assert await rows(database, "SELECT FROM transfers") == []
    assert await broken_promises(database) == []


async def test_nothing_matches_a_password_that_is_not_there() -> None:
    for secret in ("", "nobody's", "None"):
        assert not await matches(secret, None, LOCAL)
        assert not await matches(secret, "", LOCAL)
    assert not await matches("x", "not a hash", LOCAL)
    hashed = await hash_secret("x", LOCAL)
    assert await matches("x", hashed, LOCAL)
    assert not await matches("x ", hashed, LOCAL)
    # The same password twice is kept in two ways.
    assert await hash_secret("x", LOCAL) != hashed


async def test_ten_at_once_get_one_code_for_a_number(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "SQL_INSERT_CODE", SLOW_CODE)
    phone = new_phone()
    results = await asyncio.gather(*(begin(database, phone) for _ in range(10)))
    assert Counter(type(result) for result in results) == {CodeSent: 1, CodeThrottled: 9}


async def test_without_the_lock_ten_at_once_get_more_codes_than_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "SQL_INSERT_CODE", SLOW_CODE)
    monkeypatch.setattr(verifications, "SQL_LOCK_CODES", NO_LOCK)
    phone = new_phone()
    results = await asyncio.gather(*(begin(database, phone) for _ in range(10)))
    assert sum(isinstance(result, CodeSent) for result in results) > 1


@pytest.mark.parametrize("limits", [CodeLimits(3, 500), CodeLimits(40, 3)])
async def test_ten_at_once_do_not_pass_the_limits_of_an_address_and_of_all(
    database: Database, monkeypatch: pytest.MonkeyPatch, limits: CodeLimits
) -> None:
    monkeypatch.setattr(verifications, "SQL_INSERT_CODE", SLOW_CODE)
    results = await asyncio.gather(*(begin(database, new_phone(), limits=limits) for _ in range(10)))
    assert Counter(type(result) for result in results) == {CodeSent: 3, CodeThrottled: 7}
    assert len(await rows(database, "SELECT FROM batches")) == 3


async def test_sign_ups_and_forgotten_passwords_have_limits_of_their_own(
    database: Database, password_hash: str
) -> None:
    limits = CodeLimits(40, 3)
    phone = new_phone()
    started = await begin(database, phone, limits=limits)
    assert isinstance(started, CodeSent)
    await rows(database, "UPDATE codes SET sent_at = sent_at - interval '1 minute'")
    assert isinstance(await send_again(database, limits, GUEST, token=started.token), CodeSent)
    assert isinstance(await begin(database, new_phone(), limits=limits), CodeSent)
    for refused in (
        await begin(database, new_phone(), limits=limits),
        await send_again(database, limits, GUEST, token=started.token),
    ):
        assert isinstance(refused, CodeThrottled)
    # Nobody who has an account is kept from it because others sign up.
    for number in range(3):
        _, known = await open_with_password(database, password_hash)
        elsewhere = Browser(f"198.18.1.{number}", "a browser", None)
        assert isinstance(await start_reset(database, limits, elsewhere, phone=known), CodeSent)
    # When the texts of the hour are used up, those without an account are answered as those with one.
    for one in (known, new_phone()):
        assert isinstance(await start_reset(database, limits, OTHER, phone=one), CodeThrottled)
    assert await send_again(database, limits, GUEST, token=new_token()) is None


async def test_codes_that_are_never_sent_stop_nobody(database: Database, password_hash: str) -> None:
    limits = CodeLimits(40, 5)
    for number in range(20):
        stranger = Browser(f"198.18.1.{number}", "a browser", None)
        assert isinstance(await start_reset(database, limits, stranger, phone=new_phone()), CodeSent)
    assert await rows(database, "SELECT FROM batches") == []
    _, known = await open_with_password(database, password_hash)
    assert isinstance(await start_reset(database, limits, GUEST, phone=known), CodeSent)
    assert isinstance(await begin(database, new_phone(), limits=limits), CodeSent)
    assert len(await rows(database, "SELECT FROM batches")) == 2
    # Whoever asks from one address is limited all the same, or the table would grow without end.
    assert isinstance(await start_reset(database, CodeLimits(1, 5), GUEST, phone=new_phone()), CodeThrottled)


async def test_who_asks_for_a_new_password_of_others_uses_up_none_of_their_codes_at_a_known_browser(
    database: Database, password_hash: str
) -> None:
    _, phone = await open_with_password(database, password_hash)
    signed_in = await entering.sign_in(database, GUEST, phone=phone, password=PASSWORD)
    assert isinstance(signed_in, SignedIn)
    at_home = Browser(ADDRESS, "a browser", None, signed_in.device)
    for number in range(code_rules.PER_PHONE_DAY_MAX):
        stranger = Browser(f"198.18.1.{number}", "a browser", None)
        assert isinstance(await start_reset(database, LIMITS, stranger, phone=phone), CodeSent)
        await rows(database, "UPDATE codes SET sent_at = sent_at - interval '31 seconds'")
    assert isinstance(await start_reset(database, LIMITS, GUEST, phone=phone), CodeThrottled)
    assert isinstance(await start_reset(database, LIMITS, at_home, phone=phone), CodeSent)
    # It has waits of its own, and is of no use for another number.
    assert isinstance(await start_reset(database, LIMITS, at_home, phone=phone), CodeThrottled)
    _, other = await open_with_password(database, password_hash)
    assert isinstance(await start_reset(database, CodeLimits(0, 500), at_home, phone=other), CodeThrottled)


async def test_nothing_is_hashed_for_who_is_over_a_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasher = CountingHasher()
    monkeypatch.setattr(passwords, "_HASHER", hasher)
    started = await begin(database, new_phone())
    assert isinstance(started, CodeSent)
    hasher.done.clear()
    limits = CodeLimits(per_address=1)
    assert isinstance(await begin(database, new_phone(), limits=limits), CodeThrottled)
    assert isinstance(await start_reset(database, limits, GUEST, phone=new_phone()), CodeThrottled)
    assert isinstance(await send_again(database, limits, GUEST, token=started.token), CodeThrottled)
    assert hasher.done == {}


async def test_a_sign_up_is_corrected_ten_times_and_then_nothing_is_hashed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasher = CountingHasher()
    monkeypatch.setattr(passwords, "_HASHER", hasher)
    phone = new_phone()
    started = await begin(database, phone)
    assert isinstance(started, CodeSent)

    async def correct() -> CodeSent | CodeThrottled:
        details = SignUpDetails("Tariro", "Moyo", None, NEW)
        return await start_sign_up(database, LIMITS, GUEST, phone=phone, details=details, token=started.token)

    assert [type(await correct()) for _ in range(10)] == [CodeSent] * 10
    hasher.done.clear()
    assert isinstance(await correct(), CodeThrottled)
    assert hasher.done == {}


def tries(limits: AttemptLimits, phone: str = "+27821230000", origin: str = ADDRESS) -> Budget:
    return Budget(AttemptKind.PASSWORD, phone, origin, limits)


async def take_many(database: Database, count: int, limits: AttemptLimits) -> int:
    """Try `count` times at once for one number from one address, and return how many were granted."""

    async def take() -> bool:
        async with database.transaction() as connection:
            return await attempts.take(connection, tries(limits)) is None

    return sum(await asyncio.gather(*(take() for _ in range(count))))


@pytest.mark.parametrize(
    "limits",
    [AttemptLimits(5, 60, 60), AttemptLimits(10, 5, 60), AttemptLimits(10, 60, 5), AttemptLimits(per_pair=5)],
)
async def test_of_many_tries_at_once_as_many_are_granted_as_there_may_be(
    database: Database, monkeypatch: pytest.MonkeyPatch, limits: AttemptLimits
) -> None:
    monkeypatch.setattr(attempts, "SQL_INSERT", SLOW_ATTEMPT)
    assert await take_many(database, 10, limits) == 5


async def test_without_the_lock_more_tries_are_granted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SQL_INSERT", SLOW_ATTEMPT)
    # It names both subjects, as the real one does, and locks neither.
    monkeypatch.setattr(attempts, "SQL_LOCK", Statement("SELECT %(phone)s::text, %(origin)s::text"))
    assert await take_many(database, 10, AttemptLimits(5)) > 5


async def test_tries_for_crossed_numbers_and_addresses_do_not_wait_for_each_other_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SQL_INSERT", SLOW_ATTEMPT)

    async def take(phone: str, address: str) -> timedelta | None:
        async with database.transaction() as connection:
            return await attempts.take(connection, tries(PASSWORD_LIMITS, phone, address))

    subjects = ("+27821230001", "+27821230002")
    # An address that reads like a number is the worst case: each holds what the other wants next.
    granted = await asyncio.gather(
        *(take(one, two) for _ in range(5) for one, two in (subjects, subjects[::-1]))
    )
    assert granted == [None] * 10


async def test_a_try_is_over_after_the_window_and_the_wait_says_when(database: Database) -> None:
    limits = AttemptLimits(2)

    async def take() -> timedelta | None:
        async with database.transaction() as connection:
            return await attempts.take(connection, tries(limits))

    assert [await take(), await take()] == [None, None]
    await rows(database, "UPDATE attempts SET at = at - interval '10 minutes'")
    wait = await take()
    assert wait is not None
    assert timedelta(minutes=4) < wait <= timedelta(minutes=5)
    await rows(database, "UPDATE attempts SET at = at - interval '5 minutes'")
    assert await take() is None


# Reads how often the code was tried, and then writes one more, as if nobody could have come between.
READ_THEN_WRITE: Final = Statement("""
UPDATE codes
   SET tries = least(found.tries + 1, 5)
  FROM (SELECT id, tries FROM codes, pg_sleep(0.03) WHERE verification_id = %(verification_id)s) AS found
 WHERE codes.id = found.id
   AND found.tries < %(tries_max)s
   AND sent_at > clock_timestamp() - %(lifetime)s::interval
RETURNING code_hash, email_hash, codes.tries
""")


async def try_many(database: Database) -> int:
    """Try a code ten times at once, and return how often it was compared."""
    assert isinstance(await begin(database, new_phone()), CodeSent)
    (verification,) = await rows(database, "SELECT id FROM verifications")

    async def take() -> bool:
        async with database.transaction() as connection:
            return await verifications.take_attempt(connection, verification["id"]) is not None

    return sum(await asyncio.gather(*(take() for _ in range(10))))


async def test_of_ten_tries_at_a_code_at_once_five_are_compared(database: Database) -> None:
    assert await try_many(database) == 5


async def test_a_code_that_is_read_before_it_is_counted_is_compared_more_often(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "SQL_TAKE_TRY", READ_THEN_WRITE)
    assert await try_many(database) > 5


async def test_a_code_that_was_never_sent_matches_nothing(database: Database, password_hash: str) -> None:
    _, phone = await open_with_password(database, password_hash)
    started = await begin(database, phone)
    assert isinstance(started, CodeSent)
    for code in ("", "000000", "nobody's"):
        result = await finish_sign_up(database, GUEST, token=started.token, code=code)
        assert isinstance(result, Mismatch)
    other = await start_reset(database, LIMITS, GUEST, phone=new_phone())
    assert isinstance(other, CodeSent)
    reset = await finish_reset(database, GUEST, token=other.token, code="000000", password=NEW)
    assert isinstance(reset, Mismatch)
    assert len(await rows(database, "SELECT FROM accounts WHERE id <> $1", SYSTEM)) == 1


async def test_the_right_code_ten_times_at_once_opens_one_account(database: Database) -> None:
    phone = new_phone()
    started = await begin(database, phone)
    assert isinstance(started, CodeSent)
    code = code_in(await text_to(database, phone))
    results = await asyncio.gather(
        *(finish_sign_up(database, GUEST, token=started.token, code=code) for _ in range(10))
    )
    assert sum(isinstance(result, SignedIn) for result in results) == 1
    assert {type(result) for result in results} <= {SignedIn, type(None), CodeExpired, TooManyAttempts}
    assert (
        len(await rows(database, "SELECT FROM logins"))
        == len(await rows(database, "SELECT FROM sessions"))
        == 1
    )


async def test_a_number_that_got_an_account_meanwhile_is_not_opened_again(database: Database) -> None:
    phone = new_phone()
    started = await begin(database, phone)
    assert isinstance(started, CodeSent)
    code = code_in(await text_to(database, phone))
    await open_account(
        database, phone=phone, name="A", business="B", balance=Decimal(5), rate_limit=60, actor="test"
    )
    assert await finish_sign_up(database, GUEST, token=started.token, code=code) is None
    assert await rows(database, "SELECT FROM logins") == []
    assert await rows(database, "SELECT FROM sessions") == []


async def change_password(database: Database, account_id: AccountId, phone: str) -> object:
    """Sign in with the old password while another is being set, and return what came of it."""
    changed_hash = await hash_secret(NEW, LOCAL)
    async with database.connection() as connection:
        change = connection.transaction()
        await change.start()
        await logins.set_password(connection, account_id, changed_hash)
        await sessions.delete_all(connection, principal(account_id))
        entered = asyncio.create_task(entering.sign_in(database, GUEST, phone=phone, password=PASSWORD))

        async def is_decided() -> bool:
            return entered.done() or bool(await rows(database, BLOCKED))

        await first_true(is_decided, "nobody waits for the password")
        await change.commit()
    return await entered


async def test_an_old_password_opens_no_session_while_it_is_being_changed(
    database: Database, password_hash: str
) -> None:
    account_id, phone = await open_with_password(database, password_hash)
    assert isinstance(await change_password(database, account_id, phone), Mismatch)
    assert await rows(database, "SELECT FROM sessions") == []


async def test_without_the_lock_the_old_password_opens_a_session_that_outlives_the_change(
    database: Database, password_hash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked = Statement("SELECT password_hash FROM logins WHERE account_id = %(account_id)s")
    monkeypatch.setattr(logins, "SQL_LOCK", unlocked)
    account_id, phone = await open_with_password(database, password_hash)
    assert isinstance(await change_password(database, account_id, phone), SignedIn)
    assert len(await rows(database, "SELECT FROM sessions")) == 1


class CountingHasher(PasswordHasher):
    """Hashes as the real one does, and counts how often, which is what takes time."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.done: Counter[str] = Counter()

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        self.done["hash"] += 1
        return super().hash(password, salt=salt)

    def verify(self, hash: str | bytes, password: str | bytes) -> Any:  # noqa: A002 - the base's name
        self.done["verify"] += 1
        return super().verify(hash, password)


async def test_who_has_an_account_cannot_be_told_by_the_time_that_hashing_takes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasher = CountingHasher()
    monkeypatch.setattr(passwords, "_HASHER", hasher)
    passwords._nobodys.cache_clear()
    await matches("x", None, LOCAL)
    password_hash = hasher.hash(PASSWORD)
    _, taken = await open_with_password(database, password_hash)
    begun = new_phone()
    await begin(database, begun)
    without_password = new_phone()
    await open_account(
        database,
        phone=without_password,
        name="A",
        business="B",
        balance=Decimal(0),
        rate_limit=60,
        actor="test",
    )

    async def cost_of(phone: str) -> Sequence[Counter[str]]:
        await rows(database, "UPDATE codes SET sent_at = sent_at - interval '1 day'")
        costs = []
        hasher.done.clear()
        await entering.sign_in(database, GUEST, phone=phone, password="wrong")
        costs.append(hasher.done.copy())
        hasher.done.clear()
        started = await start_reset(database, LIMITS, GUEST, phone=phone)
        assert isinstance(started, CodeSent)
        await finish_reset(database, GUEST, token=started.token, code="wrong", password=NEW)
        costs.append(hasher.done.copy())
        await rows(database, "UPDATE codes SET sent_at = sent_at - interval '1 day'")
        hasher.done.clear()
        started = await begin(database, phone)
        assert isinstance(started, CodeSent)
        await finish_sign_up(database, GUEST, token=started.token, code="wrong")
        costs.append(hasher.done.copy())
        return costs

    expected = await cost_of(new_phone())
    assert expected == [{"verify": 2}, {"hash": 1, "verify": 1}, {"hash": 2, "verify": 1}]
    for phone in (taken, begun, without_password):
        assert await cost_of(phone) == expected
    monkeypatch.undo()
    passwords._nobodys.cache_clear()


async def test_the_password_of_a_sign_up_leads_to_it_whether_or_not_the_number_has_an_account(
    database: Database,
) -> None:
    _, taken = await open_with_password(database, await hash_secret(NEW, LOCAL))
    for phone in (taken, new_phone()):
        await begin(database, phone)
        result = await entering.sign_in(database, GUEST, phone=phone, password=PASSWORD)
        assert isinstance(result, SignUpUnfinished)
    # It showed nobody who they are, so what was tried for the number still counts.
    assert len(await rows(database, "SELECT FROM attempts")) == 2
    assert isinstance(await entering.sign_in(database, GUEST, phone=taken, password=NEW), SignedIn)
    assert len(await rows(database, "SELECT FROM attempts")) == 1


async def make_keys(database: Database, account_id: AccountId) -> Counter[type]:
    async def make() -> type:
        try:
            await create_key(database, account_id, "key", [Scope.SEND])
        except TooManyKeysError:
            return TooManyKeysError
        return KeyId

    return Counter(await asyncio.gather(*(make() for _ in range(9))))


async def test_nine_at_once_make_no_key_too_many(
    database: Database, password_hash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_keys, "KEYS_MAX", 3)
    monkeypatch.setattr(api_keys, "SQL_INSERT", SLOW_KEY)
    account_id, _ = await open_with_password(database, password_hash)
    assert (await make_keys(database, account_id))[TooManyKeysError] == 6
    assert len(await rows(database, "SELECT FROM api_keys")) == 3


async def test_without_the_lock_nine_at_once_make_keys_too_many(
    database: Database, password_hash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_keys, "KEYS_MAX", 3)
    monkeypatch.setattr(api_keys, "SQL_INSERT", SLOW_KEY)
    unlocked = Statement(accounts._HELD + "WHERE id = %(account_id)s")
    monkeypatch.setattr(accounts, "SQL_HOLD", unlocked)
    account_id, _ = await open_with_password(database, password_hash)
    assert (await make_keys(database, account_id))[TooManyKeysError] < 6


async def test_only_the_owner_revokes_a_key(database: Database, password_hash: str) -> None:
    hers, _ = await open_with_password(database, password_hash)
    his, _ = await open_with_password(database, password_hash)
    key_id, _ = await create_key(database, hers, "key", [Scope.SEND])
    assert not await revoke_own_key(database, his, key_id)
    assert not await revoke_own_key(database, hers, KeyId(UUID(int=0)))
    assert (await rows(database, "SELECT revoked_at FROM api_keys"))[0]["revoked_at"] is None
    assert await revoke_own_key(database, hers, key_id)


async def new_session(database: Database, account_id: AccountId) -> bytes:
    token = hash_token(new_token())
    async with database.connection() as connection:
        await sessions.insert(
            connection, principal(account_id), new_id(1), token, Browser(ADDRESS, "a browser", None)
        )
    return token


async def test_sessions_are_found_by_their_token_and_only_while_they_last(
    database: Database, password_hash: str
) -> None:
    account_id, phone = await open_with_password(database, password_hash)
    token = await new_session(database, account_id)
    async with database.connection() as connection:
        visitor = await sessions.find_customer(connection, token)
        assert visitor is not None
        assert (visitor.account_id, visitor.phone, visitor.is_news) == (account_id, phone, False)
        assert await sessions.find_customer(connection, hash_token("")) is None
        await connection.execute("UPDATE sessions SET seen_at = seen_at - interval '2 minutes'")
        visitor = await sessions.find_customer(connection, token)
        assert visitor is not None
        assert visitor.is_news
        await sessions.mark_seen(connection, PrincipalKind.ACCOUNT, visitor.session_id)
        visitor = await sessions.find_customer(connection, token)
        assert visitor is not None
        assert not visitor.is_news


@pytest.mark.parametrize(("column", "days"), [("seen_at", 1), ("created_at", 30)])
async def test_a_session_that_is_over_is_neither_found_nor_listed_nor_kept(
    database: Database, password_hash: str, column: str, days: int
) -> None:
    account_id, _ = await open_with_password(database, password_hash)
    old, recent = await new_session(database, account_id), await new_session(database, account_id)
    async with database.connection() as connection:
        await connection.execute(
            f"UPDATE sessions SET {column} = {column} - make_interval(days => $1) WHERE token_sha256 = $2",
            days,
            old,
        )
        assert await sessions.find_customer(connection, old) is None
        assert len(await sessions.list_sessions(connection, account_id)) == 1
        assert await sessions.delete_old(connection, 100) == 1
        assert await sessions.find_customer(connection, recent) is not None


async def test_ending_all_sessions_of_an_account_leaves_those_of_others(
    database: Database, password_hash: str
) -> None:
    hers, _ = await open_with_password(database, password_hash)
    his, _ = await open_with_password(database, password_hash)
    ended = [await new_session(database, hers) for _ in range(3)]
    other = await new_session(database, his)
    async with database.connection() as connection:
        await sessions.delete_all(connection, principal(hers))
        assert [await sessions.find_customer(connection, token) for token in ended] == [None] * 3
        assert await sessions.find_customer(connection, other) is not None


async def test_what_counts_no_more_is_forgotten(database: Database, password_hash: str) -> None:
    started = await begin(database, new_phone())
    assert isinstance(started, CodeSent)
    await entering.sign_in(database, GUEST, phone=new_phone(), password="wrong")
    account_id, _ = await open_with_password(database, password_hash)
    await new_session(database, account_id)
    task = next(task for task in MAINTENANCE_TASKS if task.name == "forget old sessions and codes")
    assert await run_task(database, task) == 0
    await rows(database, "UPDATE verifications SET created_at = created_at - interval '49 hours'")
    await rows(database, "UPDATE attempts SET at = at - interval '25 hours'")
    await rows(database, "UPDATE sessions SET created_at = created_at - interval '31 days'")
    assert await run_task(database, task) == 3
    for table in ("verifications", "codes", "attempts", "sessions"):
        assert await rows(database, f"SELECT FROM {table}") == []
