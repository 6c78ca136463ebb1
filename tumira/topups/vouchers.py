"""The operator's own vouchers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId, TopUpId, VoucherId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.voucher_pins import VoucherState, hash_code, tail_of

LAST: Final = VoucherId(UUID(int=(1 << 128) - 1))


@dataclass(frozen=True, slots=True)
class Voucher:
    """A voucher as the operator sees it; its code is not stored."""

    id: VoucherId
    tail: str
    amount: Decimal
    state: VoucherState
    top_up_id: TopUpId | None
    # Who used it.
    account_id: AccountId | None
    note: str
    expires_at: datetime | None
    issued_by: str
    created_at: datetime
    voided_at: datetime | None
    voided_by: str | None
    void_note: str | None


def _select(rest: str) -> Statement:
    return Statement(f"""
SELECT v.id, v.tail, v.amount,
       CASE WHEN v.top_up_id IS NOT NULL THEN 'used'
            WHEN v.voided_at IS NOT NULL THEN 'void'
            WHEN v.expires_at <= clock_timestamp() THEN 'expired'
            ELSE 'unused'
       END AS state,
       v.note, v.issued_by, v.created_at, v.expires_at, v.voided_at, v.voided_by, v.void_note, v.top_up_id,
       t.account_id
  FROM vouchers v
  LEFT JOIN top_ups t ON t.id = v.top_up_id
{rest}""")  # noqa: S608 - only constants are put in


def _voucher(row: asyncpg.Record) -> Voucher:
    values = dict(row)
    values["state"] = VoucherState(values["state"])
    return Voucher(**values)


SQL_INSERT: Final = Statement("""
INSERT INTO vouchers (id, code_sha256, tail, amount, note, issued_by, expires_at)
SELECT one.id, one.code_sha256, one.tail, %(amount)s, %(note)s, %(issued_by)s, %(expires_at)s
  FROM unnest(%(ids)s::uuid[], %(codes_sha256)s::bytea[], %(tails)s::text[]) AS one (id, code_sha256, tail)
""")


async def insert_many(
    connection: Connection,
    ids: Sequence[VoucherId],
    codes: Sequence[str],
    *,
    amount: Decimal,
    note: str,
    issued_by: str,
    expires_at: datetime | None,
) -> None:
    await SQL_INSERT.rows(
        connection,
        ids=ids,
        codes_sha256=[hash_code(code) for code in codes],
        tails=[tail_of(code) for code in codes],
        amount=amount,
        note=note,
        issued_by=issued_by,
        expires_at=expires_at,
    )


SQL_LIST: Final = _select("WHERE v.id < %(before)s ORDER BY v.id DESC LIMIT %(count_max)s")


async def list_latest(connection: Connection, count_max: int, before: VoucherId = LAST) -> Sequence[Voucher]:
    rows = await SQL_LIST.rows(connection, before=before, count_max=count_max)
    return [_voucher(row) for row in rows]


SQL_LIST_BY_HASH: Final = Statement("""
SELECT code_sha256, id, amount, expires_at
  FROM vouchers
 WHERE code_sha256 = ANY(%(codes_sha256)s::bytea[])
 ORDER BY id
""")


async def list_by_code(
    connection: Connection, codes: Sequence[str]
) -> Sequence[tuple[str, VoucherId, Decimal, datetime | None]]:
    """Return those of the codes that belong to vouchers, each with its voucher, in the order of issue."""
    by_hash = {hash_code(code): code for code in codes}
    rows = await SQL_LIST_BY_HASH.rows(connection, codes_sha256=list(by_hash))
    return [(by_hash[row["code_sha256"]], row["id"], row["amount"], row["expires_at"]) for row in rows]


SQL_FIND: Final = _select("WHERE v.id = %(voucher_id)s")


async def find(connection: Connection, voucher_id: VoucherId) -> Voucher | None:
    row = await SQL_FIND.row(connection, voucher_id=voucher_id)
    return None if row is None else _voucher(row)


SQL_ANY: Final = Statement("SELECT EXISTS (SELECT FROM vouchers)")


async def have_any(connection: Connection) -> bool:
    return bool(await SQL_ANY.value(connection))


# Locked until commit: of concurrent redemptions the first finds it unused, the others find it used.
SQL_LOCK_BY_CODE: Final = _select("WHERE v.code_sha256 = %(code_sha256)s FOR NO KEY UPDATE OF v")


async def lock_by_code(connection: Connection, code_sha256: bytes) -> Voucher | None:
    """Lock the voucher with this code until the commit; None for an unknown code."""
    row = await SQL_LOCK_BY_CODE.row(connection, code_sha256=code_sha256)
    return None if row is None else _voucher(row)


SQL_MARK_USED: Final = Statement("""
UPDATE vouchers
   SET top_up_id = %(top_up_id)s
 WHERE id = %(voucher_id)s
   AND top_up_id IS NULL
   AND voided_at IS NULL
RETURNING 1
""")


async def mark_used(connection: Connection, voucher_id: VoucherId, top_up_id: TopUpId) -> bool:
    """Record which top-up used a voucher; False where it was used or voided before."""
    return bool(await SQL_MARK_USED.rows(connection, voucher_id=voucher_id, top_up_id=top_up_id))


SQL_MARK_VOID: Final = Statement("""
UPDATE vouchers
   SET voided_at = clock_timestamp(),
       voided_by = %(voided_by)s,
       void_note = %(note)s
 WHERE id = %(voucher_id)s
   AND top_up_id IS NULL
   AND voided_at IS NULL
RETURNING 1
""")


async def mark_void(connection: Connection, voucher_id: VoucherId, *, note: str, voided_by: str) -> bool:
    """Void a voucher; False where it was used or voided before."""
    return bool(await SQL_MARK_VOID.rows(connection, voucher_id=voucher_id, note=note, voided_by=voided_by))


SQL_FIND_WAIT: Final = Statement("""
SELECT created_at + %(window)s::interval - clock_timestamp()
  FROM top_ups
 WHERE account_id = %(account_id)s
   AND method = 'voucher'
   AND state IN ('started', 'pending', 'doubt', 'failed')
   AND created_at > clock_timestamp() - %(window)s::interval
 ORDER BY created_at DESC
OFFSET %(tries_max)s - 1
 LIMIT 1
""")


async def find_wait(
    connection: Connection, account_id: AccountId, tries_max: int, window: timedelta
) -> timedelta | None:
    """Return how long an account must wait before its next voucher; None where it need not."""
    wait = await SQL_FIND_WAIT.value(connection, account_id=account_id, tries_max=tries_max, window=window)
    assert wait is None or isinstance(wait, timedelta)
    return wait


SQL_LIST_AMOUNTS: Final = Statement("""
SELECT top_up_id, amount
  FROM vouchers
 WHERE top_up_id = ANY(%(top_up_ids)s::uuid[])
""")


async def list_amounts(connection: Connection, top_up_ids: Sequence[TopUpId]) -> Mapping[TopUpId, Decimal]:
    """Return the amounts of the own vouchers that top-ups used."""
    rows = await SQL_LIST_AMOUNTS.rows(connection, top_up_ids=top_up_ids)
    return {row["top_up_id"]: row["amount"] for row in rows}
