"""Limits of codes, attempts, sessions and keys under concurrency; each race has a twin without the lock."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

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
from tumira.core.ids import AccountId, new_id
from tumira.identity import code_rules, manage_keys, passwords
from tumira.identity import sign_in as entering
from tumira.identity.code_rules import AttemptLimits, CodeLimits
from tumira.identity.manage_keys import TooManyKeysError, create_key
from tumira.identity.passwords import LOCAL, hash_secret, matches
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.send_codes import (
    CodeSent,
    CodeThrottled,
    hash_token,
    new_token,
    send_again,
    start_reset,
    start_sign_up,
)
from tumira.identity.sign_in import (
    Mismatch,
    SignedIn,
    SignUpUnfinished,
    TooManyAttempts,
    finish_reset,
    finish_sign_up,
)
from tumira.identity.store import attempts, logins, sessions, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.sessions import SignedInCustomer
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

ADDRESS: Final = "198.18.0.1"
GUEST: Final = Browser(ADDRESS, "a browser", None)
OTHER: Final = Browser("198.18.0.2", "a browser", None)
LIMITS: Final = CodeLimits(40, 500)
NEW: Final = "another good password"
DETAILS: Final[Any] = {"name": "Tariro Moyo", "business": "Moyo Stores", "email": None}

# The same statements, so slow that whoever does not wait for the others overtakes them.
SLOW_CODE: Final = Statement("""
INSERT INTO codes (id, verification_id, phone, address, device_sha256, code_hash, email_hash, sent)
SELECT %(code_id)s, %(verification_id)s, %(phone)s, %(address)s, %(device)s, %(code_hash)s, %(email_hash)s,
       %(sent)s
  FROM pg_sleep(0.1)
