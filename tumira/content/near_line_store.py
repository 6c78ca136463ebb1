"""Texts that passed near the line: how many messages had one, by day, and a sample of the texts.

Texts are kept only of accounts that consent to review, at most ten for each account and day. They are chosen
by rank, a hash, so the sample does not depend on which text came first or which node saw it. Both tables are
kept for 30 days.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.content.store import KEPT
from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

SAMPLES_PER_DAY: Final = 10
# An account is often near the line from this many messages and this share of its messages on.
OFTEN_MIN: Final = 20
OFTEN_SHARE: Final = 0.1

# Beyond every row of a list.
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_NO_ACCOUNT: Final = AccountId(UUID(int=0))

# An account and a local day.
AccountDay = tuple[AccountId, date]


class NearLineReview(StrEnum):
    """An operator's decision about a text that passed near the line."""

    FINE = "fine"
    BLOCKED = "blocked"


class MarkedSend(Struct, frozen=True):
    """A send whose text passed near the line, and to how many recipients."""

    account_id: AccountId
    messages: int
    score: float
    # None without the account's consent to review.
    text: str | None


class SampledText(Struct):
    digest: bytes
    rank: int
    text: str
    score: float
    first_at: datetime
    last_at: datetime
    messages: int


# One writer at a time: a sample stays within its bound, and no text is stored after its account has withdrawn
# its consent.
SQL_LOCK: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira texts near the line'))")


async def lock(connection: Connection) -> None:
    """Let no other transaction write samples until this one ends."""
    await SQL_LOCK.rows(connection)


SQL_COUNT: Final = Statement("""
INSERT INTO near_line_days AS old (account_id, day, messages)
SELECT account_id, day, messages
  FROM unnest(%(account_ids)s::uuid[], %(days)s::date[], %(messages)s::bigint[])
       AS counted (account_id, day, messages)
 ORDER BY account_id, day
    ON CONFLICT (account_id, day) DO UPDATE
   SET messages = old.messages + excluded.messages
""")

SQL_SAMPLE: Final = Statement("""
INSERT INTO near_line_texts AS old (account_id, digest, day, rank, first_at, last_at, messages, score, text)
SELECT account_id, digest, day, rank, first_at, last_at, messages, score, text
  FROM unnest(%(account_ids)s::uuid[], %(digests)s::bytea[], %(days)s::date[], %(ranks)s::bigint[],
              %(first_ats)s::timestamptz[], %(last_ats)s::timestamptz[], %(messages)s::bigint[],
              %(scores)s::double precision[], %(texts)s::text[])
       AS sample (account_id, digest, day, rank, first_at, last_at, messages, score, text)
  JOIN accounts a ON a.id = sample.account_id AND a.review_consent
 ORDER BY account_id, digest
    ON CONFLICT (account_id, digest) DO UPDATE
   SET last_at = excluded.last_at,
       messages = old.messages + excluded.messages,
       score = excluded.score
""")

# A text that an operator has decided about stays.
SQL_TRIM: Final = Statement("""
DELETE FROM near_line_texts
 WHERE (account_id, digest) IN (
       SELECT account_id, digest
         FROM (SELECT account_id, digest, review,
                      row_number() OVER (PARTITION BY account_id, day ORDER BY rank) AS place
                 FROM near_line_texts
                WHERE (account_id, day) IN (SELECT * FROM unnest(%(account_ids)s::uuid[], %(days)s::date[]))
              ) AS sampled
        WHERE place > %(kept_max)s
          AND review IS NULL
       )
""")


