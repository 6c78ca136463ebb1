"""Reads what is needed to decide a group of calls, and keeps their API keys and Idempotency-Keys.

A statement sees the database as of its own start, which is older than the locks that it takes. So a statement
that locks accounts and reads more than their rows checks that none of them has changed in between.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct, structs

from tumira.accounts.store import LOCKED, LockedAccount, read_locked
from tumira.core.ids import AccountId, KeyId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.networks import list_ported
from tumira.sending.code_guard import RangeCodes, RangeKey

IDEMPOTENCY_HOURS: Final = 72

# A call's account, API key and Idempotency-Key.
AskedCall = tuple[AccountId, KeyId | None, str | None]


class CallFacts(Struct, frozen=True):
    """The scopes of one call's API key, and the earlier answer for its Idempotency-Key."""

    revoked: bool
    scopes: Sequence[str]
    # True when the last recorded use is old enough to record this one.
    use_is_news: bool
    # The fingerprint of the payload, and the answer.
    earlier_answer: tuple[bytes, bytes] | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts that the calls of a group share: the time, versions of cached rows, and turns of the queue."""

    now_us: int
    now: datetime
    tariff_version: int
    policy_version: int
    # By queue and lane, and by account, queue and lane.
    clocks: Mapping[tuple[str, int], int]
    next_turns: Mapping[tuple[AccountId, str, int], int]
    # Numbers that are known to be in another network than their prefix says.
    ported: Mapping[str, str]
    # The passcodes that were sent lately to the ranges that were asked for.
    ranges: Mapping[RangeKey, RangeCodes]
    # The sender names that are in use.
    senders: Mapping[AccountId, Sequence["SenderInUse"]]

    def find_sender(self, account_id: AccountId, country: str, network: str) -> str | None:
        """Return an account's name for a network: its own comes before that of the country."""
        own = self.senders.get(account_id, ())
        found = [one for one in own if one.country == country and network not in one.not_in]
        by_network = {one.network: one.name for one in found}
        return by_network.get(network) or by_network.get("")


class SenderInUse(Struct, frozen=True):
    """A sender name that an account uses in a country, or with a network in this network alone."""

    country: str
    network: str
    name: str
    # The networks in which the operator refused it.
    not_in: Sequence[str]


# One row for each key and one for each earlier answer, then the shared rows: one round trip for everything.
# The sub-selects with OFFSET 0 use the primary key each time, whatever the planner estimates for tables that
# are not analysed yet.
_READ: Final = f"""
SELECT asked.place, k.revoked_at IS NOT NULL AS revoked, coalesce(k.scopes, '{{}}') AS scopes,
       k.last_used_at IS NULL OR k.last_used_at < clock_timestamp() - interval '1 minute' AS use_is_news,
       NULL::bytea AS fingerprint, NULL::bytea AS response,
       NULL::uuid AS account_id, NULL AS country, NULL::smallint AS lane, NULL::bigint AS number,
       NULL::bytea AS codes
  FROM unnest(%(key_ids)s::uuid[]) WITH ORDINALITY AS asked (key_id, place)
  LEFT JOIN LATERAL (
       SELECT revoked_at, scopes, last_used_at FROM api_keys WHERE id = asked.key_id OFFSET 0
       ) k ON true
 UNION ALL
SELECT asked.place, NULL, NULL, NULL, i.fingerprint, i.response, NULL, NULL, NULL, NULL, NULL
  FROM unnest(%(caller_ids)s::uuid[], %(idempotency_keys)s::text[])
       WITH ORDINALITY AS asked (account_id, key, place)
  JOIN LATERAL (
       SELECT fingerprint, response
         FROM idempotency_keys
        WHERE account_id = asked.account_id
          AND key = asked.key
          AND created_at > clock_timestamp() - interval '{IDEMPOTENCY_HOURS} hours'
       OFFSET 0
       ) i ON true
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, version, NULL FROM tariff
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, version, NULL FROM content_policy
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, NULL
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, country, lane, turn, NULL FROM clocks
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, account_id, country, lane, next_turn, NULL
  FROM flows
 WHERE account_id = ANY(%(account_ids)s::uuid[])
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, network, 2, number, NULL
  FROM number_networks
 WHERE number = ANY(%(ported)s::bigint[])
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, asked.account_id, asked.prefix, r.is_lifted, r.stopped_until_us,
       r.codes
  FROM unnest(%(range_account_ids)s::uuid[], %(range_prefixes)s::text[]) AS asked (account_id, prefix)
 CROSS JOIN LATERAL (
       SELECT codes, (lifted_at IS NOT NULL)::integer::smallint AS is_lifted,
              CASE WHEN stopped_until IS NULL THEN 0::bigint
                   ELSE (extract(epoch FROM stopped_until) * 1000000)::bigint END AS stopped_until_us
         FROM code_ranges
        WHERE account_id = asked.account_id
          AND prefix = asked.prefix
       OFFSET 0
       ) r
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, account_id,
       concat_ws('|', country, network, name,
           (SELECT string_agg(decided.network, ',')
              FROM sender_grants decided
             WHERE decided.name_id = granted.name_id
               AND decided.country = granted.country
               AND decided.state IN ('refused', 'revoked'))),
       3, NULL, NULL
  FROM sender_grants granted
 WHERE account_id = ANY(%(account_ids)s::uuid[])
   AND in_use
"""  # noqa: S608 - the one value put in is a constant
_FACTS: Final = 11
# Stand in place of a lane where a row is the network of a number, or a sender name.
_PORTED: Final = 2
_SENDER: Final = 3