""")
SLOW_ATTEMPT: Final = Statement(
    "INSERT INTO attempts (kind, phone, address) SELECT %(kind)s, %(phone)s, %(origin)s FROM pg_sleep(0.03)"
)
SLOW_KEY: Final = Statement("""
INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
SELECT %(key_id)s, %(account_id)s, %(name)s, %(sha256)s, %(scopes)s FROM pg_sleep(0.03)
""")
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

locked_and_not = pytest.mark.parametrize("locked", [True, False], ids=["locked", "without the lock"])


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


@pytest.fixture(autouse=True)
def hasher(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingHasher]:
    hasher = CountingHasher()
    monkeypatch.setattr(passwords, "_HASHER", hasher)
    passwords._nobodys.cache_clear()
    yield hasher
    passwords._nobodys.cache_clear()


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


async def rows(database: Database, statement: str, *arguments: Any) -> Sequence[asyncpg.Record]:
    async with database.connection() as connection:
        return await connection.fetch(statement, *arguments)


async def count(database: Database, table: str) -> int:
    return len(await rows(database, f"SELECT FROM {table}"))


async def text_to(database: Database, phone: str) -> str:
    found = await rows(
        database,
        "SELECT b.body FROM batches b JOIN messages m ON m.batch_id = b.id"
        " WHERE m.recipient = $1 ORDER BY b.id",
        phone,
    )
    return str(found[-1]["body"])


async def begin(
    database: Database, phone: str | None = None, limits: CodeLimits = LIMITS
) -> CodeSent | CodeThrottled:
    return await start_sign_up(
        database, limits, GUEST, phone=phone or new_phone(), password=PASSWORD, token=None, **DETAILS
    )


async def begun(database: Database, phone: str | None = None, limits: CodeLimits = LIMITS) -> str:
    started = await begin(database, phone, limits)
    assert isinstance(started, CodeSent)
    return started.token


async def sign_in(database: Database, phone: str, password: str = PASSWORD) -> object:
    return await entering.sign_in(database, PrincipalKind.CUSTOMER, GUEST, phone=phone, password=password)


async def open_with_password(database: Database, password: str | None = PASSWORD) -> Principal:
    phone = new_phone()
    account = await open_account(
        database, phone=phone, name="A", business="B", balance=Decimal(0), rate_limit=60, actor="test"
    )
    principal = Principal(PrincipalKind.CUSTOMER, account.id, phone)
    if password is not None:
        async with database.connection() as connection:
            await logins.set_password(connection, principal, await hash_secret(password, LOCAL))
    return principal


async def test_a_code_is_stored_as_a_hash_and_its_text_costs_nobody_anything(database: Database) -> None:
    phone = new_phone()
    await begun(database, phone)
    (code,) = await rows(database, "SELECT * FROM codes")
    assert await matches(code_in(await text_to(database, phone)), code["code_hash"], LOCAL)
    (message,) = await rows(
        database, "SELECT account_id, cost, lane FROM messages JOIN queue ON message_id = id"
    )
    assert tuple(message) == (SYSTEM, 0, 0)
    assert await count(database, "transfers") == 0
    assert await broken_promises(database) == []


async def test_nothing_matches_a_password_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for hashed in (None, "", "not a hash"):
        assert not await matches("nobody's", hashed, LOCAL)
    hashed = await hash_secret("x", LOCAL)
    assert await matches("x", hashed, LOCAL)
    assert not await matches("x ", hashed, LOCAL)
    # The same password twice is kept in two ways.
    assert await hash_secret("x", LOCAL) != hashed
    monkeypatch.undo()
    assert (await hash_secret("x", LOCAL)).startswith("$argon2id$v=19$m=19456,t=2,p=1$")


@locked_and_not
async def test_ten_at_once_get_one_code_for_a_number(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, locked: bool
) -> None:
    monkeypatch.setattr(verifications, "SQL_INSERT_CODE", SLOW_CODE)
    if not locked:
        monkeypatch.setattr(verifications, "SQL_LOCK_CODES", Statement("SELECT 1"))
    phone = new_phone()
    results = await asyncio.gather(*(begin(database, phone) for _ in range(10)))
    assert (sum(isinstance(result, CodeSent) for result in results) == 1) is locked


@pytest.mark.parametrize("limits", [CodeLimits(3, 500), CodeLimits(40, 3)])
async def test_ten_at_once_do_not_pass_the_limits_of_an_address_and_of_all(
    database: Database, monkeypatch: pytest.MonkeyPatch, limits: CodeLimits
) -> None:
    monkeypatch.setattr(verifications, "SQL_INSERT_CODE", SLOW_CODE)
    results = await asyncio.gather(*(begin(database, limits=limits) for _ in range(10)))
    assert Counter(type(result) for result in results) == {CodeSent: 3, CodeThrottled: 7}
    assert await count(database, "batches") == 3


async def test_sign_ups_and_forgotten_passwords_have_limits_of_their_own(database: Database) -> None:
    limits = CodeLimits(40, 3)
    token = await begun(database, limits=limits)
    await rows(database, "UPDATE codes SET sent_at = sent_at - interval '1 minute'")
    assert isinstance(await send_again(database, limits, GUEST, token=token), CodeSent)
    await begun(database, limits=limits)
    assert isinstance(await begin(database, limits=limits), CodeThrottled)
    assert isinstance(await send_again(database, limits, GUEST, token=token), CodeThrottled)
    # Nobody who has an account is kept from it because others sign up.
    for number in range(3):
        known = (await open_with_password(database)).phone
        elsewhere = Browser(f"198.18.1.{number}", "a browser", None)
        assert isinstance(await start_reset(database, limits, elsewhere, phone=known), CodeSent)
    # When the texts of the hour are used up, those without an account are answered as those with one.
    for one in (known, new_phone()):
        assert isinstance(await start_reset(database, limits, OTHER, phone=one), CodeThrottled)
    assert await send_again(database, limits, GUEST, token=new_token()) is None


async def test_codes_that_are_never_sent_stop_nobody(database: Database) -> None:
    limits = CodeLimits(40, 3)
    for number in range(5):
        stranger = Browser(f"198.18.1.{number}", "a browser", None)
        assert isinstance(await start_reset(database, limits, stranger, phone=new_phone()), CodeSent)
    assert await count(database, "batches") == 0
    known = (await open_with_password(database)).phone
    assert isinstance(await start_reset(database, limits, GUEST, phone=known), CodeSent)
    await begun(database, limits=limits)
    assert await count(database, "batches") == 2
    # Whoever asks from one address is limited all the same, or the table would grow without end.
    assert isinstance(await start_reset(database, CodeLimits(1, 5), GUEST, phone=new_phone()), CodeThrottled)


async def test_who_asks_for_a_new_password_of_others_uses_up_none_of_their_codes_at_a_known_browser(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_rules, "PER_PHONE_DAY_MAX", 4)
    phone = (await open_with_password(database)).phone
    signed_in = await sign_in(database, phone)
    assert isinstance(signed_in, SignedIn)
    at_home = Browser(ADDRESS, "a browser", None, signed_in.device)
    for number in range(4):
        stranger = Browser(f"198.18.1.{number}", "a browser", None)
        assert isinstance(await start_reset(database, LIMITS, stranger, phone=phone), CodeSent)
        await rows(database, "UPDATE codes SET sent_at = sent_at - interval '31 seconds'")
    assert isinstance(await start_reset(database, LIMITS, GUEST, phone=phone), CodeThrottled)
    assert isinstance(await start_reset(database, LIMITS, at_home, phone=phone), CodeSent)
    # It has waits of its own, and is of no use for another number.
    assert isinstance(await start_reset(database, LIMITS, at_home, phone=phone), CodeThrottled)
    other = (await open_with_password(database)).phone
    assert isinstance(await start_reset(database, CodeLimits(0, 500), at_home, phone=other), CodeThrottled)


async def test_nothing_is_hashed_for_who_is_over_a_limit(database: Database, hasher: CountingHasher) -> None:
    phone = new_phone()
    token = await begun(database, phone)

    async def correct() -> CodeSent | CodeThrottled:
        return await start_sign_up(database, LIMITS, GUEST, phone=phone, password=NEW, token=token, **DETAILS)

    assert [type(await correct()) for _ in range(10)] == [CodeSent] * 10
    hasher.done.clear()
    limits = CodeLimits(per_address=1)
    for refused in (
        await correct(),
        await begin(database, limits=limits),
        await start_reset(database, limits, GUEST, phone=new_phone()),
        await send_again(database, limits, GUEST, token=token),
    ):
        assert isinstance(refused, CodeThrottled)
    assert hasher.done == {}


async def take(
    database: Database, limits: AttemptLimits, phone: str = "+27821230000", origin: str = ADDRESS
) -> timedelta | None:
    async with database.transaction() as connection:
        return await attempts.take(connection, AttemptKind.PASSWORD, phone, origin, limits)


@pytest.mark.parametrize(
    ("limits", "locked"),
    [
        (AttemptLimits(5, 60, 60), True),
        (AttemptLimits(10, 5, 60), True),
        (AttemptLimits(10, 60, 5), True),
        (AttemptLimits(per_pair=5), True),
        (AttemptLimits(per_pair=5), False),
    ],
)
async def test_of_many_tries_at_once_as_many_are_granted_as_there_may_be(
    database: Database, monkeypatch: pytest.MonkeyPatch, limits: AttemptLimits, *, locked: bool
) -> None:
    monkeypatch.setattr(attempts, "SQL_INSERT", SLOW_ATTEMPT)
    if not locked:
        # It names both subjects, as the real one does, and locks neither.
        monkeypatch.setattr(attempts, "SQL_LOCK", Statement("SELECT %(phone)s::text, %(origin)s::text"))
    waits = await asyncio.gather(*(take(database, limits) for _ in range(10)))
    assert (waits.count(None) == 5) is locked


async def test_tries_for_crossed_numbers_and_addresses_do_not_wait_for_each_other_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SQL_INSERT", SLOW_ATTEMPT)
    one, two = "+27821230001", "+27821230002"
    # An address that reads like a number is the worst case: each holds what the other wants next.
    pairs = [(one, two), (two, one)] * 5
    granted = await asyncio.gather(*(take(database, AttemptLimits(), *pair) for pair in pairs))
    assert granted == [None] * 10


async def test_a_try_is_over_after_the_window_and_the_wait_says_when(database: Database) -> None:
    limits = AttemptLimits(2)
    assert [await take(database, limits), await take(database, limits)] == [None, None]
    await rows(database, "UPDATE attempts SET at = at - interval '10 minutes'")
    wait = await take(database, limits)
    assert wait is not None
    assert timedelta(minutes=4) < wait <= timedelta(minutes=5)
    await rows(database, "UPDATE attempts SET at = at - interval '5 minutes'")
    assert await take(database, limits) is None


@locked_and_not
async def test_of_ten_tries_at_a_code_at_once_five_are_compared(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, locked: bool
) -> None:
    if not locked:
        monkeypatch.setattr(verifications, "SQL_TAKE_TRY", READ_THEN_WRITE)
    await begun(database)
    (verification,) = await rows(database, "SELECT id FROM verifications")

    async def try_code() -> bool:
        async with database.transaction() as connection:
            return await verifications.take_attempt(connection, verification["id"]) is not None

    compared = sum(await asyncio.gather(*(try_code() for _ in range(10))))
    assert (compared == 5) is locked


async def test_a_code_that_was_never_sent_matches_nothing(database: Database) -> None:
    taken = (await open_with_password(database)).phone
    token = await begun(database, taken)
    for code in ("", "000000", "nobody's"):
        assert isinstance(await finish_sign_up(database, GUEST, token=token, code=code), Mismatch)
    other = await start_reset(database, LIMITS, GUEST, phone=new_phone())
    assert isinstance(other, CodeSent)
    reset = await finish_reset(database, GUEST, token=other.token, code="000000", password=NEW)
    assert isinstance(reset, Mismatch)
    assert await count(database, "logins") == 1


async def test_the_right_code_ten_times_at_once_opens_one_account(database: Database) -> None:
    phone = new_phone()
    token = await begun(database, phone)
    code = code_in(await text_to(database, phone))
    results = await asyncio.gather(
        *(finish_sign_up(database, GUEST, token=token, code=code) for _ in range(10))
    )
    assert sum(isinstance(result, SignedIn) for result in results) == 1
    assert {type(result) for result in results} <= {SignedIn, type(None), Mismatch, TooManyAttempts}
    assert [await count(database, table) for table in ("logins", "sessions")] == [1, 1]


@locked_and_not
async def test_an_old_password_opens_no_session_while_it_is_being_changed(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, locked: bool
) -> None:
    if not locked:
        unlocked = Statement("SELECT password_hash FROM logins WHERE person_id = %(id)s")
        monkeypatch.setitem(logins.SQL_LOCK, PrincipalKind.CUSTOMER, unlocked)
    principal = await open_with_password(database)
    changed_hash = await hash_secret(NEW, LOCAL)
    async with database.connection() as connection:
        change = connection.transaction()
        await change.start()
        await logins.set_password(connection, principal, changed_hash)
        await sessions.delete_all(connection, principal)
        entered = asyncio.create_task(sign_in(database, principal.phone))

        async def is_decided() -> bool:
            return entered.done() or bool(await rows(database, BLOCKED))

        await first_true(is_decided, "nobody waits for the password")
        await change.commit()
    assert isinstance(await entered, Mismatch if locked else SignedIn)
    assert await count(database, "sessions") == (0 if locked else 1)


async def test_who_has_an_account_cannot_be_told_by_the_time_that_hashing_takes(
    database: Database, hasher: CountingHasher
) -> None:
    await matches("x", None, LOCAL)
    taken = (await open_with_password(database)).phone
    begun_before = new_phone()
    await begin(database, begun_before)
    without_password = (await open_with_password(database, None)).phone

    async def cost_of(phone: str) -> Sequence[Counter[str]]:
        await rows(database, "UPDATE codes SET sent_at = sent_at - interval '1 day'")
        costs = []
        hasher.done.clear()
        await sign_in(database, phone, "wrong")
        costs.append(hasher.done.copy())
        hasher.done.clear()
        started = await start_reset(database, LIMITS, GUEST, phone=phone)
        assert isinstance(started, CodeSent)
        await finish_reset(database, GUEST, token=started.token, code="wrong", password=NEW)
        costs.append(hasher.done.copy())
        await rows(database, "UPDATE codes SET sent_at = sent_at - interval '1 day'")
        hasher.done.clear()
        await finish_sign_up(database, GUEST, token=await begun(database, phone), code="wrong")
        costs.append(hasher.done.copy())
        return costs

    expected = await cost_of(new_phone())
    assert expected == [{"verify": 2}, {"hash": 1, "verify": 1}, {"hash": 2, "verify": 1}]
    for phone in (taken, begun_before, without_password):
        assert await cost_of(phone) == expected


async def test_the_password_of_a_sign_up_leads_to_it_whether_or_not_the_number_has_an_account(
    database: Database,
) -> None:
    taken = (await open_with_password(database, NEW)).phone
    for phone in (taken, new_phone()):
        await begun(database, phone)
        assert isinstance(await sign_in(database, phone), SignUpUnfinished)
    # It showed nobody who they are, so what was tried for the number still counts.
    assert await count(database, "attempts") == 2
    assert isinstance(await sign_in(database, taken, NEW), SignedIn)
    assert await count(database, "attempts") == 1


@locked_and_not
async def test_nine_at_once_make_no_key_too_many(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, locked: bool
) -> None:
    monkeypatch.setattr(manage_keys, "KEYS_MAX", 3)
    monkeypatch.setattr(api_keys, "SQL_INSERT", SLOW_KEY)
    if not locked:
        unlocked = Statement(f"SELECT {accounts.LOCKED} FROM accounts WHERE id = %(account_id)s")
        monkeypatch.setattr(accounts, "SQL_HOLD", unlocked)
    owner = await open_with_password(database)
    made = await asyncio.gather(
        *(create_key(database, AccountId(owner.id), "key", [Scope.SEND]) for _ in range(9)),
        return_exceptions=True,
    )
    refused = sum(isinstance(one, TooManyKeysError) for one in made)
    assert (refused == 6) is locked
    assert await count(database, "api_keys") == 9 - refused


async def new_session(database: Database, principal: Principal) -> bytes:
    token = hash_token(new_token())
    async with database.connection() as connection:
        await sessions.insert(connection, principal, new_id(1), token, GUEST)
    return token


async def find(database: Database, token: bytes) -> SignedInCustomer | None:
    async with database.connection() as connection:
        return await sessions.find(connection, SignedInCustomer, token)


async def test_sessions_are_found_by_their_token_until_all_of_their_account_end(database: Database) -> None:
    hers, his = await open_with_password(database), await open_with_password(database)
    tokens = [await new_session(database, hers) for _ in range(3)]
    other = await new_session(database, his)
    found = await find(database, tokens[0])
    assert found is not None
    assert (found.account_id, found.phone, found.is_news) == (hers.id, hers.phone, False)
    assert await find(database, hash_token("")) is None
    await rows(database, "UPDATE sessions SET seen_at = seen_at - interval '2 minutes'")
    async with database.connection() as connection:
        for is_news in (True, False):
            found = await sessions.find(connection, SignedInCustomer, tokens[0])
            assert found is not None
            assert found.is_news is is_news
            await sessions.mark_seen(connection, PrincipalKind.CUSTOMER, found.session_id)
        assert await sessions.delete_all(connection, hers, found.session_id) == 2
        assert await sessions.delete_all(connection, hers) == 1
    assert [await find(database, token) for token in tokens] == [None] * 3
    assert await find(database, other) is not None


@pytest.mark.parametrize(("column", "days"), [("seen_at", 1), ("created_at", 30)])
async def test_a_session_that_is_over_is_neither_found_nor_listed(
    database: Database, column: str, days: int
) -> None:
    owner = await open_with_password(database)
    old, recent = await new_session(database, owner), await new_session(database, owner)
    await rows(
        database,
        f"UPDATE sessions SET {column} = {column} - make_interval(days => $1) WHERE token_sha256 = $2",
        days,
        old,
    )
    assert await find(database, old) is None
    assert await find(database, recent) is not None
    async with database.connection() as connection:
        assert len(await sessions.list_sessions(connection, owner.id)) == 1


async def test_what_counts_no_more_is_forgotten(database: Database) -> None:
    await begun(database)
    await sign_in(database, new_phone(), "wrong")
    owner = await open_with_password(database)
    await new_session(database, owner)
    recent = await new_session(database, owner)
    await rows(database, "INSERT INTO devices (phone, token_sha256) VALUES ('x', sha256('x'))")
    await rows(
        database, "INSERT INTO half_sessions (token_sha256, account_id) VALUES (sha256('x'), $1)", owner.id
    )
    task = next(task for task in MAINTENANCE_TASKS if task.name == "forget old sessions and codes")
    assert await run_task(database, task) == 0
    await rows(database, "UPDATE verifications SET created_at = created_at - interval '49 hours'")
    await rows(database, "UPDATE attempts SET at = at - interval '25 hours'")
    await rows(database, "UPDATE devices SET seen_at = seen_at - interval '91 days'")
    await rows(database, "UPDATE half_sessions SET created_at = created_at - interval '6 minutes'")
    await rows(
        database,
        "UPDATE sessions SET created_at = created_at - interval '31 days' WHERE token_sha256 <> $1",
        recent,
    )
    assert await run_task(database, task) == 5
    for table in ("verifications", "codes", "attempts", "devices", "half_sessions"):
        assert await count(database, table) == 0
    assert await find(database, recent) is not None