async def record(
    connection: Connection,
    counts: Mapping[AccountDay, int],
    samples: Mapping[AccountDay, Sequence[SampledText]],
) -> None:
    """Add messages to their days, and texts to the samples of accounts that consent now."""
    await lock(connection)
    await SQL_COUNT.rows(
        connection,
        account_ids=[account_id for account_id, _ in counts],
        days=[day for _, day in counts],
        messages=list(counts.values()),
    )
    # One statement may not touch a row twice, as around midnight.
    rows = {(key[0], one.digest): (key, one) for key, texts in samples.items() for one in texts}
    if not rows:
        return
    await SQL_SAMPLE.rows(
        connection,
        account_ids=[account_id for (account_id, _), _ in rows.values()],
        digests=[one.digest for _, one in rows.values()],
        days=[day for (_, day), _ in rows.values()],
        ranks=[one.rank for _, one in rows.values()],
        first_ats=[one.first_at for _, one in rows.values()],
        last_ats=[one.last_at for _, one in rows.values()],
        messages=[one.messages for _, one in rows.values()],
        scores=[one.score for _, one in rows.values()],
        texts=[one.text for _, one in rows.values()],
    )
    await SQL_TRIM.rows(
        connection,
        account_ids=[account_id for account_id, _ in samples],
        days=[day for _, day in samples],
        kept_max=SAMPLES_PER_DAY,
    )


SQL_DELETE_TEXTS: Final = Statement("DELETE FROM near_line_texts WHERE account_id = %(account_id)s")


async def delete_texts(connection: Connection, account_id: AccountId) -> None:
    """Delete an account's texts; this transaction has withdrawn its consent."""
    await lock(connection)
    await SQL_DELETE_TEXTS.rows(connection, account_id=account_id)


SQL_DELETE_OLD_TEXTS: Final = Statement("""
DELETE FROM near_line_texts
 WHERE (account_id, digest) IN (
       SELECT account_id, digest
         FROM near_line_texts
        WHERE last_at < statement_timestamp() - %(kept)s::interval
        ORDER BY last_at
        LIMIT %(count_max)s
       )
RETURNING 1
""")

