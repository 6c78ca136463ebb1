"""What the stand-ins of providers share: texts that were really taken, misbehaviours by name, and callbacks.

    with run_carrier(BulkSmsServer()) as provider:
        provider.misbehave(Misbehaviour.ANSWER_LOST, times=1)
        ...  # a carrier with provider.url, provider.settings and provider.secrets
        assert provider.texts == {reference: 1}

A provider is written from the fact sheet, not from our profile. It reports to the callback URL that a message
names, or else to `callback_url`, as if that had been entered in its portal.
"""

import base64
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from tests.support.processes.service import NO_TLS
from tests.support.topups.servers import listening

HTML: Final = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
TELL_TRIES: Final = 40
TELL_AGAIN_S: Final = 0.25


class Misbehaviour(StrEnum):
    NONE = "none"
    # The answer comes after `slow_s`, or when `released` is set.
    SLOW = "slow"
    # Not taken.
    THROTTLED = "throttled"
    ERROR_5XX = "error_5xx"
    REDIRECT = "redirect"
    EXPIRED_TOKEN = "expired_token"
    NO_CREDIT = "no_credit"
    BAD_CREDENTIALS = "bad_credentials"
    REFUSED_NUMBER = "refused_number"
    # Taken, and then no answer that could be read.
    HTML_5XX_AFTER_TAKING = "html_5xx_after_taking"
    ANSWER_LOST = "answer_lost"
    ANSWER_CUT = "answer_cut"
    GARBAGE = "garbage"
    # Taken and answered, and the callbacks are odd.
    CALLBACK_BEFORE_ANSWER = "callback_before_answer"
    CALLBACK_TWICE = "callback_twice"
    CALLBACK_OUT_OF_ORDER = "callback_out_of_order"
    FORGED_CALLBACK = "forged_callback"
    UNKNOWN_STATUS = "unknown_status"


TAKEN_UNTOLD: Final = (
    Misbehaviour.HTML_5XX_AFTER_TAKING,
    Misbehaviour.ANSWER_LOST,
    Misbehaviour.ANSWER_CUT,
    Misbehaviour.GARBAGE,
)

FINAL: Final = ("delivered", "undelivered", "expired", "rejected")
ENROUTE: Final = "enroute"
# A word that no documentation has.
MYSTERY: Final = "mystery"


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
    def json(self) -> Any:
        assert self.headers.get("content-type") == "application/json"
        return json.loads(self.body)

    @property
    def user(self) -> str:
        """Return the user of HTTP Basic as `user:password`."""
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        return base64.b64decode(value).decode() if kind == "Basic" else ""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    # How much of the body is sent before the connection ends; None for all of it.
    octets: int | None = None


@dataclass(frozen=True, slots=True)
class Callback:
    """A request of the provider to us."""

    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    query: str = ""


def as_json(status: int, value: Any, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), headers=headers)


def json_callback(value: Any, **headers: str) -> Callback:
    return Callback(json.dumps(value).encode(), {"content-type": "application/json", **headers})


def form_callback(fields: Mapping[str, str], **headers: str) -> Callback:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    return Callback(urlencode(fields).encode(), {**kind, **headers})


@dataclass(slots=True)
class SentText:
    """A text that the provider took, and its state."""

    recipient: str
    text: str
    sender: str = ""
    reference: str = ""
    callback_url: str = ""
    unicode: bool = False
    validity: int | None = None
    parts: int = 1
    state: str = ENROUTE
    id: str = field(default_factory=lambda: secrets.token_hex(12))


class CutError(Exception):
    """Ends a connection without an answer."""


