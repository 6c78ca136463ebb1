"""A stand-in for Paynow, written from its documentation, that runs on a port of this machine.

    with paynow_server() as paynow:
        ...  # a process with the settings `paynow.environment`, or a provider with `paynow.access`
        payment = paynow.wait_for_payment()      # a start has arrived
        payment.phone, payment.reference, …      # as we sent it
        paynow.move(payment, "Paid")             # the customer acts; a notice goes to our `resulturl`
        assert paynow.charged("top_…") == Decimal("5.00")

Unless a test says otherwise, a payment waits as `Sent` until `move` is called. `outcomes["07712…"]` says what
the owner of a wallet does: `Outcome("Paid")` pays at once, `Outcome(error="…")` is refused at once. A card is
paid on the page of `browserurl`, with one button to pay and one to cancel.

`misbehave(Call.START, Fault.NO_ANSWER)` has the next start done and not answered; see `Fault`. `notices`
holds the notices and their answers; `notice(payment, …)` writes a notice that the test posts itself, and with
`tells` set to False none is sent. The server runs in threads of its own, so tests may block or await.
"""

import hashlib
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import httpx

from tests.support.processes.service import NO_TLS
from tests.support.topups.servers import listening
from tumira.core.settings.payments import Paynow

INTEGRATION_ID: Final = "1201"
# The one that the documentation publishes in its examples.
KEY: Final = "3e9fed89-60e1-4ce5-ab6e-6b1eb2d4f977"
WAIT_S: Final = 40.0
MONEY_IN: Final = frozenset({"Paid", "Awaiting Delivery", "Delivered"})

# One that was credited once is not credited again, so no two payments of a run have the same.
_numbers: Final = itertools.count(20_001)
_HARARE: Final = timedelta(hours=2)
_CODE_LIVES: Final = timedelta(minutes=10)
_METHODS: Final = frozenset({"ecocash", "onemoney", "innbucks"})
_PAGE: Final = """<!doctype html><html lang="en"><title>Paynow</title><h1>Pay US${amount} to the merchant</h1>
<form method="post"><button name="status" value="Paid">Faked success</button>
<button name="status" value="Cancelled">Cancel</button></form></html>"""

Pairs = list[tuple[str, str]]
Found = TypeVar("Found")


class Call(Enum):
    START = auto()
    POLL = auto()
    TRACE = auto()


