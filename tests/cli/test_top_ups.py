"""Top-ups of every kind are started, followed, resolved and reconciled from the command line."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.support.chaos.mortal import look_once
from tests.support.cli.commands import QuickCli
from tests.support.postgres.databases import complete, execute
from tests.support.processes.ports import free_port
from tests.support.processes.service import Caller, new_caller
from tests.support.topups.chain import CHAIN_ID, USDT, LocalChain, run_chain
from tests.support.topups.paynow_server import Call, Fault, PaynowServer, paynow_server
from tests.support.topups.usdt import watch
from tests.support.topups.voucher_servers import Issuers, run_issuers
from tests.topups.test_addresses import XPUB
from tumira.core.ids import TOP_UP, TopUpId, new_id, read_id, write_id
from tumira.core.settings.payments import read_payments
from tumira.postgres.pool import Database
from tumira.topups.providers.registry import open_providers
from tumira.topups.settle import settle
from tumira.topups.states import Expired, PaymentInDoubt, ProviderAnswer
from tumira.topups.usdt.watcher import ChainWatcher

NOBODY: Final = "acc_" + "0" * 26
WALLET: Final = "+263771200077"
KEYS: Final = (
    "topup_id account_id method provider state amount currency asked paid rate rate_on phone "
    "reference reason problem owed created_at finished_at"
)
COLUMNS: Final = "topup id account id method provider state amount currency asked problem created at"


class TopUpCli(QuickCli):
    def __init__(self, url: str, **access: str) -> None:
        named = {name.removeprefix("TUMIRA_").lower(): value for name, value in access.items()}
        super().__init__(url, **named)
        self.url = url
        self.settings: dict[str, Any] = {"database_url": url} | named

    def open_account(self) -> Caller:
        return complete(new_caller(self.url))

    def start(self, caller: Caller, method: str, *words: str, given: str | None = None) -> Mapping[str, Any]:
        command = ["topup", "start", "--account", caller.account_id, "--method", method, *words, "--json"]
        done = self.run(*command, given=None if given is None else given.encode())
        assert (done.returncode, done.stderr) == (0, ""), done
        started: Mapping[str, Any] = json.loads(done.stdout)
        return started

    def reconcile(self, *words: str) -> tuple[int, Mapping[str, Any]]:
        done = self.run("reconcile", *words, "--json")
        assert all(line.endswith(" …") for line in done.stderr.splitlines()), done.stderr
        return done.returncode, json.loads(done.stdout)

    def state(self, topup_id: str) -> str:
        (row,) = execute(self.url, "SELECT state FROM top_ups WHERE id = $1", read_id(TOP_UP, topup_id))
        return str(row["state"])

    def tell(self, topup_id: str, answer: ProviderAnswer) -> None:
        complete(self._tell(topup_id, answer))

    async def _tell(self, topup_id: str, answer: ProviderAnswer) -> None:
        identifier = read_id(TOP_UP, topup_id)
        assert identifier is not None
        database = Database(self.url, connections_max=1)
        await settle(database, TopUpId(identifier), answer)
        await database.close()

    def work(self) -> None:
        complete(self._work())

    async def _work(self) -> None:
        database = Database(self.url, connections_max=2)
        async with database.connection() as connection:
            await connection.execute("UPDATE top_ups SET due_at = now() WHERE due_at IS NOT NULL")
        access = {f"TUMIRA_{name.upper()}": value for name, value in self.settings.items()}
        providers = open_providers(read_payments(access), "http://127.0.0.1:9")
        await look_once(database, providers)
        for provider in providers.values():
            await provider.close()
        await database.close()


@pytest.fixture(scope="module")
def paynow() -> Iterator[PaynowServer]:
    with paynow_server() as server:
        server.tells = False
        yield server


@pytest.fixture(scope="module")
def issuers() -> Iterator[Issuers]:
    with run_issuers() as made:
        yield made


@pytest.fixture(scope="module")
def cli(url: str, paynow: PaynowServer, issuers: Issuers) -> TopUpCli:
    return TopUpCli(url, **paynow.environment, **issuers.environment)


@pytest.fixture(autouse=True)
def _adds_up(cli: TopUpCli) -> Iterator[None]:
    yield
    assert cli.json("audit")["ok"]


def test_a_wallet_pays_is_credited_and_reversed(cli: TopUpCli, paynow: PaynowServer) -> None:
    caller = cli.open_account()
    started = cli.start(caller, "paynow", "--amount", "12.50", "--phone", "0771200077")
    assert " ".join(started) == KEYS
    account = (caller.account_id, "paynow", "ecocash", "started", None, "USD", "12.50", None)
    assert tuple(started.values())[1:9] == account
    assert started["phone"] == WALLET
    topup_id = started["topup_id"]
    cli.work()
    (payment,) = paynow.of(topup_id)
    shown = cli.json("topup", "show", topup_id)
    assert shown["kept"]["instructions"] == "Dial *151*2*4# and enter your PIN."
    assert "instructions" in cli.text("topup", "show", topup_id)

    paynow.move(payment, "Paid")
    assert cli.json("topup", "look", topup_id)["topup_id"] == topup_id
    cli.work()
    shown = cli.json("topup", "show", topup_id)
    assert (shown["amount"], shown["paid"], shown["reference"]) == ("12.5000", "12.50", str(payment.number))
    code, report = cli.reconcile("--method", "paynow")
    assert (code, report["ok"], report["complete"], report["differences"]) == (0, True, True, [])
    assert report["asked"] == report["top_ups"] == 1

    paynow.move(payment, "Refunded")
    code, report = cli.reconcile("--method", "paynow")
    (difference,) = report["differences"]
    assert (code, report["ok"], difference["kind"]) == (1, False, "taken_back")
    assert (difference["topup_id"], difference["account_id"]) == (topup_id, caller.account_id)
    assert f"`tumira topup look {topup_id}`" in difference["do"]
    cli.text("topup", "look", topup_id)
    cli.work()
    assert cli.state(topup_id) == "reversed"
    assert cli.reconcile("--method", "paynow")[0] == 0


@pytest.mark.long
def test_what_differs_is_listed_with_what_to_do_and_nothing_is_changed(
    cli: TopUpCli, paynow: PaynowServer
) -> None:
    caller = cli.open_account()
    late, doubtful = (cli.start(caller, "paynow", "--amount", "5")["topup_id"] for _ in range(2))
    cli.work()
    (payment,), (other,) = paynow.of(late), paynow.of(doubtful)
    paynow.move(payment, "Paid")
    paynow.move(other, "Cancelled")
    cli.tell(late, Expired())
    cli.tell(doubtful, PaymentInDoubt("no answer", is_last=True))

    code, report = cli.reconcile("--method", "paynow")

    found = {one["topup_id"]: one for one in report["differences"]}
    assert (code, {name: one["kind"] for name, one in found.items()}) == (
        1,
        {late: "not_credited", doubtful: "doubt"},
    )
    assert found[late]["do"].startswith(
        f"`tumira topup resolve {late} --paid 5.00 --reference {payment.number} "
    )
    assert (cli.state(late), cli.state(doubtful)) == ("expired", "doubt")
    printed = cli.run("reconcile", "--method", "paynow")
    assert (printed.returncode, "2 differs." in printed.stdout) == (1, True)
    assert (
        f"NOT CREDITED  {late}  {caller.account_id}\n  ours    expired\n  theirs  5.00 USD paid"
        in printed.stdout
    )
    # No day has anything to do with another.
    assert cli.reconcile("--to", "2026-01-31")[1]["top_ups"] == 0

    reference = ("--reference", str(payment.number), "--note", "On the statement")
    credited = cli.json("topup", "resolve", late, "--paid", "5", *reference)
    assert (credited["state"], credited["amount"]) == ("credited", "5.0000")
    assert "nothing was paid" in cli.text("topup", "resolve", doubtful, "--not-paid", "--note", "Asked them")
    shown = cli.json("topup", "show", doubtful)
    assert (shown["state"], shown["reason"], shown["note"]) == ("failed", "DECIDED", "Asked them")
    assert shown["resolved_by"].startswith("cli:")
    assert cli.reconcile("--method", "paynow")[0] == 0

    paynow.misbehave(Call.POLL, Fault.WRONG_HASH)
    code, report = cli.reconcile("--method", "paynow")
    assert (code, report["ok"], report["complete"]) == (3, True, False)
    (unknown,) = report["could_not_be_asked"]
    assert "hash is wrong" in unknown["problem"]
    unset = TopUpCli(cli.url)
    done = unset.run("reconcile", "--method", "paynow")
    assert done.returncode == 3
    assert "Could not be asked: paynow is not set up here" in done.stdout


@pytest.mark.long
def test_vouchers_are_redeemed_by_a_pin_from_standard_input_that_is_never_shown(
    cli: TopUpCli, issuers: Issuers
) -> None:
    caller = cli.open_account()
    (issued,) = cli.json("voucher", "issue", "--amount", "20")
    own = cli.start(caller, "voucher", "--provider", "own", given=issued["code"] + "\n")
    assert (own["provider"], own["state"], own["amount"]) == ("own", "credited", "20.0000")
    again = cli.start(caller, "voucher", "--provider", "own", given=issued["code"] + "\n")
    assert (again["state"], again["reason"]) == ("failed", "VOUCHER_NOT_VALID")
    pin = issuers.ott.issue("185.00")
    words = ("--provider", "ott", "--phone", "+27821230001")
    ott = cli.start(caller, "voucher", *words, given=f"{pin[:4]} {pin[4:]}")
    bad = cli.start(caller, "voucher", *words, given="000000000000")
    flash = cli.start(
        caller,
        "voucher",
        *("--provider", "onevoucher", "--value", "185"),
        given=issuers.one_voucher.issue("185.00"),
    )
    cli.work()
    assert [cli.state(one["topup_id"]) for one in (ott, bad, flash)] == ["credited", "failed", "credited"]
    shown = cli.run("topup", "show", ott["topup_id"], "--json").stdout
    assert json.loads(shown)["amount"] == "10.0000"
    for secret in (pin, issued["code"]):
        assert secret not in shown + cli.text("topup", "list") + json.dumps(ott) + json.dumps(own)

    code, report = cli.reconcile("--method", "voucher")
    assert (code, report["differences"]) == (0, [])
    assert {one["why"]: one["count"] for one in report["unchecked"]} == {
        "onevoucher cannot be asked what became of a voucher": 1,
        "ott does not say plainly what it refused": 1,
    }
    used = read_id(TOP_UP, own["topup_id"])
    execute(cli.url, "UPDATE vouchers SET amount = 25 WHERE top_up_id = $1", used)
    code, report = cli.reconcile("--method", "voucher")
    (difference,) = report["differences"]
    assert (code, difference["kind"], difference["theirs"]) == (1, "books", "a voucher of 25.00 USD")
    execute(cli.url, "UPDATE vouchers SET amount = 20 WHERE top_up_id = $1", used)


def test_lists_are_narrowed_by_account_state_and_method(cli: TopUpCli) -> None:
    caller = cli.open_account()
    first, second = (cli.start(caller, "paynow", "--amount", amount) for amount in ("5", "6"))
    (issued,) = cli.json("voucher", "issue", "--amount", "7")
    third = cli.start(caller, "voucher", "--provider", "own", given=issued["code"])
    cli.tell(first["topup_id"], Expired())
    mine = ("topup", "list", "--account", caller.account_id)

    assert [one["topup_id"] for one in cli.json(*mine)] == [one["topup_id"] for one in (third, second, first)]
    assert [one["asked"] for one in cli.json(*mine, "--method", "paynow", "--limit", "1")] == ["6.00"]
    assert [one["asked"] for one in cli.json(*mine, "--state", "expired", "--state", "started")] == [
        "6.00",
        "5.00",
    ]
    assert second in cli.json("topup", "list", "--state", "started")
    assert " ".join(cli.text(*mine).splitlines()[0].split()) == COLUMNS
    assert cli.text(*mine, "--state", "reversed") == "No such top-ups.\n"
    cli.tell(second["topup_id"], Expired())


def test_what_cannot_be_done_is_said_in_one_line(cli: TopUpCli) -> None:
    caller = cli.open_account()
    begin = ("topup", "start", "--account", caller.account_id, "--method")
    nothing = write_id(TOP_UP, new_id(1))
    (issued,) = cli.json("voucher", "issue", "--amount", "5")
    own = cli.start(caller, "voucher", "--provider", "own", given=issued["code"])["topup_id"]
    resolve = ("topup", "resolve")
    which = "Say what the provider did"
    cli.check_refused(
        ("Enter an amount in", (*begin, "paynow")),
        ("Enter an amount from US$5", (*begin, "paynow", "--amount", "4.99")),
        ("the wallet's number in Zimbabwe", (*begin, "paynow", "--amount", "5", "--phone", "+27821230001")),
        ("USDT is not set up here", (*begin, "usdt")),
        ("Say who issued the voucher: --provider onevoucher|ott|blu|own.", (*begin, "voucher")),
        ("Enter the code of the voucher", (*begin, "voucher", "--provider", "own")),
        ("no such account", ("topup", "start", "--account", NOBODY, "--method", "paynow", "--amount", "5")),
        ("There is no such top-up", ("topup", "show", nothing)),
        ("Nobody can be asked about it", ("topup", "look", own)),
        (which, (*resolve, nothing, "--note", "n")),
        (which, (*resolve, nothing, "--paid", "5", "--not-paid", "--note", "n")),
        ("Say how you know", (*resolve, nothing, "--paid", "5", "--note", " ")),
        ("There is no such top-up", (*resolve, nothing, "--paid", "5", "--note", "n")),
        ("Operators cannot change that", (*resolve, own, "--not-paid", "--note", "n")),
        ("not after the last", ("reconcile", "--from", "2026-11-02", "--to", "2026-11-01")),
    )
    TopUpCli(cli.url).check_refused(("Paynow is not set up here", (*begin, "paynow", "--amount", "5")))
    cli.check_misused(
        ("is not a top-up's id", ("topup", "show", "top_1")),
        ("'lost'", ("topup", "list", "--state", "lost")),
        ("is not a day", ("reconcile", "--from", "yesterday")),
    )


async def watch_once(cli: TopUpCli) -> None:
    access = {f"TUMIRA_{name.upper()}": value for name, value in cli.settings.items()}
    usdt = read_payments(access).usdt
    assert usdt is not None
    database = Database(cli.url, connections_max=2)
    watcher = ChainWatcher(database, usdt)
    await watch(watcher)
    await watcher.close()
    await database.close()


@pytest.mark.long
def test_usdt_is_started_shown_and_compared_with_the_chain(url: str) -> None:
    with run_chain() as chain:
        compare_with_chain(url, chain)


def compare_with_chain(url: str, chain: LocalChain) -> None:
    access = {
        "USDT_XPUB": XPUB,
        "USDT_CONTRACT": chain.token,
        "USDT_CHAIN_ID": str(CHAIN_ID),
        "USDT_CONFIRMATIONS": "3",
    }
    cli = TopUpCli(url, USDT_RPC_URLS=chain.url, **access)
    caller, other = cli.open_account(), cli.open_account()
    started, waiting = cli.start(caller, "usdt", "--amount", "6"), cli.start(other, "usdt")
    assert (started["state"], started["currency"], started["asked"]) == ("pending", "USDT", None)
    assert started["network"] == "BNB Smart Chain (BEP20)"
    assert started["link"].endswith(f"?address={started['address']}&uint256={6 * USDT}")
    assert waiting["link"].endswith(f"?address={waiting['address']}")
    chain.pay(started["address"], 6 * USDT + 123)
    chain.pay(waiting["address"], USDT)
    chain.mine(30)
    complete(watch_once(cli))
    shown = cli.json("topup", "show", started["topup_id"])
    assert (shown["amount"], shown["paid"]) == ("6.0000", "6.000000000000000123")
    assert [(one["usdt"], one["state"]) for one in shown["deposits"]] == [
        ("6.000000000000000123", "credited")
    ]
    assert "Deposits" in cli.text("topup", "show", started["topup_id"])
    code, report = cli.reconcile("--method", "usdt")
    assert (code, report["differences"], report["could_not_be_asked"], report["deposits"]) == (0, [], [], 2)

    # The one is forgotten here, and of the other we say that it was more.
    forgotten = "DELETE FROM usdt_deposits WHERE state = 'final' RETURNING *"
    (row,) = execute(url, forgotten)
    execute(url, "UPDATE usdt_deposits SET units = units + 1")
    code, report = cli.reconcile("--method", "usdt")
    assert (code, sorted(one["kind"] for one in report["differences"])) == (
        1,
        ["amount", "books", "not_here"],
    )
    (missing,) = [one for one in report["differences"] if one["kind"] == "not_here"]
    assert (missing["account_id"], row["tx_hash"] in missing["theirs"]) == (other.account_id, True)
    execute(url, "UPDATE usdt_deposits SET units = units - 1")

    away = TopUpCli(url, USDT_RPC_URLS=f"http://127.0.0.1:{free_port()}", **access)
    code, report = away.reconcile("--method", "usdt")
    (unknown,) = report["could_not_be_asked"]
    assert (code, "The chain cannot be read" in unknown["problem"]) == (3, True)
    assert TopUpCli(url).reconcile("--method", "usdt")[0] == 3