class CarrierServer:
    """A provider; `outcome` is the final state of its texts, and `tells` whether it reports by callback."""

    profile: ClassVar[str]
    settings: ClassVar[Mapping[str, str]]
    secrets: ClassVar[Mapping[str, str]]
    # The path of the base URL.
    base: ClassVar[str] = ""
    # The profile itself, where it is an operator's own.
    profile_text: ClassVar[str | None] = None

    def __init__(self) -> None:
        self.port = 0
        self.outcome = "delivered"
        self.tells = True
        self.callback_url = ""
        self.slow_s = 5.0
        self.released = threading.Event()
        self.sent: list[SentText] = []
        self.calls: list[Call] = []
        # The state and HTTP status of each callback that was answered.
        self.told: list[tuple[str, int]] = []
        # Texts by the key under which the provider recognises a repeated call.
        self._by_key: dict[str, SentText] = {}
        self._behaviour = Misbehaviour.NONE
        self._times: int | None = None
        self._lock = threading.Lock()
        self._tellers = ThreadPoolExecutor(4)
        self._is_closing = False

    # What a provider defines.

    def answer(self, call: Call) -> Answer:
        raise NotImplementedError

    def accepted(self, text: SentText) -> Answer:
        raise NotImplementedError

    def refused_number(self, text: SentText) -> Answer:
        raise NotImplementedError

    def no_credit(self) -> Answer:
        raise NotImplementedError

    def bad_credentials(self) -> Answer:
        raise NotImplementedError

    def failed(self) -> Answer:
        """Answer that the provider failed, in its own words."""
        raise NotImplementedError

    def throttled(self) -> Answer:
        """Answer as most do; the fact sheet names no other way for this provider."""
        return Answer(429, b"Too Many Requests", "text/plain", {"Retry-After": "1"})

    def expired_token(self) -> Answer:
        """Answer as to a bad password: this provider has no tokens."""
        return self.bad_credentials()

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback | None:
        """Write a callback; a forged one lacks the proof, or names a message that is not ours."""
        raise NotImplementedError

    def reply(self, number: str, to: str, text: str) -> Callback:
        raise NotImplementedError

    # What tests use.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base}"

    @property
    def texts(self) -> Counter[str]:
        """How many texts went to handsets, by reference."""
        return Counter(one.reference for one in self.sent)

    @property
    def texts_by_recipient(self) -> Counter[tuple[str, str]]:
        return Counter((one.recipient, one.text) for one in self.sent)

    def misbehave(self, behaviour: Misbehaviour, times: int | None = None) -> None:
        """Misbehave with the next submits, or with all of them."""
        with self._lock:
            self._behaviour, self._times = behaviour, times

    def find(self, *, id: str = "", reference: str = "") -> SentText | None:  # noqa: A002 - the provider's word
        return next(
            (one for one in self.sent if (id and one.id == id) or (reference and one.reference == reference)),
            None,
        )

    def tell(self, text: SentText, state: str, *, forged: bool = False) -> int:
        """Report the state of a text, again and again until it is accepted, and return the HTTP status."""
        written = self.report(text, state, forged=forged)
        address = text.callback_url or self.callback_url
        if written is None or not address:
            return 0
        status = self.post(address, written, tries=1 if forged else TELL_TRIES)
        with self._lock:
            self.told.append((f"forged {state}" if forged else state, status))
        return status

    def tell_reply(self, number: str, to: str, text: str) -> int:
        return self.post(self.callback_url, self.reply(number, to, text))

    # What providers use.

    def submit(self, text: SentText) -> Answer:
        """Take a text and answer, or misbehave."""
        with self._lock:
            behaviour = self._behaviour
            if self._times is not None:
                self._times -= 1
                if self._times <= 0:
                    self._behaviour, self._times = Misbehaviour.NONE, None
        match behaviour:
            case Misbehaviour.SLOW:
                self.released.wait(self.slow_s)
            case Misbehaviour.THROTTLED:
                return self.throttled()
            case Misbehaviour.ERROR_5XX:
                return self.failed()
            case Misbehaviour.REDIRECT:
                return Answer(302, b"", headers={"Location": f"{self.url}/elsewhere"})
            case Misbehaviour.EXPIRED_TOKEN:
                return self.expired_token()
            case Misbehaviour.NO_CREDIT:
                return self.no_credit()
            case Misbehaviour.BAD_CREDENTIALS:
                return self.bad_credentials()
            case Misbehaviour.REFUSED_NUMBER:
                return self.refused_number(text)
            case _:
                pass
        return self._take(text, behaviour)

    def submit_once(self, key: str, text: SentText, repeated: Callable[[SentText], Answer]) -> Answer:
        """Submit a text unless one was taken, or is being taken, under the same key."""
        with self._lock:
            earlier = self._by_key.setdefault(key, text)
        if earlier is not text:
            return repeated(earlier)
        try:
            return self.submit(text)
        finally:
            with self._lock:
                if text not in self.sent:
                    del self._by_key[key]

    def _take(self, text: SentText, behaviour: Misbehaviour) -> Answer:
        with self._lock:
            self.sent.append(text)
        answer = self.accepted(text)
        if behaviour is Misbehaviour.CALLBACK_BEFORE_ANSWER:
            text.state = self.outcome
            self.tell(text, self.outcome)
        elif behaviour not in TAKEN_UNTOLD:
            self._later(text, behaviour)
        else:
            self._later(text, Misbehaviour.NONE)
        match behaviour:
            case Misbehaviour.HTML_5XX_AFTER_TAKING:
                return Answer(502, HTML, "text/html")
            case Misbehaviour.ANSWER_LOST:
                raise CutError
            case Misbehaviour.ANSWER_CUT:
                return replace(answer, octets=len(answer.body) // 2)
            case Misbehaviour.GARBAGE:
                return replace(answer, body=b'{"\xff\x00' + HTML)
            case _:
                return answer

    def _later(self, text: SentText, behaviour: Misbehaviour) -> None:
        """Report after the answer; providers take a while."""
        if not self.tells:
            return
        states = {
            Misbehaviour.CALLBACK_TWICE: (self.outcome, self.outcome),
            Misbehaviour.CALLBACK_OUT_OF_ORDER: (self.outcome, ENROUTE),
            Misbehaviour.UNKNOWN_STATUS: (MYSTERY,),
        }.get(behaviour, (self.outcome,))

        def work() -> None:
            time.sleep(0.05)
            if behaviour is Misbehaviour.FORGED_CALLBACK:
                self.tell(text, "undelivered", forged=True)
            text.state = states[0]
            for state in states:
                self.tell(text, state)

        self._tellers.submit(work)

    def post(self, url: str, written: Callback, tries: int = TELL_TRIES) -> int:
        status = 0
        for _ in range(tries):
            if self._is_closing:
                break
            separator = "&" if "?" in url else "?"
            address = f"{url}{separator}{written.query}" if written.query else url
            try:
                status = httpx.request(
                    written.method,
                    address,
                    content=written.body,
                    headers=dict(written.headers),
                    trust_env=False,
                    verify=NO_TLS,
                    timeout=10,
                ).status_code
            except httpx.HTTPError:
                status = 0
            if status // 100 in {2, 4}:
                break
            time.sleep(TELL_AGAIN_S)
        return status

    def handle(self, call: Call) -> Answer:
        with self._lock:
            self.calls.append(call)
        return self.answer(call)

    def close(self) -> None:
        self._is_closing = True
        self.released.set()
        self._tellers.shutdown(cancel_futures=True)


_Server = TypeVar("_Server", bound=CarrierServer)


@contextmanager
def run_carrier(server: _Server) -> Iterator[_Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            call = Call(
                self.command,
                parts.path.removeprefix(server.base),
                dict(parse_qsl(parts.query, keep_blank_values=True)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("content-length", "0"))),
            )
            try:
                answer = server.handle(call)
            except CutError:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("content-type", answer.content_type)
            self.send_header("content-length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body[: answer.octets])
            if answer.octets is not None:
                self.close_connection = True

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_arguments: Any) -> None: ...

    with listening(Handler) as server.port:
        try:
            yield server
        finally:
            server.close()
