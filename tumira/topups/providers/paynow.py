"""Payments through Paynow; an answer counts only with Paynow's signature.

Wallets are charged from our own pages and confirmed on the phone; a card is entered on a page of Paynow's. A
start whose answer was lost is found by our own trace, and never repeated.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never
from urllib.parse import urlsplit

import structlog

from tumira.core.ids import TOP_UP, write_id
from tumira.core.settings.payments import Paynow
from tumira.topups.providers import paynow_messages
from tumira.topups.providers.http import ANSWER_S, HttpReply, NoAnswerError, ProviderClient
from tumira.topups.providers.paynow_messages import Meaning, Pairs, Wallet
from tumira.topups.states import (
    Expired,
    FailureReason,
    NotPaid,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    Reversed,
    StillPending,
    TopUp,
    Unreachable,
)

# A start may not be found while it is in flight, which never lasts this long.
LOST_AFTER: Final = timedelta(minutes=5)
# A code expires with the minute that Paynow names; a payment in that minute arrives a little later.
EXPIRY_GRACE: Final = timedelta(minutes=5)
PROBLEM_MAX: Final = 200
KEPT_MAX: Final = 500

_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_INFO: Final = "Tumira top-up"
# Paynow's errors for wrong credentials, which the operator has to fix.
_OUR_FAULTS: Final = ("invalid hash", "invalid id")
_SERVER_ERROR: Final = 500

_log: Final = structlog.get_logger()


class _UnreadableError(Exception):
    """An answer that cannot be trusted; the message says why, for the operator."""


class PaynowProvider:
    """Takes money through a merchant's integration with Paynow."""

    def __init__(self, settings: Paynow, public_url: str, *, answer_s: float = ANSWER_S) -> None:
        self._settings = settings
        self._public_url = public_url
        self._client = ProviderClient(answer_s=answer_s)

    async def start(self, top_up: TopUp) -> ProviderAnswer:
        wallet = Wallet(top_up.provider)
        page = "initiatetransaction" if wallet is Wallet.CARD else "remotetransaction"
        try:
            reply = await self._post(f"{self._settings.url}/interface/{page}", self._wanted(top_up, wallet))
        except NoAnswerError as error:
            if error.may_have_arrived:
                return PaymentInDoubt(f"Paynow: {error.problem}")
            return NotPaid(FailureReason.NEVER_ARRIVED, f"Paynow: {error.problem}")
        refusal = _refusal(reply)
        if refusal is not None:
            return refusal
        try:
            return self._begun(self._signed(reply))
        except _UnreadableError as error:
            return PaymentInDoubt(f"Paynow: {error}")

    async def poll(self, top_up: TopUp, now: datetime) -> ProviderAnswer:
        poll_url = top_up.kept.get("poll_url")
        is_poll = poll_url is not None and self._is_theirs(poll_url)
        try:
            if poll_url is not None and is_poll:
                fields = self._signed(await self._client.call("POST", poll_url, headers=_FORM, content=b""))
            else:
                trace = [("merchanttrace", _trace_of(top_up)), ("status", "Message")]
                pairs = [("id", self._settings.integration_id), *trace]
                fields = self._signed(await self._post(f"{self._settings.url}/interface/trace", pairs))
            if paynow_messages.folded(fields["status"]) == paynow_messages.NOT_FOUND and not is_poll:
                if top_up.age(now) > LOST_AFTER:
                    return NotPaid(FailureReason.NEVER_ARRIVED, "Paynow knows nothing of it")
                return PaymentInDoubt("Paynow knows nothing of it yet")
            return _news(top_up, fields)
        except NoAnswerError as error:
            return Unreachable(f"Paynow: {error.problem}")
        except _UnreadableError as error:
            return Unreachable(f"Paynow: {error}")

    async def close(self) -> None:
        await self._client.close()

    def _wanted(self, top_up: TopUp, wallet: Wallet) -> Pairs:
        """Return the fields of a start in the order in which they are signed."""
        assert top_up.asked is not None
        name = write_id(TOP_UP, top_up.id)
        no_reply = f"no-reply@{urlsplit(self._public_url).hostname or 'localhost'}"
        pairs = [
            ("id", self._settings.integration_id),
            ("reference", name),
            ("amount", paynow_messages.write_amount(top_up.asked)),
            ("additionalinfo", _INFO),
            ("returnurl", f"{self._public_url}/dashboard/top-up/{name}"),
            ("resulturl", f"{self._public_url}/hooks/paynow/{name}"),
            ("authemail", self._settings.email or top_up.kept.get("email") or no_reply),
        ]
        if wallet is not Wallet.CARD:
            assert top_up.phone is not None
            pairs += [("phone", paynow_messages.local_phone(top_up.phone)), ("method", wallet.value)]
        return [*pairs, ("merchanttrace", _trace_of(top_up)), ("status", "Message")]

    async def _post(self, url: str, pairs: Pairs) -> HttpReply:
        body = paynow_messages.write(pairs, self._settings.key)
        return await self._client.call("POST", url, headers=_FORM, content=body)

    def _signed(self, reply: HttpReply) -> Mapping[str, str]:
        """Return the fields of a signed answer; the HTTP status means nothing."""
        pairs = paynow_messages.read(reply.body)
        fields = dict(pairs or ())
        if pairs is None or "status" not in fields:
            raise _UnreadableError(f"an answer that cannot be read (HTTP {reply.status})")
        if paynow_messages.folded(fields["status"]) == paynow_messages.ERROR:
            raise _UnreadableError(_shortened(fields.get("error", "an error without words")))
        if not paynow_messages.is_signed(pairs, self._settings.key):
            raise _UnreadableError("an answer whose hash is wrong; is TUMIRA_PAYNOW_KEY still right?")
        return fields

    def _begun(self, fields: Mapping[str, str]) -> ProviderAnswer:
        if paynow_messages.folded(fields["status"]) != paynow_messages.OK:
            raise _UnreadableError(f"a start was answered with {_shortened(fields['status'])!r}")
        expires = paynow_messages.read_expiry(fields.get("authorizationexpires", ""))
        kept = {
            "poll_url": self._address(fields, "pollurl"),
            "browser_url": self._address(fields, "browserurl"),
            "instructions": fields.get("instructions"),
            "code": fields.get("authorizationcode"),
            "code_expires": None if expires is None else expires.isoformat(),
            "paynow_reference": fields.get("paynowreference"),
        }
        there = {name: value[:KEPT_MAX].replace("\0", "") for name, value in kept.items() if value}
        return StillPending(there.get("paynow_reference"), there)

    def _address(self, fields: Mapping[str, str], name: str) -> str | None:
        """Return a URL of an answer; a URL on another host is neither called nor shown."""
        address = fields.get(name)
        if not address:
            return None
        if len(address) > KEPT_MAX or not self._is_theirs(address):
            raise _UnreadableError(f"its {name} is not at the place that TUMIRA_PAYNOW_URL names")
        return address

    def _is_theirs(self, address: str) -> bool:
        ours = _origin(self._settings.url)
        return ours is not None and _origin(address) == ours


