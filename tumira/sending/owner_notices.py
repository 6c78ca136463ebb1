"""Notices to owners of accounts: balance, endpoint, refund, sender name, passcodes, scheduled sends.

A notice is a text message from the gateway's own account, which is free, and an e-mail, each if the owner
wants it. Both are stored in the transaction of what they are about, so a crash neither loses nor repeats one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from tumira.accounts import notice_counts
from tumira.accounts import store as accounts
from tumira.core.ids import AccountId, new_id
from tumira.core.translation import _
from tumira.mail import outbox
from tumira.postgres.connection import Connection
from tumira.sending.system_text import send_text

# Of each kind to each account; the last one says that it is the last.
NOTICES_A_DAY: Final = 3
# After a day the owner has seen the dashboard, or things have changed.
MAIL_LIFETIME: Final = timedelta(days=1)


class NoticeKind(StrEnum):
    """What a notice is about; each kind has a limit of its own."""

    LOW_BALANCE = "low balance"
    ENDPOINT = "webhook endpoint"
    REFUND = "refund"
    SENDER_NAME = "sender name"
    PASSCODES = "passcodes"
    SCHEDULE = "scheduled send"


@dataclass(frozen=True, slots=True)
class OwnerNotice:
    """A notice to one owner: what the text message says, and the subject of the e-mail that repeats it."""

    account_id: AccountId
    subject: str
    text: str


async def notify_owners(
    connection: Connection, kind: NoticeKind, notices: Sequence[OwnerNotice], at: datetime
) -> None:
    """Notify owners who can sign in and have not turned notices off.

    Lock order: a count is locked last, after the daily totals, each kind by account.
    """
    contacts = await accounts.list_notice_contacts(connection, [one.account_id for one in notices])
    for notice in sorted(notices, key=lambda one: one.account_id):
        if notice.account_id not in contacts:
            continue
        count = await notice_counts.take(connection, notice.account_id, kind)
        if count > NOTICES_A_DAY:
            continue
        text = notice.text
        if count == NOTICES_A_DAY:
            text += " " + _("No more alerts about this today.")
        for contact in contacts[notice.account_id]:
            if contact.by_text:
                await send_text(connection, contact.phone, f"Tumira: {text}")
            if contact.email is not None:
                settings = _("You can turn alerts off in the dashboard, under Settings.")
                await outbox.insert(
                    connection,
                    new_id(int(at.timestamp() * 1000)),
                    contact.email,
                    notice.subject,
                    f"{text}\n\n{settings}\n",
                    at + MAIL_LIFETIME,
                )


def write_usd(amount: Decimal) -> str:
    """Write an amount as people read it, to the cent."""
    return f"US${amount:,.2f}"
