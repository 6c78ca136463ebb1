"""The `tumira topup` commands."""

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import click

from tumira.cli.output import (
    ACCOUNT_ID,
    AmountType,
    IdType,
    actor,
    choice,
    database_command,
    load_settings,
    show,
    show_all,
    wants_json,
)
from tumira.core.errors import OperatorError
from tumira.core.ids import TOP_UP, AccountId, TopUpId
from tumira.core.settings.payments import Payments
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.reconcile_rules import write_exact
from tumira.topups.settle import can_poll, poll_again, resolve
from tumira.topups.start import start_paynow, start_usdt, start_voucher
from tumira.topups.states import Method, TopUp, TopUpState
from tumira.topups.usdt import deposits
from tumira.topups.usdt.addresses import network_name, payment_link, with_checksum
from tumira.topups.usdt.deposit_rules import Deposit
from tumira.topups.voucher_pins import TYPED_MAX, Issuer

TOP_UP_ID: Final = IdType(TOP_UP, "a top-up", "`tumira topup list` shows them.")
LIST_MAX: Final = 10_000
PAGE: Final = 500
DEPOSITS_SHOWN: Final = 100


@click.group()
def topup() -> None:
    """Start, list, show, poll and resolve top-ups."""


@topup.command("start")
@click.option("--account", "account_id", type=ACCOUNT_ID, required=True)
@click.option("--method", type=choice(Method), required=True)
@click.option("--amount", type=AmountType(), help="USD, for paynow.")
@click.option(
    "--phone", help="The wallet's number, or the number for a voucher's change; by default the account's own."
)
@click.option(
    "--wallet", type=choice(Wallet), default=Wallet.ECOCASH.value, show_default=True, help="For paynow."
)
@click.option("--provider", type=choice(Issuer), help="Who issued the voucher.")
@click.option(
    "--value", type=AmountType(), help="What the voucher is worth, in rand, where its issuer does not say."
)
@database_command
async def topup_start(
    database: Database,
    *,
    account_id: AccountId,
    method: str,
    amount: Decimal | None,
    phone: str | None,
    wallet: str,
    provider: str | None,
    value: Decimal | None,
) -> None:
    """Start a top-up of an account; the PIN of a voucher is read from standard input."""
    payments = load_settings().payments
    where: Mapping[str, Any] = {}
    match Method(method):
        case Method.PAYNOW:
            top_up_id = await start_paynow(database, payments, account_id, Wallet(wallet), amount, phone)
        case Method.USDT:
            top_up_id, where = await _start_usdt(database, payments, account_id, amount)
        case Method.VOUCHER:
            if provider is None:
                raise OperatorError(f"Say who issued the voucher: --provider {'|'.join(Issuer)}.")
            top_up_id = await start_voucher(
                database, payments, account_id, Issuer(provider), _read_pin(), value=value, phone=phone
            )
    started = await _find(database, top_up_id)
    show({**_top_up(started), **where}, title="Top-up started.")


async def _start_usdt(
    database: Database, payments: Payments, account_id: AccountId, amount: Decimal | None
) -> tuple[TopUpId, Mapping[str, Any]]:
    given = await start_usdt(database, payments, account_id)
    assert payments.usdt is not None, "nobody is given an address without"
    contract, chain_id = payments.usdt.contract, payments.usdt.chain_id
    where = {
        "network": network_name(chain_id),
        "address": with_checksum(given.address),
        "link": payment_link(contract, chain_id, given.address, amount),
    }
    return given.top_up_id, where


def _read_pin() -> str:
    """Read a PIN from a hidden prompt or from standard input, so that no process list shows it."""
    if sys.stdin.isatty():
        typed = click.prompt("PIN", hide_input=True, err=True)
    else:
        typed = sys.stdin.readline(TYPED_MAX + 1)
    return str(typed).strip()