SQL_READ: Final = Statement(_READ)

# Accounts are locked in order of id, so that two groups never wait for each other in a circle. Those that are
# locked elsewhere are left out: nobody waits for another call's account.
#
# A row that changed after this statement began is locked in its newest version, but the rest is read as of
# the beginning. Its version differs then from the one seen at the beginning, and the account is left out too.
# That is enough: Idempotency-Keys, turns and passcodes are counted only together with their account's row.
SQL_LOCK_AND_READ: Final = Statement(f"""
WITH held AS MATERIALIZED (
    SELECT {LOCKED}, xmin AS version
      FROM accounts
     WHERE id = ANY(%(account_ids)s::uuid[])
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
)
SELECT facts.*, held.*
  FROM ({_READ}) AS facts
  LEFT JOIN held ON false
 UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, held.*
  FROM held
  JOIN LATERAL (
       SELECT FROM accounts WHERE id = held.id AND xmin = held.version OFFSET 0
       ) seen ON true
""")  # noqa: S608 - the values put in are constants


async def lock_and_read(
    connection: Connection,
    asked: Sequence[AskedCall],
    numbers: Sequence[str] = (),
    ranges: Collection[RangeKey] = (),
) -> tuple[Mapping[AccountId, LockedAccount], Sequence[CallFacts], GroupFacts]:
    """Lock the accounts that no other transaction has locked, and return the facts of each call, in order.

    `numbers` are those whose networks are wanted, as the calls write them.
    """
    rows = await SQL_LOCK_AND_READ.rows(
        connection,
        **_parameters(asked, numbers, ranges),
        account_ids=sorted({account_id for account_id, _, _ in asked}),
    )
    held = [read_locked(row[_FACTS:-1]) for row in rows if row["id"] is not None]
    calls, facts = _read_facts(asked, [row[:_FACTS] for row in rows if row["id"] is None])
    return {account.id: account for account in held}, calls, facts


async def read(
    connection: Connection,
    asked: Sequence[AskedCall],
    account_ids: Sequence[AccountId],
    numbers: Sequence[str] = (),
    ranges: Collection[RangeKey] = (),
) -> tuple[Sequence[CallFacts], GroupFacts]:
    """Return the facts of each call, in order, and of the group; this transaction has locked the accounts."""
    rows = await SQL_READ.rows(connection, **_parameters(asked, numbers, ranges), account_ids=account_ids)
    return _read_facts(asked, rows)


def _parameters(
    asked: Sequence[AskedCall], numbers: Sequence[str], ranges: Collection[RangeKey]
) -> dict[str, Any]:
    keyed = _list_keyed(asked)
    return {
        "ported": list_ported(numbers),
        "key_ids": _list_key_ids(asked),
        "caller_ids": [account_id for account_id, _ in keyed],
        "idempotency_keys": [key for _, key in keyed],
        "range_account_ids": [account_id for account_id, _ in ranges],
        "range_prefixes": [prefix for _, prefix in ranges],
    }


def _list_key_ids(asked: Sequence[AskedCall]) -> Sequence[KeyId | None]:
    """Return the API keys, each once, in the order of their first calls."""
    return list(dict.fromkeys([key_id for _, key_id, _ in asked]))