def _trace_of(top_up: TopUp) -> str:
    return write_id("", top_up.id)


def _origin(address: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL; None where it is ambiguous."""
    try:
        parts = urlsplit(address)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None
    # Parsers disagree about these characters, and so about the host.
    is_plain = address.isascii() and address.isprintable() and not set(address) & set(" \\")
    if not is_plain or parts.username is not None or not parts.hostname or port is None:
        return None
    return parts.scheme, parts.hostname, port


def _refusal(reply: HttpReply) -> NotPaid | None:
    """Return why Paynow did not start the payment (such answers are unsigned); None where it may have."""
    fields = dict(paynow_messages.read(reply.body) or ())
    status = paynow_messages.folded(fields.get("status", ""))
    if reply.status >= _SERVER_ERROR or status not in {paynow_messages.ERROR, paynow_messages.INVALID_ID}:
        return None
    words = _shortened(fields.get("error") or fields["status"])
    is_ours = any(fault in words.lower() for fault in _OUR_FAULTS)
    return NotPaid(FailureReason.NOT_CONFIGURED if is_ours else FailureReason.DECLINED, words)


def _news(top_up: TopUp, fields: Mapping[str, str]) -> ProviderAnswer:
    name = write_id(TOP_UP, top_up.id)
    if fields.get("reference") != name:
        raise _UnreadableError("an answer that is about another payment")
    amount = paynow_messages.read_amount(fields.get("amount", ""))
    if amount is None:
        raise _UnreadableError("an answer without an amount")
    status, reference = fields["status"], fields.get("paynowreference") or name
    match paynow_messages.meaning_of(status):
        case Meaning.PAID:
            return Paid(_shortened(reference), amount)
        case Meaning.CANCELLED:
            return NotPaid(FailureReason.CANCELLED, f"Paynow: {_shortened(status)}")
        case Meaning.FAILED:
            return NotPaid(FailureReason.DECLINED, f"Paynow: {_shortened(status)}")
        case Meaning.TAKEN_BACK:
            return Reversed(f"Paynow: {_shortened(status)}")
        case Meaning.OPEN:
            return _still_open(top_up)
        case None:
            _log.warning("unknown Paynow status", top_up=name, status=_shortened(status))
            return _still_open(top_up)
        case other:
            assert_never(other)


def _still_open(top_up: TopUp) -> ProviderAnswer:
    expires = top_up.kept.get("code_expires")
    if expires is not None and datetime.now(UTC) > datetime.fromisoformat(expires) + EXPIRY_GRACE:
        return Expired()
    return StillPending()


def _shortened(words: str) -> str:
    """Return text from Paynow in one printable line of limited length."""
    return "".join(one if one.isprintable() else " " for one in words).strip()[:PROBLEM_MAX]
