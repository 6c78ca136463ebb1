"""How does a code reach the number that it shall prove, without letting anybody send texts at our expense?

A code leaves through the gateway itself, from an account of its own and unbilled, and by e-mail if one was
given. Whoever asks cannot tell whether the number has an account: what differs is only what the text says.
"""

import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Final

from tumira.actions.passwords import hash_secret
from tumira.ids import BatchId, message_ids, new_id
from tumira.rules import codes, turns
from tumira.rules.codes import CodeLimits
from tumira.rules.destinations import sort_recipients
from tumira.rules.quotes import Leg, Quote, SendRequest
from tumira.rules.segments import measure
from tumira.store import acceptance, accounts, calls, logins, mails, prices, verifications
from tumira.store.acceptance import NewBatch
from tumira.store.database import Database
from tumira.store.sql import Connection
from tumira.store.verifications import Applicant, Purpose, Verification

_MINUTES: Final = int(codes.LIFETIME.total_seconds() // 60)


@dataclass(frozen=True, slots=True)
class Started:
    """A code is on its way, if there is somebody to get one; the token is for the browser that asked."""

    token: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing was sent: too many codes were asked for."""

    wait: timedelta


def new_token() -> str:
    """Make what a browser proves itself with."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """Return what is kept of a token; it is too long to be guessed, so a plain hash will do."""
    return sha256(token.encode()).digest()


async def start_sign_up(
    database: Database,
    limits: CodeLimits,
    *,
    phone: str,
    applicant: Applicant,
    address: str,
    token: str | None,
) -> Started | Wait:
    """Begin a sign-up; somebody who comes back to correct their details keeps the code that they got."""
    code = codes.new_code()
    code_hash = await hash_secret(code)
    async with database.transaction() as connection:
        await verifications.lock(connection)
        verification = await _own(connection, token, phone)
        if verification is not None:
            assert token is not None
            await verifications.change(connection, verification.id, applicant)
        wait = await _wait(connection, limits, phone, address)
        if verification is None:
            if wait:
                return Wait(wait)
            token = new_token()
            verification = Verification(new_id(_now_ms()), Purpose.SIGN_UP, phone, applicant)
            await verifications.insert(connection, verification, hash_token(token))
        if not wait:
            await _send(connection, verification, code, code_hash, address)
    assert token is not None
    return Started(token)


async def start_reset(database: Database, limits: CodeLimits, *, phone: str, address: str) -> Started | Wait:
    """Begin to choose a new password; a number without an account gets nothing, and nobody can tell."""
    code = codes.new_code()
    code_hash = await hash_secret(code)
    token = new_token()
    async with database.transaction() as connection:
        await verifications.lock(connection)
        wait = await _wait(connection, limits, phone, address)
        if wait:
            return Wait(wait)
        verification = Verification(new_id(_now_ms()), Purpose.RESET, phone, None)
        await verifications.insert(connection, verification, hash_token(token))
        await _send(connection, verification, code, code_hash, address)
    return Started(token)


async def send_again(
    database: Database, limits: CodeLimits, *, token: str, address: str
) -> Started | Wait | None:
    """Send another code, which is then the only one that counts; None for a token that is of no more use."""
    code = codes.new_code()
    code_hash = await hash_secret(code)
    async with database.transaction() as connection:
        await verifications.lock(connection)
        verification = await verifications.find(connection, hash_token(token))
        if verification is None:
            return None
        wait = await _wait(connection, limits, verification.phone, address)
        if wait:
            return Wait(wait)
        await _send(connection, verification, code, code_hash, address)
    return Started(token)


async def _own(connection: Connection, token: str | None, phone: str) -> Verification | None:
    """Return the sign-up that this browser has begun for this number."""
    found = None if token is None else await verifications.find(connection, hash_token(token))
    return found if found is not None and (found.purpose, found.phone) == (Purpose.SIGN_UP, phone) else None


async def _wait(connection: Connection, limits: CodeLimits, phone: str, address: str) -> timedelta:
    now = await verifications.now(connection)
    return max(
        codes.wait_for_phone(await verifications.list_times(connection, phone), now),
        codes.wait_for_count(
            *await verifications.count_of_address(connection, address), limits.per_address, now
        ),
        codes.wait_for_count(*await verifications.count(connection), limits.in_all, now),
    )


async def _send(
    connection: Connection, verification: Verification, code: str, code_hash: str, address: str
) -> None:
    login = await logins.find(connection, verification.phone)
    # The code counts where it leads somewhere: to a new account, or to the new password of one that exists.
    counts = (login is None) == (verification.purpose is Purpose.SIGN_UP)
    await verifications.insert_code(
        connection,
        new_id(_now_ms()),
        verification.id,
        verification.phone,
        address,
        code_hash if counts else None,
    )
    if verification.purpose is Purpose.RESET:
        if counts:
            text = (
                f"Tumira: {code} is your code to choose a new password. It is valid for {_MINUTES} minutes."
            )
            await send_text(connection, verification.phone, text)
        return
    text = f"Tumira: {code} is your verification code. It is valid for {_MINUTES} minutes."
    if not counts:
        text = (
            "Tumira: somebody, maybe you, tried to sign up with this number. It has an account: "
            "sign in, or choose a new password with Forgotten password."
        )
    await send_text(connection, verification.phone, text)
    assert verification.applicant is not None
    if verification.applicant.email is not None:
        await mails.insert(
            connection,
            new_id(_now_ms()),
            verification.applicant.email,
            f"{code} is your Tumira verification code",
            f"Your verification code is {code}. It is valid for {_MINUTES} minutes.\n\n"
            "Enter it on the page where you signed up. If you did not sign up, ignore this message.\n",
            await verifications.now(connection) + codes.LIFETIME,
        )


async def send_text(connection: Connection, phone: str, text: str) -> None:
    """Hand a text of our own to the queue, at no cost, where the next message to be sent is taken from."""
    tariff = await prices.get_tariff(connection)
    accepted = sort_recipients(tariff, "sms", [phone]).accepted
    if not accepted:
        # Nobody sends to that country any more.
        return
    recipient = accepted[0]
    _, surroundings = await calls.read(connection, [], [])
    segments = measure(text).segments
    batch_id = BatchId(new_id(surroundings.now_us // 1000))
    lane = turns.lane(1)
    leg = Leg(recipient.country, Decimal(0), 1)
    await acceptance.store(
        connection,
        NewBatch(
            id=batch_id,
            account_id=accounts.SYSTEM,
            created_at=surroundings.now,
            request=SendRequest("sms", [phone], text, None, dry_run=False),
            quote=Quote([phone], [0], [leg], [], segments, Decimal(0), tariff.version),
            lane=lane,
            message_ids=message_ids(batch_id, 1),
            turns=[surroundings.clocks.get((recipient.country, lane), 0)],
        ),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
