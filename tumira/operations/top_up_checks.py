"""Is every top-up credited once, and nothing else? A check is a query for the rows that break a promise."""

from typing import Final

from tumira.operations.check import Check
from tumira.postgres.statement import Statement

TOP_UP_CHECKS: Final = (
    Check(
        "top_up",
        "A credited top-up moved its amount once, one taken back all but what is owed, and others nothing.",
        Statement("""
SELECT t.id AS top_up_id, t.state, t.amount, t.owed, m.times, m.came, m.went
  FROM top_ups t
  LEFT JOIN (
       SELECT top_up_id,
              count(*) FILTER (WHERE to_book = 'customer') AS times,
              coalesce(sum(amount) FILTER (WHERE to_book = 'customer'), 0) AS came,
              coalesce(sum(amount) FILTER (WHERE from_book = 'customer'), 0) AS went
         FROM transfers
        WHERE top_up_id IS NOT NULL
        GROUP BY top_up_id
       ) m ON m.top_up_id = t.id
 WHERE CASE
       WHEN t.state IN ('credited', 'reversed') THEN
            m.times IS DISTINCT FROM 1
            OR m.came <> t.amount
            OR m.went <> CASE t.state WHEN 'reversed' THEN t.amount - t.owed ELSE 0 END
       ELSE m.top_up_id IS NOT NULL
       END
    OR t.owed > 0 AND t.state <> 'reversed'
"""),
    ),
    Check(
        "top_up_transfer",
        "Every transfer of a top-up's book belongs to a top-up of its account, paid in that way.",
        Statement("""
SELECT m.id AS transfer_id, m.account_id, m.from_book, m.to_book, m.amount, m.top_up_id,
       t.account_id AS top_up_account_id, t.method
  FROM transfers m
  LEFT JOIN top_ups t ON t.id = m.top_up_id
 WHERE (m.top_up_id IS NOT NULL OR m.from_book LIKE 'topup:%' OR m.to_book LIKE 'topup:%')
   AND (t.id IS NULL
        OR t.account_id <> m.account_id
        OR 'topup:' || t.method NOT IN (m.from_book, m.to_book))
"""),
    ),
    # What the operator credited on a word of their own needs no voucher and no deposit.
    Check(
        "voucher",
        "Every voucher of ours that was used was credited once at its amount, and nothing was without one.",
        Statement("""
SELECT v.id AS voucher_id, v.amount AS voucher_amount, t.id AS top_up_id, t.state, t.amount
  FROM (SELECT * FROM vouchers WHERE top_up_id IS NOT NULL) v
  FULL JOIN (
       SELECT *
         FROM top_ups
        WHERE method = 'voucher'
          AND provider = 'own'
          AND state IN ('credited', 'reversed')
       ) t ON t.id = v.top_up_id
 WHERE t.id IS NULL
    OR v.id IS NULL AND t.resolved_by IS NULL
    OR v.amount <> t.amount
"""),
    ),
    # Multiplied and not divided, because a division is rounded.
    Check(
        "deposit",
        "The USDT deposits that were credited come to their top-up's amount, and nothing was without them.",
        Statement("""
SELECT coalesce(t.id, d.top_up_id) AS top_up_id, t.state, t.amount, d.units
  FROM (SELECT * FROM top_ups WHERE method = 'usdt' AND state IN ('credited', 'reversed')) t
  FULL JOIN (
       SELECT top_up_id, sum(units) AS units, min(account_id::text) AS first, max(account_id::text) AS last
         FROM usdt_deposits
        WHERE top_up_id IS NOT NULL
        GROUP BY top_up_id
       ) d ON d.top_up_id = t.id
 WHERE t.id IS NULL
    OR d.top_up_id IS NULL AND t.resolved_by IS NULL
    OR trunc(d.units * 0.000000000000000001, 4) <> t.amount
    OR d.first <> t.account_id::text
    OR d.last <> t.account_id::text
"""),
    ),
)