SQL_DELETE_OLD_DAYS: Final = Statement("""
DELETE FROM near_line_days
 WHERE (account_id, day) IN (
       SELECT account_id, day
         FROM near_line_days
        WHERE day < (statement_timestamp() - %(kept)s::interval)::date
        ORDER BY day
        LIMIT %(count_max)s
       )
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete texts and days that are old, up to `count_max` of each, and return how many."""
    await lock(connection)
    texts = await SQL_DELETE_OLD_TEXTS.rows(connection, kept=KEPT, count_max=count_max)
    days = await SQL_DELETE_OLD_DAYS.rows(connection, kept=KEPT, count_max=count_max)
    return len(texts) + len(days)


@dataclass(frozen=True, slots=True)
class NearLineText:
    account_id: AccountId
    business: str
    digest: bytes
    first_at: datetime
    last_at: datetime
    messages: int
    score: float
    text: str
    review: NearLineReview | None


_TEXT: Final = """
SELECT t.account_id, a.business, t.digest, t.first_at, t.last_at, t.messages, t.score, t.text, t.review
  FROM near_line_texts t
  JOIN accounts a ON a.id = t.account_id
"""

# The first condition uses the index; the second continues among rows of the same time.
SQL_LIST_OPEN: Final = Statement(
    _TEXT
    + """
 WHERE t.review IS NULL
   AND t.last_at <= %(before)s
   AND (t.last_at, t.account_id, t.digest) < (%(before)s, %(account_id)s, %(digest)s)
 ORDER BY t.last_at DESC, t.account_id DESC, t.digest DESC
 LIMIT %(count_max)s
"""
)


async def list_open(
    connection: Connection,
    count_max: int,
    before: datetime = _LATEST,
    account_id: AccountId = _NO_ACCOUNT,
    digest: bytes = b"",
) -> Sequence[NearLineText]:
    """Return the page of undecided texts before a given one, the latest first."""
    rows = await SQL_LIST_OPEN.rows(
        connection, before=before, account_id=account_id, digest=digest, count_max=count_max
    )
    return [NearLineText(*row) for row in rows]


SQL_LIST: Final = Statement(
    _TEXT
    + """
 WHERE t.account_id = coalesce(%(account_id)s::uuid, t.account_id)
 ORDER BY t.last_at DESC
 LIMIT %(count_max)s
"""
)


async def list_latest(
    connection: Connection, account_id: AccountId | None, count_max: int
) -> Sequence[NearLineText]:
    """Return the sampled texts of an account, or of all, the latest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [NearLineText(*row) for row in rows]


SQL_LIST_CONSENTED: Final = Statement(
    _TEXT
    + """
 WHERE t.last_at >= %(since)s
   AND a.review_consent
 ORDER BY t.last_at
"""
)


async def list_consented(connection: Connection, since: datetime) -> Sequence[NearLineText]:
    """Return the sampled texts since a moment, of accounts that consent to review."""
    return [NearLineText(*row) for row in await SQL_LIST_CONSENTED.rows(connection, since=since)]


SQL_FIND: Final = Statement(_TEXT + "WHERE t.account_id = %(account_id)s AND t.digest = %(digest)s")


async def find(connection: Connection, account_id: AccountId, digest: bytes) -> NearLineText | None:
    row = await SQL_FIND.row(connection, account_id=account_id, digest=digest)
    return None if row is None else NearLineText(*row)


SQL_MARK_REVIEWED: Final = Statement("""
UPDATE near_line_texts
   SET review = %(review)s, reviewed_at = clock_timestamp()
 WHERE account_id = %(account_id)s
   AND digest = %(digest)s
   AND review IS NULL
RETURNING 1
""")


async def mark_reviewed(
    connection: Connection, account_id: AccountId, digest: bytes, review: NearLineReview
) -> bool:
    """Store an operator's decision; False if there is one, or if the text is no longer kept."""
    marked = await SQL_MARK_REVIEWED.value(connection, account_id=account_id, digest=digest, review=review)
    return marked is not None


@dataclass(frozen=True, slots=True)
class NearLineShare:
    """How many messages of an account had a text near the line in 30 days, and how many it sent."""

    account_id: AccountId
    business: str
    consents: bool
    messages: int
    # At least those near the line: messages are added up when they end.
    sent: int

    @property
    def share(self) -> float:
        return self.messages / self.sent if self.sent else 0.0


_SHARES: Final = """
SELECT a.id AS account_id, a.business, a.review_consent AS consents, near.messages,
       greatest(near.messages, coalesce(ended.messages, 0))::bigint AS sent
  FROM (SELECT account_id, sum(messages)::bigint AS messages
          FROM near_line_days
         WHERE day >= %(first_day)s
           AND account_id = coalesce(%(account_id)s::uuid, account_id)
         GROUP BY account_id) AS near
  JOIN accounts a ON a.id = near.account_id
 CROSS JOIN LATERAL (
       SELECT sum(delivered + undelivered + expired + failed + unconfirmed) AS messages
         FROM traffic
        WHERE (traffic.account_id, day) BETWEEN (near.account_id, %(first_day)s)
                                            AND (near.account_id, 'infinity'::date)
       ) AS ended
"""

SQL_LIST_OFTEN: Final = Statement(f"""
SELECT *
  FROM ({_SHARES}) AS shares
 WHERE messages >= %(messages_min)s
   AND messages >= sent * %(share_min)s::double precision
 ORDER BY messages::double precision / sent DESC, messages DESC
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


async def list_often(connection: Connection, today: date, count_max: int) -> Sequence[NearLineShare]:
    """Return the accounts whose texts are often near the line, the largest share first."""
    rows = await SQL_LIST_OFTEN.rows(
        connection,
        first_day=_first_day(today),
        account_id=None,
        messages_min=OFTEN_MIN,
        share_min=OFTEN_SHARE,
        count_max=count_max,
    )
    return [NearLineShare(*row) for row in rows]


SQL_FIND_SHARE: Final = Statement(_SHARES)


async def find_share(connection: Connection, account_id: AccountId, today: date) -> NearLineShare | None:
    """Return how often an account's texts were near the line; None if never."""
    row = await SQL_FIND_SHARE.row(connection, account_id=account_id, first_day=_first_day(today))
    return None if row is None else NearLineShare(*row)


def _first_day(today: date) -> date:
    return today - KEPT + timedelta(days=1)
