"""Checks of the audit that money adds up: balances, holds, top-ups, vouchers, deposits and totals by day."""

from dataclasses import dataclass
from typing import Final

from tumira.core.translation import mark
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Check:
    """A promise in words, and a query that finds what breaks it."""

    name: str
    promise: str
    statement: Statement


BALANCE_CHECK: Final = Check(
    "balance",
    mark("Every balance is the sum of the account's transfers."),
    Statement("""
SELECT a.id AS account_id, a.balance, coalesce(t.total, 0) AS transfers
  FROM accounts a
  LEFT JOIN (
       SELECT account_id, sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END) AS total
         FROM transfers
        GROUP BY account_id
       ) t ON t.account_id = a.id
 WHERE a.balance <> coalesce(t.total, 0)
    OR a.balance < 0
"""),
)

HELD_CHECKS: Final = (
    Check(
        "held",
        mark("The money held for a scheduled send is the sum of its transfers, and is held for it alone."),
        # Of a schedule that is deleted nothing is held.
        Statement("""
SELECT coalesce(s.id, t.schedule_id) AS schedule_id, s.state, s.cost, s.held,
       coalesce(t.total, 0) AS transfers
  FROM schedules s
  FULL JOIN (
       SELECT schedule_id, sum(CASE WHEN to_book = 'held' THEN amount ELSE -amount END) AS total,
              min(account_id::text) AS first, max(account_id::text) AS last
         FROM transfers
        WHERE schedule_id IS NOT NULL
        GROUP BY schedule_id
       ) t ON t.schedule_id = s.id
 WHERE coalesce(s.held, 0) <> coalesce(t.total, 0)
    OR t.first <> t.last
    OR t.first <> s.account_id::text
    OR s.state = 'waiting' AND s.held <> s.cost
    OR s.state <> 'waiting' AND s.held > 0 AND NOT EXISTS (
           SELECT FROM uploads u WHERE u.id = s.upload_id AND u.state = 'sending')
"""),
    ),
    Check(
        "schedule",
        mark("A scheduled send became one batch of its account, or the file that it names is sent."),
        Statement("""
SELECT s.id AS schedule_id, s.state, s.batch_id, s.upload_id, b.account_id AS batch_account_id
  FROM schedules s
  LEFT JOIN batches b ON b.id = s.batch_id
 WHERE s.state = 'sent' AND s.upload_id IS NULL AND s.batch_id IS NULL
    OR s.state <> 'sent' AND s.batch_id IS NOT NULL
    OR s.batch_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
       AND (b.account_id IS DISTINCT FROM s.account_id OR b.total_cost <> s.sent_cost)
    OR s.state = 'waiting' AND s.upload_id IS NOT NULL AND NOT EXISTS (
           SELECT FROM uploads u WHERE u.id = s.upload_id AND u.state = 'scheduled')
"""),
    ),
)

TOP_UP_CHECKS: Final = (
    Check(
        "top_up",
        mark(
            "A credited top-up was credited once, a reversed one taken back up to what is owed, others never."
        ),
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
        mark("Every top-up transfer belongs to a top-up of the same account and payment method."),
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
        mark("Every used voucher was credited once, for its amount; no credit is without its voucher."),
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
        mark(
            "USDT deposits add up to the amount of their top-up; there is no USDT credit without a deposit."
        ),
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

PAPER_CHECKS: Final = (
    Check(
        "paper_number",
        mark("The numbers of invoices, receipts and credit notes have no gap."),
        Statement("""
SELECT series, s.last, p.papers, p.first, p.highest
  FROM paper_series s
  FULL JOIN (
       SELECT series, count(*) AS papers, min(number) AS first, max(number) AS highest
         FROM papers
        WHERE series <> ''
        GROUP BY series
       ) p USING (series)
 WHERE s.last IS DISTINCT FROM coalesce(p.papers, 0)
    OR p.first <> 1
    OR p.highest <> p.papers
"""),
    ),
    Check(
        "paper",
        mark("Every top-up has one paper, or will have it; a paper is for the amount of its transfer."),
        Statement("""
SELECT t.id AS transfer_id, t.account_id, t.amount, p.series, p.number, p.total
  FROM (SELECT * FROM transfers WHERE batch_id IS NULL) t
  LEFT JOIN papers p ON p.transfer_id = t.id
  LEFT JOIN papers_due d ON d.transfer_id = t.id
 WHERE p.total <> t.amount
    OR p.account_id <> t.account_id
    OR p.number <> t.id AND p.series = ''
    OR p.transfer_id IS NOT NULL AND d.transfer_id IS NOT NULL
    OR p.transfer_id IS NULL AND d.transfer_id IS NULL AND t.from_book LIKE 'topup:%'
"""),
    ),
    # Each transfer is read once, with the statement of its month.
    Check(
        "statement",
        mark(
            "A statement's movements make the difference of its balances, and it begins where the last ended."
        ),
        Statement("""
SELECT account_id, month, opening, closing, movements, moved, counted
  FROM (SELECT account_id, month, first_id, opening, closing, movements,
               lag(closing, 1, 0) OVER months AS closing_before,
               lag(next_id, 1, 0) OVER months AS next_id_before,
               moved, counted
          FROM statements s
         CROSS JOIN LATERAL (
               SELECT coalesce(sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END), 0) AS moved,
                      count(*) AS counted
                 FROM transfers
                WHERE account_id = s.account_id
                  AND id >= s.first_id
                  AND id < s.next_id
               ) AS near
        WINDOW months AS (PARTITION BY account_id ORDER BY month)) AS each_month
 WHERE opening + moved <> closing
    OR movements <> counted
    OR opening <> closing_before
    OR first_id <> next_id_before
"""),
    ),
)

# What the money page shows. Newer transfers are not added up yet.
MONEY_BY_DAY_CHECK: Final = Check(
    "money_by_day",
    mark("The totals of a day are the sums of its transfers."),
    Statement("""
SELECT day, from_book, to_book, kept.transfers, kept.amount, summed.amount AS transfers_amount
  FROM money_days kept
  FULL JOIN (
       SELECT (created_at AT TIME ZONE 'UTC' + interval '2 hours')::date AS day, from_book, to_book,
              count(*) AS transfers, sum(amount) AS amount
         FROM transfers
        WHERE id <= (SELECT transfer_id FROM money_cursor)
        GROUP BY 1, 2, 3
       ) summed USING (day, from_book, to_book)
 WHERE kept.amount IS DISTINCT FROM summed.amount
    OR kept.transfers IS DISTINCT FROM summed.transfers
"""),
)
