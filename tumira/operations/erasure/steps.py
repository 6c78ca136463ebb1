"""Steps of an erasure.

Each reads some rows of one kind in the order of their keys and erases the number there.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from tumira.approvals import store as approvals
from tumira.core.ids import AccountId, EndpointId, MessageId, first_id, made_at_ms
from tumira.delivery.match_receipts import REACH
from tumira.delivery.networks import ported
from tumira.delivery.replies import store as reply_parts
from tumira.delivery.store import settlement
from tumira.delivery.store.settlement import LockedMessage
from tumira.identity.store import operators, people
from tumira.operations.erasure import contacts, store
from tumira.operations.erasure.requests import Erasure, StepResult
from tumira.operations.erasure.store import LOWEST
from tumira.postgres.connection import Connection
from tumira.pricing.phone_numbers import Subject
from tumira.replies import store as replies
from tumira.schedules import files as scheduled_files
from tumira.schedules import store as schedules
from tumira.sending import code_stops, lifecycle
from tumira.uploads import kept_files
from tumira.uploads.screen import erase_scheduled_rows

MESSAGES_MAX: Final = 500
# Each has up to a thousand rows.
CHUNKS_MAX: Final = 50
ROWS_MAX: Final = 2_000


class Stage(StrEnum):
    """The kinds of rows, in the order in which they are searched, and the pause after the last."""

    MESSAGES = "messages"
    FILES = "files"
    FAULTS = "faults"
    REPLIES = "replies"
    ANSWERS = "answers"
    PROOFS = "proofs"
    RECEIPTS = "receipts"
    # Texts that the number's owner sent; `replies` are answers of the API.
    RECEIVED = "received"
    LISTS = "lists"
    PAUSE = "pause"


# Stands for the list in the place of the stage `lists` when all lists were searched. A node of the version
# before finds no list behind it, and ends the stage.
_TEXTS: Final = str(UUID(int=(1 << 128) - 1))

# Names of the other counts, as they are shown.
OTHERS: Final = (
    "texts",
    "scheduled",
    "file_rows",
    "bad_file_rows",
    "replies",
    "webhook_answers",
    "proofs",
    "receipts",
    "received",
    "contacts",
    "saved_texts",
)


@dataclass(frozen=True, slots=True)
class Walk:
    erasure: Erasure
    subject: Subject
    now: datetime

    @property
    def until(self) -> UUID:
        """The id above all messages and files from before the request."""
        return first_id(int(self.erasure.at.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class Owners:
    """An account that a person signs in to with the number, and if an operator does; they keep it."""

    account_id: AccountId | None
    is_operator: bool


async def find_owners(connection: Connection, number: str) -> Owners:
    account_id = await people.find_account_of(connection, number)
    operator = await operators.find_by_phone(connection, number)
    return Owners(account_id, operator is not None)


async def _messages(connection: Connection, walk: Walk) -> StepResult:
    after = UUID(walk.erasure.place[0]) if walk.erasure.place else LOWEST
    listed = await store.list_messages(connection, walk.subject.number, after, walk.until, MESSAGES_MAX)
    if not listed:
        return StepResult()
    return replace(
        await _erase_messages(connection, walk, listed),
        place=[str(listed[-1])] if len(listed) == MESSAGES_MAX else None,
    )


async def _erase_messages(connection: Connection, walk: Walk, ids: Sequence[MessageId]) -> StepResult:
    """Erase the number in those messages that have ended."""
    held = await settlement.lock_messages(connection, sorted(ids))
    own = [one for one in held.values() if one.recipient == walk.subject.number]
    ended = [one for one in own if _has_ended(one, walk.now)]
    texts = 0
    if ended:
        batch_ids = sorted({one.batch_id for one in ended})
        texts = await store.erase_messages(connection, walk.subject, [one.id for one in ended], batch_ids)
    return StepResult(
        messages=len(ended),
        others={"texts": texts},
        waiting=len(own) - len(ended),
        accounts=frozenset(one.account_id for one in own),
    )


def _has_ended(message: LockedMessage, now: datetime) -> bool:
    """Tell whether a message no longer needs its number: a late receipt may be matched by nothing else."""
    if message.status == "unconfirmed":
        return made_at_ms(message.id) < int((now - REACH).timestamp() * 1000)
    return lifecycle.is_final(message.status)


async def _files(connection: Connection, walk: Walk) -> StepResult:
    # A number can be written in them in many ways, and their owners can choose them again.
    await kept_files.delete_before(connection, walk.erasure.at)
    await scheduled_files.delete_before(connection, walk.erasure.at)
    await approvals.erase_number(connection, walk.subject.national, walk.erasure.at)
    after_upload, after_number = walk.erasure.place or (str(LOWEST), "-1")
    chunks = await store.list_chunks(
        connection, walk.subject.number, (UUID(after_upload), int(after_number)), walk.until, CHUNKS_MAX
    )
    # Before the first file, because a node of the version before knows no stage of their own.
    scheduled = StepResult() if walk.erasure.place else await _scheduled(connection, walk)
    holding = next((place for place, one in enumerate(chunks) if one.holding), None)
    if holding is None:
        looked_at, found = chunks, StepResult()
    else:
        # One chunk per step: messages are locked before batches, so none may follow after the first one's
        # batch.
        looked_at, found = chunks[: holding + 1], await _erase_row(connection, walk, chunks[holding])
    is_last = len(chunks) < CHUNKS_MAX and len(looked_at) == len(chunks)
    last = looked_at[-1] if looked_at else None
    place = None if is_last or last is None else [str(last.upload_id), str(last.number)]
    return replace(_add(found, scheduled), place=place)


async def _scheduled(connection: Connection, walk: Walk) -> StepResult:
    """Take the number out of scheduled messages; it gets none of them."""
    found = await schedules.erase_number(connection, walk.subject, walk.until)
    return StepResult(others={"scheduled": len(found)}, accounts=frozenset(found))


async def _erase_row(connection: Connection, walk: Walk, chunk: store.FileChunk) -> StepResult:
    """Erase the number in rows of a file; rows that its owner may still send stay until then.

    Those of a scheduled file would stay for months, and are left out of it.
    """
    if chunk.batch_id is None:
        left_out = await erase_scheduled_rows(connection, chunk.upload_id, chunk.number, walk.subject.number)
        others = {"file_rows": left_out} if left_out else {}
        return StepResult(others=others, waiting=chunk.holding - left_out)
    found = StepResult()
    ids = await store.list_of_batch(connection, walk.subject.number, chunk.batch_id)
    if ids:
        sent = await _erase_messages(connection, walk, ids)
        if ids[0] >= walk.until:
            # Sent after the request, from a file from before it; the others were counted as messages.
            found = sent
        if sent.waiting:
            return found
    await store.erase_chunk(connection, walk.subject, chunk)
    return _add(found, StepResult(others={"file_rows": chunk.holding}))


def _add(found: StepResult, more: StepResult) -> StepResult:
    return replace(
        found,
        messages=found.messages + more.messages,
        others={
            name: found.others.get(name, 0) + more.others.get(name, 0)
            for name in {*found.others, *more.others}
        },
        waiting=found.waiting + more.waiting,
        accounts=found.accounts | more.accounts,
    )


async def _faults(connection: Connection, walk: Walk) -> StepResult:
    return await store.erase_faults(connection, walk.subject, walk.erasure.place, walk.until, ROWS_MAX)


async def _replies(connection: Connection, walk: Walk) -> StepResult:
    return await store.erase_replies(connection, walk.subject, walk.erasure.place, ROWS_MAX)


async def _answers(connection: Connection, walk: Walk) -> StepResult:
    if not walk.erasure.accounts:
        return StepResult()
    if walk.erasure.place:
        endpoint_id, after = (UUID(one) for one in walk.erasure.place)
    else:
        first = await store.next_endpoint(connection, walk.erasure.accounts, LOWEST)
        if first is None:
            return StepResult()
        endpoint_id, after = first, LOWEST
    until = first_id(int(walk.now.timestamp() * 1000))
    found = await store.erase_answers(
        connection, walk.subject, EndpointId(endpoint_id), after, until, ROWS_MAX
    )
    if found.place is not None:
        return found
    following = await store.next_endpoint(connection, walk.erasure.accounts, endpoint_id)
    return replace(found, place=None if following is None else [str(following), str(LOWEST)])


async def _proofs(connection: Connection, walk: Walk) -> StepResult:
    await ported.delete_number(connection, walk.subject.number)
    await code_stops.erase_number(connection, walk.subject.number)
    owners = await find_owners(connection, walk.subject.number)
    if owners.account_id is not None or owners.is_operator:
        # They protect the sign-in of the account or operator, and are deleted after two days.
        return StepResult()
    deleted = await store.delete_proofs(connection, walk.subject.number, walk.erasure.at)
    return StepResult(others={"proofs": deleted})


async def _receipts(connection: Connection, walk: Walk) -> StepResult:
    if walk.erasure.waiting:
        # One of them may belong to a message that waits for it.
        return StepResult()
    digits = walk.subject.number.removeprefix("+")
    after = int(walk.erasure.place[0]) if walk.erasure.place else 0
    deleted = await store.delete_receipts(connection, digits, walk.erasure.at, after, ROWS_MAX)
    return StepResult(
        place=[str(max(deleted))] if len(deleted) == ROWS_MAX else None, others={"receipts": len(deleted)}
    )


async def _received(connection: Connection, walk: Walk) -> StepResult:
    subject = walk.subject
    erased = await replies.erase_number(connection, subject.number, subject.pseudonym, walk.until, ROWS_MAX)
    digits = subject.number.removeprefix("+")
    spellings = [subject.number, digits, f"00{digits}", f"0{subject.national}", subject.national]
    await reply_parts.delete_of_number(connection, spellings, walk.erasure.at)
    return StepResult(
        place=["more"] if len(erased) == ROWS_MAX else None,
        others={"received": len(erased)},
        accounts=frozenset(account_id for account_id in erased if account_id is not None),
    )


async def _lists(connection: Connection, walk: Walk) -> StepResult:
    """Erase the number in contact lists, and then in saved texts."""
    if walk.erasure.place[:1] == [_TEXTS]:
        return await _texts(connection, walk, UUID(walk.erasure.place[1]))
    gone = await contacts.erase_number(connection, walk.subject.number, walk.erasure.at)
    blanked = await contacts.erase_cells(
        connection, walk.subject, walk.erasure.place, walk.erasure.at, ROWS_MAX
    )
    found = _add(blanked, StepResult(others={"contacts": len(gone)}, accounts=frozenset(gone)))
    return found if found.place is not None else replace(found, place=[_TEXTS, str(LOWEST)])


async def _texts(connection: Connection, walk: Walk, after: UUID) -> StepResult:
    found = await contacts.erase_in_texts(connection, walk.subject, after, walk.erasure.at, ROWS_MAX)
    return found if found.place is None else replace(found, place=[_TEXTS, *found.place])


STEPS: Final[Mapping[Stage, Callable[[Connection, Walk], Awaitable[StepResult]]]] = {
    Stage.MESSAGES: _messages,
    Stage.FILES: _files,
    Stage.FAULTS: _faults,
    Stage.REPLIES: _replies,
    Stage.ANSWERS: _answers,
    Stage.PROOFS: _proofs,
    Stage.RECEIPTS: _receipts,
    Stage.RECEIVED: _received,
    Stage.LISTS: _lists,
}