def _list_keyed(asked: Sequence[AskedCall]) -> Sequence[tuple[AccountId, str]]:
    """Return the Idempotency-Keys, each once, in the order of their first calls."""
    return list(dict.fromkeys([(account_id, key) for account_id, _, key in asked if key is not None]))


def _read_facts(
    asked: Sequence[AskedCall], rows: Iterable[Iterable[Any]]
) -> tuple[Sequence[CallFacts], GroupFacts]:
    keys: dict[int, tuple[bool, Sequence[str], bool]] = {}
    answers: dict[int, tuple[bytes, bytes]] = {}
    clocks: dict[tuple[str, int], int] = {}
    next_turns: dict[tuple[AccountId, str, int], int] = {}
    ported: dict[str, str] = {}
    ranges: dict[RangeKey, RangeCodes] = {}
    senders: dict[AccountId, list[SenderInUse]] = {}
    tariff_version = policy_version = now_us = 0
    for row in rows:
        (
            place,
            revoked,
            scopes,
            use_is_news,
            fingerprint,
            response,
            account_id,
            country,
            lane,
            number,
            codes,
        ) = row
        if response is not None:
            answers[place] = (fingerprint, response)
        elif place is not None:
            keys[place] = (revoked, scopes, use_is_news)
        elif codes is not None:
            ranges[account_id, country] = RangeCodes(codes, number, bool(lane))
        elif account_id is not None and lane == _SENDER:
            senders.setdefault(account_id, []).append(_read_sender(country))
        elif account_id is not None:
            next_turns[account_id, country, lane] = number
        elif country is not None and lane == _PORTED:
            ported[f"+{number}"] = country
        elif country is not None:
            clocks[country, lane] = number
        elif lane is None:
            tariff_version = number
        elif lane:
            policy_version = number
        else:
            now_us = number
    now = datetime.fromtimestamp(now_us / 1_000_000, UTC)
    return _facts_of_calls(asked, keys, answers), GroupFacts(
        now_us, now, tariff_version, policy_version, clocks, next_turns, ported, ranges, senders
    )


def _read_sender(written: str) -> SenderInUse:
    country, network, name, *others = written.split("|")
    return SenderInUse(country, network, name, others[0].split(",") if others else ())


def _facts_of_calls(
    asked: Sequence[AskedCall],
    keys: Mapping[int, tuple[bool, Sequence[str], bool]],
    answers: Mapping[int, tuple[bytes, bytes]],
) -> Sequence[CallFacts]:
    """Return the facts of each call from those of its keys, which are named by their places."""
    by_key = {key_id: CallFacts(*keys[place]) for place, key_id in enumerate(_list_key_ids(asked), start=1)}
    if not answers:
        return [by_key[key_id] for _, key_id, _ in asked]
    by_answer = {keyed: answers.get(place) for place, keyed in enumerate(_list_keyed(asked), start=1)}
    return [
        by_key[key_id]
        if key is None
        else structs.replace(by_key[key_id], earlier_answer=by_answer[account_id, key])
        for account_id, key_id, key in asked
    ]


SQL_LOCK_KEY: Final = Statement(
    "SELECT pg_advisory_xact_lock(hashtextextended(%(account_id)s::uuid::text || %(key)s::text, 0))"
)


async def lock_idempotency_key(connection: Connection, account_id: AccountId, key: str) -> None:
    """Lock a key until commit, waiting for another transaction that has locked it."""
    await SQL_LOCK_KEY.value(connection, account_id=account_id, key=key)


SQL_MARK_USED: Final = Statement("UPDATE api_keys SET last_used_at = clock_timestamp() WHERE id = %(key_id)s")


async def mark_used(connection: Connection, key_ids: Sequence[KeyId]) -> None:
    await SQL_MARK_USED.each(connection, [{"key_id": key_id} for key_id in key_ids])


# statement_timestamp() is constant, so the index finds old rows, and ctid deletes them without a search.
SQL_DELETE_OLD: Final = Statement(f"""
DELETE FROM idempotency_keys
 WHERE ctid = ANY(ARRAY(
       SELECT ctid
         FROM idempotency_keys
        WHERE created_at < statement_timestamp() - interval '{IDEMPOTENCY_HOURS} hours'
        ORDER BY created_at
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")  # noqa: S608 - the one value put in is a constant


async def delete_old_idempotency_keys(connection: Connection, count_max: int) -> int:
    """Delete up to `count_max` answers that are no longer repeated, and return how many there were."""
    return len(await SQL_DELETE_OLD.rows(connection, count_max=count_max))
