"""What an account sent, as its owner thinks of it: a batch is one entry, and so is a file of many batches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from tumira.core.ids import AccountId, BatchId, UploadId
from tumira.postgres.connection import Connection
from tumira.sending import batch_messages
from tumira.sending import batches as batch_store
from tumira.sending import search as batch_search
from tumira.sending.batches import Batch
from tumira.sending.lifecycle import FAILED, is_final
from tumira.sending.search import FoundBatch, Search
from tumira.uploads import chunks
from tumira.uploads.chunks import SentFile
from tumira.uploads.store import SENDING, SENT, STOPPED

# A file has ten batches at most, so these are at least ten entries; more are read a few times over.
BATCHES_READ: Final = 100
READS_MAX: Final = 4
# Reading so many messages takes about a tenth of a second; entries beyond them show only how far they are.
COUNTED_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many messages were delivered, failed, remain unconfirmed, or are still in progress."""

    delivered: int
    failed: int
    unconfirmed: int
    pending: int

    @classmethod
    def of(cls, counts: Iterable[Mapping[str, int]], unsent: int = 0) -> "Outcome":
        """Add up counts of messages by status, and messages that are yet to be sent."""
        delivered = failed = unconfirmed = 0
        pending = unsent
        for one in counts:
            delivered += one["delivered"]
            failed += sum(one[status] for status in FAILED)
            unconfirmed += one["unconfirmed"]
            pending += sum(count for status, count in one.items() if not is_final(status))
        return cls(delivered, failed, unconfirmed, pending)


@dataclass(frozen=True, slots=True)
class SentEntry:
    """A batch, or a file with all its batches; `found` is the newest of them."""

    found: FoundBatch
    file: SentFile | None
    batches: Sequence[Batch]
    # None where the page has too many messages to count them all.
    outcome: Outcome | None

    @property
    def recipients(self) -> int:
        return self.found.recipients if self.file is None else self.file.recipients

    @property
    def ended(self) -> int:
        return sum(batch.recipients - batch.pending for batch in self.batches)

    @property
    def is_open(self) -> bool:
        """Tell whether its figures will still change by themselves."""
        is_sending = self.file is not None and self.file.state == SENDING
        return is_sending or any(batch.completed_at is None for batch in self.batches)

    @property
    def is_stopped(self) -> bool:
        return self.file is not None and self.file.state == STOPPED

    @property
    def total_cost(self) -> Decimal:
        return sum((batch.total_cost for batch in self.batches), Decimal(0))

    @property
    def refunded(self) -> Decimal:
        return sum((batch.refunded for batch in self.batches), Decimal(0))


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A page of entries; if there may be older ones, they are before the batch `older`.

    `stopped_at` is how far back the search got before it had read the maximum of rows.
    """

    entries: Sequence[SentEntry]
    older: BatchId | None
    stopped_at: datetime | None


async def list_entries(
    connection: Connection,
    account_id: AccountId,
    wanted: Search,
    count_max: int,
    *,
    is_filtered: bool = False,
) -> EntryPage:
    """Return what an account sent, the newest first, at most `count_max` entries.

    A file stands where its newest batch does. A filter may leave that one out; then it stands where the
    newest batch that fits does, on each page that has one. A search by number lists batches, not files.
    """
    shown: list[tuple[FoundBatch, SentFile | None]] = []
    seen: set[UploadId] = set()
    older: BatchId | None = None
    stopped_at: datetime | None = None
    for _ in range(READS_MAX):
        read_max = BATCHES_READ if wanted.number is None else count_max
        found = await batch_search.search(connection, account_id, wanted, read_max)
        files: Mapping[BatchId, SentFile] = {}
        if wanted.number is None:
            files = await chunks.list_files(connection, account_id, [one.id for one in found.batches])
        before, stopped_at = older, found.stopped_at
        for batch in found.batches:
            file = files.get(batch.id)
            if file is None or _is_its_place(batch, file, seen, is_filtered=is_filtered):
                if len(shown) == count_max:
                    return await _page(connection, account_id, shown, before, None)
                shown.append((batch, file))
            before = batch.id
        older = found.older
        if older is None or stopped_at is not None or wanted.number is not None:
            break
        wanted = replace(wanted, before=older)
    return await _page(connection, account_id, shown, older, stopped_at)


def _is_its_place(batch: FoundBatch, file: SentFile, seen: set[UploadId], *, is_filtered: bool) -> bool:
    is_new = file.id not in seen
    seen.add(file.id)
    return is_new and (is_filtered or batch.id == file.batch_ids[-1])


async def _page(
    connection: Connection,
    account_id: AccountId,
    shown: Sequence[tuple[FoundBatch, SentFile | None]],
    older: BatchId | None,
    stopped_at: datetime | None,
) -> EntryPage:
    of_files = [batch_id for _, file in shown if file is not None for batch_id in file.batch_ids]
    named = await batch_store.list_named(connection, of_files, account_id)
    parts = [
        [batch] if file is None else [named[one] for one in file.batch_ids if one in named]
        for batch, file in shown
    ]
    counted: list[BatchId] = []
    messages = 0
    for batches in parts:
        messages += sum(batch.recipients for batch in batches)
        if messages <= COUNTED_MAX:
            counted.extend(batch.id for batch in batches)
    counts = await batch_messages.count_each(connection, account_id, counted)
    entries = []
    for (batch, file), batches in zip(shown, parts, strict=True):
        outcome = None
        if all(one.id in counts for one in batches):
            # Of a file that was sent, old batches may be gone.
            sent = sum(one.recipients for one in batches)
            unsent = 0 if file is None or file.state == SENT else file.recipients - sent
            outcome = Outcome.of((counts[one.id] for one in batches), unsent)
        entries.append(SentEntry(batch, file, batches, outcome))
    return EntryPage(entries, older, stopped_at)