class Fault(Enum):
    """What goes wrong with an answer; the payment itself is made and continues."""

    # The line is closed without an answer.
    NO_ANSWER = auto()
    # Nothing is answered until `release` is called.
    HANG = auto()
    WRONG_HASH = auto()
    NO_HASH = auto()
    # Ten times as much, and the hash is right.
    CHANGED_AMOUNT = auto()
    # A digit goes over from Paynow's reference to the amount, and the hash stays right.
    SHIFTED_BOUNDARY = auto()
    FOREIGN_REFERENCE = auto()
    FOREIGN_POLL_URL = auto()
    FOREIGN_BROWSER_URL = auto()
    FIELD_TWICE = auto()
    # 200, and the answer says that something went wrong.
    ERROR_INSIDE = auto()
    # A proxy before Paynow answers with a page and 503.
    PAGE = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the owner of a wallet does at once; with an error, Paynow does not start."""

    status: str = "Sent"
    error: str | None = None


@dataclass(slots=True)
class Payment:
    number: int
    guid: str
    fields: Mapping[str, str]
    status: str = "Created"
    # Whether the customer's money was ever taken for it.
    is_charged: bool = False

    @property
    def reference(self) -> str:
        return self.fields["reference"]

    @property
    def amount(self) -> Decimal:
        return Decimal(self.fields["amount"])

    @property
    def phone(self) -> str | None:
        return self.fields.get("phone")


@dataclass(frozen=True, slots=True)
class Notice:
    """What was posted to a `resulturl`, and the status of the answer; 0 where there was none."""

    reference: str
    status: str
    answer: int


@dataclass(slots=True)
class PaynowServer:
    port: int
    payments: list[Payment] = field(default_factory=list)
    # Every call with the fields that came, in their order.
    calls: list[tuple[Call, Pairs]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    tells: bool = True
    mixes_case: bool = False
    adds_fields: bool = False
    code_expires: str | None = None
    # What Paynow calls payments.
    numbers: Iterator[int] = _numbers
    _faults: dict[Call, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _released: threading.Event = field(default_factory=threading.Event)
    _helpers: list[threading.Thread] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def access(self) -> Paynow:
        return Paynow(self.url, INTEGRATION_ID, KEY, None)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TUMIRA_PAYNOW_URL": self.url,
            "TUMIRA_PAYNOW_ID": INTEGRATION_ID,
            "TUMIRA_PAYNOW_KEY": KEY,
        }

    def misbehave(self, call: Call, fault: Fault, times: int = 1) -> None:
        self._released.clear()
        self._faults[call].extend([fault] * times)

    def release(self) -> None:
        self._released.set()

    def of(self, reference: str) -> list[Payment]:
        """Return all payments of a reference; there should never be two."""
        return [payment for payment in self.payments if payment.reference == reference]

    def charged(self, reference: str) -> Decimal:
        """Return what was taken from the customer for a reference, over all payments."""
        return sum((one.amount for one in self.of(reference) if one.is_charged), Decimal(0))

    def count(self, call: Call) -> int:
        return sum(1 for one, _ in self.calls if one is call)

    def wait_for_payment(self, reference: str | None = None) -> Payment:
        def begun() -> Sequence[Payment]:
            return self.payments if reference is None else self.of(reference)

        return self._wait(begun, "nobody began to pay")[-1]

    def wait_for_call(self, call: Call, count: int = 1) -> None:
        self._wait(lambda: self.calls if self.count(call) >= count else (), f"fewer than {count} calls came")

    def wait_for_notice(self, reference: str, status: str) -> Notice:
        def told() -> Sequence[Notice]:
            return [one for one in self.notices if (one.reference, one.status) == (reference, status)]

        return self._wait(told, f"no notice of {status} was told")[-1]

    def _wait(self, found: Callable[[], Sequence[Found]], complaint: str) -> Sequence[Found]:
        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), complaint
            return found()

    def move(self, payment: Payment, status: str) -> None:
        with self._changed:
            payment.status = status
            payment.is_charged = payment.is_charged or status in MONEY_IN
            self._changed.notify_all()
        if self.tells and payment.fields.get("resulturl"):
            self._beside(self._tell, payment, status)

    def notice(self, payment: Payment, status: str | None = None, key: str = KEY, **changes: str) -> bytes:
        """Write a notice of a payment; `changes` are made before it is signed."""
        return urlencode(_signed(self._state(payment, status) | changes, key)).encode()

    def close(self) -> None:
        self.release()
        for helper in self._helpers:
            helper.join()

    def _beside(self, work: Any, *arguments: Any) -> None:
        helper = threading.Thread(target=work, args=arguments, daemon=True)
        self._helpers.append(helper)
        helper.start()

    def _tell(self, payment: Payment, status: str) -> None:
        answer = _post(payment.fields["resulturl"], self.notice(payment, status))
        with self._changed:
            self.notices.append(Notice(payment.reference, status, answer))
            self._changed.notify_all()

    def _state(self, payment: Payment, status: str | None = None) -> dict[str, str]:
        return {
            "reference": payment.reference,
            "paynowreference": str(payment.number),
            "amount": payment.fields["amount"],
            "status": status or payment.status,
            "pollurl": self._poll_url(payment),
        } | ({"paymentchannel": "Ecocash", "token": ""} if self.adds_fields else {})

    def _poll_url(self, payment: Payment) -> str:
        return f"{self.url}/Interface/CheckPayment/?guid={payment.guid}"

    def take(self, call: Call, pairs: Pairs) -> Fault | None:
        with self._changed:
            self.calls.append((call, pairs))
            self._changed.notify_all()
            faults = self._faults[call]
            return faults.popleft() if faults else None

    def begin(self, pairs: Pairs, *, is_express: bool) -> dict[str, str]:
        """Start a payment, or say why not; a repeated reference is another payment, to be counted."""
        fields = dict(pairs)
        wrong = _fault_of(pairs, is_express=is_express)
        if wrong is not None:
            return {"status": "Error", "error": wrong}
        phone = fields.get("phone", "")
        outcome = self.outcomes.get(phone, Outcome())
        if outcome.error is not None:
            return {"status": "Error", "error": outcome.error}
        payment = Payment(next(self.numbers), str(uuid4()), fields, "Sent" if is_express else "Created")
        with self._changed:
            self.payments.append(payment)
            self._changed.notify_all()
        answer = self._begun(payment, is_express=is_express)
        if outcome.status != payment.status:
            self.move(payment, outcome.status)
        return answer

    def _begun(self, payment: Payment, *, is_express: bool) -> dict[str, str]:
        answer = {"status": "Ok"}
        if not is_express:
            answer["browserurl"] = f"{self.url}/Payment/ConfirmPayment/{payment.number}"
        elif payment.fields["method"] == "innbucks":
            until = datetime.now(UTC) + _HARARE + _CODE_LIVES
            answer["authorizationcode"] = f"{payment.number}77"
            answer["authorizationexpires"] = self.code_expires or f"{until.day}-{until:%b-%Y %H:%M}"
        else:
            answer["instructions"] = "Dial *151*2*4# and enter your PIN."
        answer |= {"pollurl": self._poll_url(payment), "paynowreference": str(payment.number)}
        return answer | ({"paymentchannel": "any", "token": ""} if self.adds_fields else {})

    def poll(self, guid: str) -> dict[str, str] | None:
        found = [one for one in self.payments if one.guid == guid]
        return self._state(found[-1]) if found else None

    def trace(self, pairs: Pairs) -> dict[str, str]:
        if _hash(pairs, KEY) != dict(pairs).get("hash"):
            return {"status": "Error", "error": "Trace failed"}
        trace = dict(pairs).get("merchanttrace")
        found = [one for one in self.payments if one.fields.get("merchanttrace") == trace]
        return self._state(found[-1]) if found else {"status": "NotFound"}

    def spoil(self, answer: dict[str, str], fault: Fault | None) -> Pairs:
        match fault:
            case Fault.CHANGED_AMOUNT if "amount" in answer:
                answer = answer | {"amount": f"{Decimal(answer['amount']) * 10:.2f}"}
            case Fault.FOREIGN_REFERENCE:
                answer = answer | {"reference": "top_somebody_elses"}
            case Fault.FOREIGN_POLL_URL:
                answer = answer | {"pollurl": f"http://localhost:{self.port}/Interface/CheckPayment/?guid=1"}
            case Fault.FOREIGN_BROWSER_URL:
                answer = answer | {"browserurl": f"https://paynow.example/Payment/{len(self.payments)}"}
            case Fault.ERROR_INSIDE:
                return [("status", "Error"), ("error", "Something went wrong")]
            case _:
                pass
        signed = _signed(answer, KEY) if answer["status"] != "Error" else list(answer.items())
        return self._in_case(_without_sense(signed, fault))

    def _in_case(self, pairs: Pairs) -> Pairs:
        return [(name.title(), value) for name, value in pairs] if self.mixes_case else pairs

    def dawdle(self, fault: Fault | None) -> None:
        if fault is Fault.HANG:
            self._released.wait(10 * WAIT_S)


def _hash(pairs: Pairs, key: str) -> str:
    text = "".join(value for name, value in pairs if name.lower() != "hash") + key.lower()
    return hashlib.sha512(text.encode()).hexdigest().upper()


def _signed(fields: Mapping[str, str], key: str) -> Pairs:
    pairs = list(fields.items())
    return [*pairs, ("hash", _hash(pairs, key))]


def _without_sense(signed: Pairs, fault: Fault | None) -> Pairs:
    if fault is Fault.WRONG_HASH:
        return [*signed[:-1], ("hash", "0" * 128)]
    if fault is Fault.NO_HASH:
        return signed[:-1]
    if fault is Fault.FIELD_TWICE:
        return [*signed[:-1], ("status", ""), signed[-1]]
    if fault is Fault.SHIFTED_BOUNDARY:
        given = dict(signed)
        reference = given.get("paynowreference", "")
        changes = {"paynowreference": reference[:-1], "amount": reference[-1:] + given.get("amount", "")}
        return [(name, changes.get(name, value)) for name, value in signed]
    return signed


def _fault_of(pairs: Pairs, *, is_express: bool) -> str | None:
    """Return Paynow's error for a start; None where it is right."""
    fields = dict(pairs)
    if fields.get("id") != INTEGRATION_ID:
        return "Invalid id."
    expected = _hash(pairs, KEY)
    if fields.get("hash") != expected:
        return f"Invalid Hash. Hash should start with: {expected[:6]}"
    needed = ["reference", "amount", "returnurl", "resulturl", "status"]
    if is_express:
        needed += ["authemail", "method", "phone"]
    missing = [name for name in needed if not fields.get(name)]
    if missing:
        return f"Missing: {', '.join(missing)}"
    if is_express and fields["method"] not in _METHODS:
        return "This payment method is not enabled"
    if len(fields.get("merchanttrace", "")) > 32:
        return "Merchant trace too long"
    return None