@topup.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only this account's.")
@click.option("--state", "states", type=choice(TopUpState), multiple=True, help="Can be repeated.")
@click.option("--method", "methods", type=choice(Method), multiple=True, help="Can be repeated.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=100, show_default=True)
@database_command
async def topup_list(
    database: Database,
    *,
    account_id: AccountId | None,
    states: Sequence[str],
    methods: Sequence[str],
    limit: int,
) -> None:
    """List top-ups, newest first; `--state doubt` shows those that you have to decide."""
    wanted = [TopUpState(one) for one in states] or list(TopUpState)
    ways = [Method(one) for one in methods] or list(Method)
    if account_id is None:
        async with database.connection() as connection:
            found = await top_ups.list_latest(connection, limit, states=wanted, methods=ways)
    else:
        found = await _list_of_account(database, account_id, wanted, ways, limit)
    show_all(
        [_top_up(one) for one in found],
        empty="No such top-ups.",
        columns="topup_id account_id method provider state amount currency asked problem created_at",
    )


async def _list_of_account(
    database: Database,
    account_id: AccountId,
    states: Sequence[TopUpState],
    methods: Sequence[Method],
    limit: int,
) -> Sequence[TopUp]:
    found: list[TopUp] = []
    before = top_ups.LAST
    while len(found) < limit:
        async with database.connection() as connection:
            page = await top_ups.list_of_account(connection, account_id, PAGE, before)
        if not page:
            break
        found += [one for one in page if one.state in states and one.method in methods]
        before = page[-1].id
    return found[:limit]


@topup.command("show")
@click.argument("top_up_id", type=TOP_UP_ID)
@database_command
async def topup_show(database: Database, *, top_up_id: TopUpId) -> None:
    """Show a top-up: its state, what its provider gave us, and the deposits that it credited."""
    found = await _find(database, top_up_id)
    async with database.connection() as connection:
        credited = await deposits.list_of_top_up(connection, top_up_id, DEPOSITS_SHOWN)
    shown = {
        **_top_up(found),
        "note": found.note,
        "resolved_by": found.resolved_by,
        "asked_at": found.asked_at,
        "due_at": found.due_at,
        "tries": found.tries,
        "has_change": found.sealed_change is not None,
    }
    rows = [_deposit(one) for one in credited]
    if wants_json():
        show({**shown, "kept": found.kept, "deposits": rows})
        return
    show({**shown, **found.kept})
    if rows:
        click.echo("\nDeposits")
        show_all(rows, columns="tx_hash log_index usdt block_number state seen_at")


@topup.command("look")
@click.argument("top_up_id", type=TOP_UP_ID)
@database_command
async def topup_look(database: Database, *, top_up_id: TopUpId) -> None:
    """Have a worker poll the provider of a top-up and apply its answer."""
    found = await _find(database, top_up_id)
    if not can_poll(found):
        raise OperatorError(
            "Nobody can be asked about it; `tumira reconcile` compares it with the chain or our own vouchers."
        )
    await poll_again(database, top_up_id, actor())
    show(
        _top_up(await _find(database, top_up_id)),
        title="A worker polls the provider within a second or two.",
    )


@topup.command("resolve")
@click.argument("top_up_id", type=TOP_UP_ID)
@click.option("--paid", type=AmountType(), help="What the provider took, in the top-up's currency.")
@click.option("--not-paid", is_flag=True, help="The provider took nothing.")
@click.option("--reference", help="The provider's reference.")
@click.option("--note", required=True, help="How you know.")
@database_command
async def topup_resolve(
    database: Database,
    *,
    top_up_id: TopUpId,
    paid: Decimal | None,
    not_paid: bool,
    reference: str | None,
    note: str,
) -> None:
    """Decide a top-up that is in doubt, or credit a top-up that was paid after it had ended."""
    if (paid is not None) == not_paid:
        raise OperatorError("Say what the provider did: --paid AMOUNT, or --not-paid.")
    if not note.strip():
        raise OperatorError("Say how you know, as in --note 'On the statement of Monday'.")
    settled = await resolve(
        database,
        top_up_id,
        paid=paid,
        provider_reference=reference,
        note=note.strip(),
        actor=actor(),
    )
    title = "Credited." if settled.top_up.state is TopUpState.CREDITED else "Noted that nothing was paid."
    show(_top_up(settled.top_up), title=title)


async def _find(database: Database, top_up_id: TopUpId) -> TopUp:
    async with database.connection() as connection:
        found = await top_ups.find_any(connection, top_up_id)
    if found is None:
        raise OperatorError("There is no such top-up; `tumira topup list` shows them.")
    return found


def _top_up(found: TopUp) -> Mapping[str, Any]:
    return {
        "topup_id": found.id,
        "account_id": found.account_id,
        "method": found.method,
        "provider": found.provider,
        "state": found.state,
        "amount": found.amount,
        "currency": found.currency,
        "asked": None if found.asked is None else write_exact(found.asked),
        "paid": None if found.paid is None else write_exact(found.paid),
        "rate": write_exact(found.rate),
        "rate_on": None if found.rate_on is None else found.rate_on.isoformat(),
        "phone": found.phone,
        "reference": found.provider_reference,
        "reason": found.reason,
        "problem": found.problem,
        "owed": found.owed,
        "created_at": found.created_at,
        "finished_at": found.finished_at,
    }


def _deposit(found: Deposit) -> Mapping[str, Any]:
    return {
        "tx_hash": found.tx_hash,
        "log_index": found.facts.log_index,
        "address": with_checksum(found.facts.address),
        "sender": found.facts.sender,
        "usdt": write_exact(found.amount),
        "block_number": found.facts.block_number,
        "state": found.state,
        "seen_at": found.seen_at,
    }
