"""What the stand-ins of the voucher issuers share: vouchers, and what was really taken from them."""

import base64
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tests.support.topups.servers import listening

# What an issuer keeps back when it takes less than it is asked for.
SPARED_CENTS: Final = 5_000
HTML: Final = b"<html><body>Something went wrong</body></html>"


class Twist(StrEnum):
    """What goes wrong with one voucher."""

    NONE = "none"
    USED = "used"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    # R50 less is taken than was asked for; the rest comes back as a new voucher.
    PARTIAL = "partial"
    # It is taken, and then no answer comes because the line is cut, or none that can be read.
    CUT = "cut"
    ERROR = "error"
    NONSENSE = "nonsense"
    UNSURE = "unsure"
    LOST = "lost"
    # It is taken, and the answer names somebody else's reference.
    MIXED_UP = "mixed up"
    # It is not taken, and the same happens.
    CUT_BEFORE = "cut before"
    ERROR_BEFORE = "error before"
    UNSURE_BEFORE = "unsure before"


BEFORE: Final = (Twist.CUT_BEFORE, Twist.ERROR_BEFORE, Twist.UNSURE_BEFORE)
ONCE: Final = (
    *BEFORE,
    Twist.CUT,
    Twist.ERROR,
    Twist.NONSENSE,
    Twist.UNSURE,
    Twist.MIXED_UP,
)


class Fault(StrEnum):
    UNKNOWN = "unknown"
    USED = "used"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    TOO_SMALL = "too small"
    TOO_LARGE = "too large"


class CutError(Exception):
    pass


@dataclass(slots=True)
class Voucher:
    cents: int
    twist: Twist
    is_spent: bool = False


@dataclass(frozen=True, slots=True)
class Redemption:
    """What was taken from a voucher under a reference, and the voucher for the rest."""

    number: str
    reference: str
    pin: str
    cents: int
    change_pin: str | None = None
    change_cents: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def user(self) -> str:
        """Return the user of HTTP Basic as `user:password`."""
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        return base64.b64decode(value).decode() if kind == "Basic" else ""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


def as_json(status: int, value: Any) -> Answer:
    return Answer(status, json.dumps(value).encode())


@dataclass
class IssuerServer:
    pin_length: int
    port: int = 0
    vouchers: dict[str, Voucher] = field(default_factory=dict)
    redemptions: list[Redemption] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    # Whether a reference that was used gets the answer that it got before.
    replays: bool = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def issue(self, rand: str = "150.00", twist: Twist = Twist.NONE) -> str:
        with self.lock:
            return self._issue(int(Decimal(rand) * 100), twist)

    def taken(self, pin: str) -> Decimal:
        return self._rand(one for one in self.redemptions if one.pin == pin)

    def count(self, ending: str) -> int:
        return sum(call.path.endswith(ending) for call in self.calls)

    @property
    def taken_in_all(self) -> Decimal:
        return self._rand(iter(self.redemptions))

    def answer(self, call: Call) -> Answer:
        raise NotImplementedError

    def _rand(self, redemptions: Iterator[Redemption]) -> Decimal:
        return sum((Decimal(one.cents) / 100 for one in redemptions), Decimal(0))

    def _issue(self, cents: int, twist: Twist) -> str:
        pin = "".join(secrets.choice("123456789") for _ in range(self.pin_length))
        self.vouchers[pin] = Voucher(cents, twist)
        return pin

    def find(self, reference: str) -> Redemption | None:
        return next((one for one in self.redemptions if one.reference == reference), None)

    def fault_of(self, pin: str) -> Fault | None:
        voucher = self.vouchers.get(pin)
        if voucher is None:
            return Fault.UNKNOWN
        if voucher.is_spent or voucher.twist is Twist.USED:
            return Fault.USED
        faults = {Twist.EXPIRED: Fault.EXPIRED, Twist.CANCELLED: Fault.CANCELLED}
        return faults.get(voucher.twist)

    def redeem(
        self,
        reference: str,
        pin: str,
        cents: int,
        tell: Callable[[Redemption | Fault], Answer],
        unsure: Answer,
    ) -> Answer:
        voucher = self.vouchers.get(pin)
        twist = Twist.NONE if voucher is None else voucher.twist
        if voucher is not None and twist in ONCE:
            voucher.twist = Twist.NONE
        if twist in BEFORE:
            return self._twisted(twist, unsure)
        earlier = self.find(reference) if self.replays else None
        outcome = earlier or self._take(reference, pin, cents, twist)
        if isinstance(outcome, Fault) or twist in {Twist.NONE, Twist.PARTIAL}:
            return tell(outcome)
        if twist is Twist.MIXED_UP:
            return tell(
                Redemption(outcome.number, "somebody-elses", pin, outcome.cents, None, 0),
            )
        return self._twisted(twist, unsure)

    def _take(self, reference: str, pin: str, cents: int, twist: Twist) -> Redemption | Fault:
        fault = self.fault_of(pin)
        if fault is not None:
            return fault
        voucher = self.vouchers[pin]
        if not 0 < cents <= voucher.cents:
            return Fault.TOO_LARGE if cents > 0 else Fault.TOO_SMALL
        taken = cents - SPARED_CENTS if twist is Twist.PARTIAL else cents
        rest = voucher.cents - taken
        voucher.is_spent = True
        change = self._issue(rest, Twist.NONE) if rest else None
        number = str(secrets.randbelow(10**12))
        redemption = Redemption(number, reference, pin, taken, change, rest)
        self.redemptions.append(redemption)
        return redemption

    @staticmethod
    def _twisted(twist: Twist, unsure: Answer) -> Answer:
        match twist:
            case Twist.CUT | Twist.CUT_BEFORE:
                raise CutError
            case Twist.NONSENSE:
                return Answer(200, HTML)
            case Twist.UNSURE | Twist.UNSURE_BEFORE:
                return unsure
            case _:
                return Answer(500, HTML)


@contextmanager
def run_issuer(issuer: IssuerServer) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            call = Call(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("content-length", "0"))),
            )
            try:
                with issuer.lock:
                    issuer.calls.append(call)
                    answer = issuer.answer(call)
            except CutError:
                return
            self.send_response(answer.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_arguments: Any) -> None: ...

    with listening(Handler) as issuer.port:
        yield