def _post(url: str, body: bytes) -> int:
    try:
        return httpx.post(
            url,
            content=body,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            timeout=10,
            trust_env=False,
            verify=NO_TLS,
        ).status_code
    except httpx.HTTPError:
        return 0


class _Handler(BaseHTTPRequestHandler):
    """Answers one call; each server has a subclass with its own `paynow`."""

    paynow: PaynowServer

    def log_message(self, *_arguments: object) -> None:
        """Write nothing to the terminal."""

    def do_GET(self) -> None:
        payment = self._on_page()
        if payment is None:
            self._answer(HTTPStatus.NOT_FOUND, b"No such page")
        else:
            self._answer(HTTPStatus.OK, _PAGE.format(amount=payment.amount).encode(), kind="text/html")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        pairs = parse_qsl(body, keep_blank_values=True)
        path = urlsplit(self.path).path
        if path in {"/interface/initiatetransaction", "/interface/remotetransaction"}:
            self._start(pairs, is_express=path.endswith("/remotetransaction"))
        elif path == "/interface/trace":
            fault = self.paynow.take(Call.TRACE, pairs)
            self._reply(self.paynow.trace(pairs), fault)
        elif path == "/Interface/CheckPayment/":
            fault = self.paynow.take(Call.POLL, pairs)
            guid = dict(parse_qsl(urlsplit(self.path).query)).get("guid", "")
            self._reply(self.paynow.poll(guid) or {"status": "Error", "error": "No such payment"}, fault)
        elif (payment := self._on_page()) is not None:
            self.paynow.move(payment, dict(pairs).get("status", "Cancelled"))
            self._answer(HTTPStatus.SEE_OTHER, b"", Location=payment.fields["returnurl"])
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"No such page")

    def _on_page(self) -> Payment | None:
        number = urlsplit(self.path).path.removeprefix("/Payment/ConfirmPayment/")
        return next((one for one in self.paynow.payments if str(one.number) == number), None)

    def _start(self, pairs: Pairs, *, is_express: bool) -> None:
        fault = self.paynow.take(Call.START, pairs)
        self._reply(self.paynow.begin(pairs, is_express=is_express), fault)

    def _reply(self, answer: dict[str, str], fault: Fault | None) -> None:
        self.paynow.dawdle(fault)
        if fault is Fault.PAGE:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"<h1>Just a moment</h1>", kind="text/html")
        elif fault is not Fault.NO_ANSWER:
            self._answer(HTTPStatus.OK, urlencode(self.paynow.spoil(answer, fault)).encode())

    def _answer(self, status: HTTPStatus, body: bytes, *, kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def paynow_server() -> Iterator[PaynowServer]:
    class Handler(_Handler):
        pass

    with listening(Handler) as port:
        paynow = Handler.paynow = PaynowServer(port)
        try:
            yield paynow
        finally:
            paynow.close()
