"""Vouchers: issue them, with codes that are shown once, list them, and void one."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.core import money
from tumira.core.days import local_day
from tumira.core.ids import VOUCHER, VoucherId, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.html import paging
from tumira.html.forms import (
    NOT_AN_AMOUNT,
    Amount,
    DayField,
    Form,
    FormId,
    FormRefused,
    NoteField,
    TextField,
    Whole,
    needed,
    new_form_id,
    read_path_id,
    read_query_id,
)
from tumira.html.guards import or_404
from tumira.html.page import write_exact_usd
from tumira.html.redirect import redirect
from tumira.html.tables import download, write_rows
from tumira.identity.manage_accounts import AlreadySubmittedError
from tumira.topups import vouchers
from tumira.topups.issue_vouchers import (
    COUNT_MAX,
    NOTE_MAX,
    Issued,
    check_issue,
    issue_vouchers,
    void_voucher,
)
from tumira.topups.voucher_pins import Issuer, VoucherState, read_pin, write_code
from tumira.topups.vouchers import LAST, Voucher

VOUCHERS: Final = "/operator/vouchers"
PAGE: Final = 50
FORM: Final = "prs_"

DONE: Final = {
    "again": mark(
        "These vouchers were already issued, and their codes are shown only once. If you did not see them,"
        " void the vouchers and issue new ones."
    ),
    "void": mark("The voucher is void. It can no longer be used."),
}
STATES: Final[Mapping[VoucherState, tuple[str, str]]] = {
    VoucherState.UNUSED: (mark("unused"), "completed"),
    VoucherState.USED: (mark("used"), ""),
    VoucherState.VOID: (mark("void"), "failed"),
    VoucherState.EXPIRED: (mark("expired"), "expired"),
}

_COUNT_FAULT: Final = mark("Enter a whole number from 1 to {most}.").format(most=f"{COUNT_MAX:,}")
_NO_VOUCHER: Final = mark("This voucher does not exist")


class IssueForm(Form):
    amount = Amount(needed(NOT_AN_AMOUNT), is_needed=True)
    count = Whole(1, COUNT_MAX, _COUNT_FAULT)
    note = NoteField()
    expires = DayField()

    def check(self) -> Decimal:
        """Return the amount; refuse what cannot be issued."""
        assert self.amount.data is not None
        with self.blame():
            check_issue(self.amount.data, self.count.data, self.note.data, self.expires.data)
        return self.amount.data


class ConfirmIssueForm(IssueForm):
    press = FormId(FORM)


class CodesForm(Form):
    codes = TextField(is_secret=True)


class VoidForm(Form):
    note = NoteField()


def routes(services: Services) -> Sequence[Route]:
    forms = {"/confirm": ask_issue, "": issue, "/download": download_codes}
    return [
        *page(services, VOUCHERS, show_vouchers, forms),
        *page(services, VOUCHERS + "/{id}", show_voucher, {"/void": void}),
    ]


async def show_vouchers(session: OperatorSession, issued: Sequence[Issued] = ()) -> Response:
    """Show the list; `issued` are vouchers whose codes are shown this once."""
    before = read_query_id(session.request, VOUCHER, "before")
    async with session.database.connection() as connection:
        listed = await vouchers.list_latest(
            connection, PAGE + 1, LAST if before is None else VoucherId(before)
        )
    shown, last = paging.cut(listed, PAGE)
    return session.page(
        "vouchers.html.jinja",
        vouchers=shown,
        issued=issued,
        states=STATES,
        last_day=write_last_day,
        note_max=NOTE_MAX,
        is_first=before is None,
        older=None if last is None else f"{VOUCHERS}?before={write_id(VOUCHER, last.id)}",
        filled={"count": "1"},
        done=DONE,
    )


async def ask_issue(session: OperatorSession) -> Response:
    form = await IssueForm.accept(session.request)
    amount, count = form.check(), form.count.data
    return session.page(
        "confirm.html.jinja",
        title=ngettext("Issue {count} voucher?", "Issue {count} vouchers?", count).format(count=count),
        facts={
            _("Amount of each"): write_exact_usd(amount),
            _("Number"): f"{count:,}",
            _("Total"): write_exact_usd(amount * count),
            _("Valid until"): form.expires.typed or _("no end"),
            _("Note"): form.note.data,
        },
        hint=_("The codes are shown once, on the next page. You can download them there."),
        fields={**form.filled, "press": new_form_id(FORM)},
        action=VOUCHERS,
        button=ngettext("Issue {count} voucher", "Issue {count} vouchers", count).format(count=count),
        back=VOUCHERS,
    )


async def issue(session: OperatorSession) -> Response:
    """Issue what was confirmed, once, and show the codes."""
    form = await ConfirmIssueForm.accept(session.request)
    amount = form.check()
    if form.press.data is None:
        raise FormRefused({"": _("This page was open for too long. Fill in the form again.")}, form.filled)
    actor = session.actor
    with form.blame():
        try:
            issued = await issue_vouchers(
                session.database,
                amount,
                form.count.data,
                note=form.note.data,
                last_day=form.expires.data,
                actor=actor.name,
                address=actor.address,
                press=form.press.data,
            )
        except AlreadySubmittedError:
            return redirect(f"{VOUCHERS}?done=again")
    return await show_vouchers(session, issued)


async def download_codes(session: OperatorSession) -> Response:
    """Write the codes that a page shows, which come with the form, with what is known of their vouchers."""
    form = await CodesForm.read(session.request)
    pins = [read_pin(Issuer.OWN, text) for text in form.codes.data.split()[:COUNT_MAX]]
    codes = [pin for pin in pins if pin is not None]
    async with session.database.connection() as connection:
        found = await vouchers.list_by_code(connection, codes)
    rows = [
        ("code", "amount_usd", "valid_until", "voucher_id"),
        *(
            (write_code(code), money.write(amount), write_last_day(expires_at), write_id(VOUCHER, voucher_id))
            for code, voucher_id, amount, expires_at in found
        ),
    ]
    return download(session.request, "vouchers.csv", _once(write_rows(rows)))


async def _once(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


async def _find(session: OperatorSession) -> Voucher:
    voucher_id = VoucherId(read_path_id(session.request, VOUCHER, _(_NO_VOUCHER)))
    async with session.database.connection() as connection:
        return or_404(await vouchers.find(connection, voucher_id), _(_NO_VOUCHER))


async def show_voucher(session: OperatorSession) -> Response:
    voucher = await _find(session)
    return session.page(
        "voucher.html.jinja",
        voucher=voucher,
        state=STATES[voucher.state],
        last_day=write_last_day,
        path=path_of(voucher.id),
        done=DONE,
    )


async def void(session: OperatorSession) -> Response:
    form = await VoidForm.accept(session.request)
    voucher = await _find(session)
    actor = session.actor
    with form.blame("note"):
        await void_voucher(
            session.database, voucher.id, note=form.note.data, actor=actor.name, address=actor.address
        )
    return redirect(f"{path_of(voucher.id)}?done=void")


def write_last_day(expires_at: datetime | None) -> str:
    """Write the last day on which a voucher is valid; it expires at the end of it."""
    return "" if expires_at is None else (local_day(expires_at) - timedelta(days=1)).isoformat()


def path_of(voucher_id: VoucherId) -> str:
    return f"{VOUCHERS}/{write_id(VOUCHER, voucher_id)}"
