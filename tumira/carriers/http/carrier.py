"""One carrier over HTTP: a profile with the operator's settings and secrets.

It writes requests and reads answers; sending them is the client's.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from tumira.carriers.http import documents
from tumira.carriers.http.adapters import ADAPTERS
from tumira.carriers.http.checks import is_among, parse_networks
from tumira.carriers.http.profile import VALIDITY_UNITS, Profile
from tumira.carriers.http.reports import REPORTS_MAX, Reader
from tumira.carriers.http.rules import judge
from tumira.carriers.http.templates import RequestTemplate, Values
from tumira.carriers.http.values import (
    AccessToken,
    Balance,
    CallbackContent,
    CallbackMode,
    CallbackRefused,
    CallbackRequest,
    CarrierReport,
    HttpAnswer,
    HttpRequest,
    LookFailure,
    OutgoingMessage,
    SubmitAnswer,
    SubmitVerdict,
)
from tumira.core import urls

# Settings of every profile: who may call back, and whether receipts are polled although they could come.
CALLBACK_ADDRESSES: Final = "callback_addresses"
RECEIPTS: Final = "receipts"
COMMON_SETTINGS: Final = (CALLBACK_ADDRESSES, RECEIPTS)

VALUE_MAX: Final = 1_000
DETAIL_MAX: Final = 120
_TOKEN_MAX: Final = 8_000
_LIFETIME_MIN_S: Final = 60
_LIFETIME_MAX_S: Final = 30 * 86_400
_SECRET_MIN: Final = 4
_HIDDEN: Final = "…"

_VISIBLE: Final = re.compile(r"[\x20-\x7e]*")
_NUMBERS: Final = re.compile(r"[0-9]{4,}")
_LONG_NUMBER: Final = re.compile(r"\+?[0-9]{6,}")
_OK: Final = range(200, 300)


class HttpCarrier:
    """A ValueError of the constructor says in one sentence which setting to change, without its value."""

    def __init__(
        self, profile: Profile, base_url: str, settings: Mapping[str, str], secrets: Mapping[str, str]
    ) -> None:
        self.profile: Final = profile
        self._base_url: Final = _read_base(base_url)
        own = {name: value for name, value in settings.items() if name not in COMMON_SETTINGS}
        self._values: Final[Values] = _read_settings(profile, own, secrets)
        self._secrets: Final = sorted((one for one in secrets.values() if len(one) >= _SECRET_MIN), key=len)
        self._networks: Final = parse_networks(settings.get(CALLBACK_ADDRESSES, ""))
        self._polls: Final = _read_receipts(profile, settings.get(RECEIPTS, ""))
        self._adapt: Final = ADAPTERS[profile.adapter]
        self._reader: Final = Reader(profile.states, profile.reasons, profile.fold_names)

    @property
    def in_doubt(self) -> str:
        """What the profile advises for a lost answer: `resend`, `hold` or `look`."""
        return self.profile.in_doubt

    @property
    def doubt_wait_s(self) -> int:
        return self.profile.doubt_wait_s

    @property
    def max_validity_s(self) -> int | None:
        """The longest validity that the provider accepts; None if it names no limit or takes no validity."""
        return self.profile.send.validity.most_s

    @property
    def safe_repeat(self) -> bool:
        """The same request may be sent again after a lost answer."""
        return self.profile.safe_repeat

    @property
    def has_token(self) -> bool:
        return self.profile.token is not None

    @property
    def looks_by_id(self) -> bool:
        return self.profile.look is not None and self.profile.look.by_id is not None

    @property
    def looks_by_reference(self) -> bool:
        return self.profile.look is not None and self.profile.look.by_reference is not None

    @property
    def polls(self) -> tuple[int, ...]:
        """Ages in seconds at which to ask for a receipt; empty when receipts come by callback."""
        return self.profile.look.ages if self._polls and self.profile.look is not None else ()

    @property
    def has_balance(self) -> bool:
        return self.profile.balance is not None

    @property
    def callback_mode(self) -> CallbackMode:
        if self.profile.callback is None:
            return CallbackMode.NONE
        check = self.profile.callback.check
        return CallbackMode.CHECKED if check and check.applies(self._values) else CallbackMode.OPEN

    def token_request(self) -> HttpRequest:
        assert self.profile.token is not None
        return self._write(self.profile.token, {"token": ""})

    def read_token(self, answer: HttpAnswer) -> AccessToken | None:
        section = self.profile.token
        assert section is not None
        document = documents.parse_json(answer.body) if answer.status in _OK else None
        token = documents.as_text(self._at(section.token, document))
        if not token or len(token) > _TOKEN_MAX or not _VISIBLE.fullmatch(token):
            return None
        count = documents.as_count(self._at(section.lifetime, document))
        unit_s = 60 if section.lifetime_unit == "minutes" else 1
        lifetime_s = section.lifetime_default_s if count is None else count * unit_s
        return AccessToken(token, min(max(lifetime_s, _LIFETIME_MIN_S), _LIFETIME_MAX_S))

    def submit_request(self, message: OutgoingMessage, token: str = "") -> HttpRequest:
        return self._write(self.profile.send, {**self._message_values(message), "token": token})

    def read_submit(self, answer: HttpAnswer, message: OutgoingMessage) -> SubmitAnswer:
        paths = self.profile.send.answer
        document = _parse_answer(paths.format, paths.separator, answer.body)
        found = judge(self.profile.send.rules, answer, document, fold=self.profile.fold_names)
        if found.verdict is SubmitVerdict.TAKEN:
            found = self._adapt(self._read_taken(found, document, message), document)
        if found.verdict is SubmitVerdict.TAKEN:
            return found
        said = (self._detail(answer, document, message), found.detail)
        return msgspec.structs.replace(found, detail=": ".join(filter(None, said)))

    def _read_taken(self, found: SubmitAnswer, document: Any, message: OutgoingMessage) -> SubmitAnswer:
        """Add what an acceptance tells; without an id it is none."""
        paths = self.profile.send.answer
        carrier_ref = (
            message.reference if paths.id_is_reference else documents.as_id(self._at(paths.id, document))
        )
        if carrier_ref is None:
            return SubmitAnswer(SubmitVerdict.DOUBT, alarm=True, detail="no id in the answer")
        cost = documents.as_money(self._at(paths.cost, document))
        balance = documents.as_money(self._at(paths.balance, document))
        return msgspec.structs.replace(
            found,
            carrier_ref=carrier_ref,
            segments=documents.as_count(self._at(paths.segments, document)) or None,
            cost=None if cost is None else cost[0] / paths.cost_divisor,
            currency="" if cost is None else cost[1] or self._cost_currency(),
            balance=None if balance is None else balance[0],
        )

    def look_request(self, carrier_ref: str | None, reference: str, token: str = "") -> HttpRequest:
        """Ask by the provider's id if it is known and the provider can be asked so, else by our reference."""
        look = self.profile.look
        assert look is not None
        template = look.by_id if carrier_ref and look.by_id is not None else look.by_reference
        assert template is not None
        return self._write(
            template, {"carrier_ref": carrier_ref or "", "reference": reference, "token": token}
        )

    def read_look(
        self, answer: HttpAnswer, carrier_ref: str | None, reference: str
    ) -> tuple[CarrierReport, ...] | LookFailure:
        """Return the reports about one message; those about others are dropped."""
        look = self.profile.look
        assert look is not None
        document = documents.parse_json(answer.body)
        fold = self.profile.fold_names
        if any(match.fits(answer.status, document, fold=fold) for match in look.not_found):
            return LookFailure.NOT_FOUND
        if answer.status not in _OK or document is None:
            return LookFailure.UNREADABLE
        if (self._at(look.report.items, document) if look.report.items else document) == []:
            return LookFailure.NOT_FOUND
        ids = {one.casefold() for one in (carrier_ref, reference) if one}
        found = tuple(
            report
            for report in self._reader.reports(look.report, document)
            if (report.carrier_ref or "").casefold() in ids or report.reference == reference
        )
        return found or LookFailure.UNREADABLE

    def balance_request(self, token: str = "") -> HttpRequest:
        assert self.profile.balance is not None
        return self._write(self.profile.balance, {"token": token})

    def read_balance(self, answer: HttpAnswer) -> Balance | None:
        section = self.profile.balance
        assert section is not None
        document = documents.parse_json(answer.body) if answer.status in _OK else None
        amount = documents.as_money(self._at(section.amount, document))
        if amount is None:
            return None
        named = documents.as_id(self._at(section.currency_path, document))
        return Balance(amount[0] / section.divisor, named or amount[1] or section.currency)

    def read_callback(self, request: CallbackRequest) -> CallbackContent | CallbackRefused:
        """Read what a provider tells, once it has proved itself as the profile and the operator ask."""
        section = self.profile.callback
        if section is None:
            return CallbackRefused(404, "the profile has no callback")
        if self._networks and not is_among(request.address, self._networks):
            return CallbackRefused(403, "the address is not in callback_addresses")
        if len(request.body) > documents.BODY_MAX:
            return CallbackRefused(413, "the body is too large")
        document = _parse_callback(request)
        check = section.check if self.callback_mode is CallbackMode.CHECKED else None
        if check is not None:
            fields = _flat(document)
            if not check.passes(request, fields, self._values):
                return CallbackRefused(403, f"the check {check.kind} failed")
            if check.kind in {"twilio", "vonage"}:
                document = fields  # Only what the signature covers is read.
        if document is None:
            return CallbackRefused(400, "the body cannot be read")
        replies = () if section.reply is None else self._reader.replies(section.reply, document)
        is_reply = None if section.reply is None else section.reply.when
        reports = [] if section.report is None else self._reader.reports(section.report, document, is_reply)
        if len(reports) + len(replies) > REPORTS_MAX:
            return CallbackRefused(413, f"more than {REPORTS_MAX} receipts")
        if section.reference_in_url:
            query = documents.parse_form(request.query) or {}
            reference = documents.as_id(query.get(section.reference_in_url))
            reports = [msgspec.structs.replace(report, reference=reference) for report in reports]
        return CallbackContent(
            reports=tuple(reports),
            replies=replies,
            content_type=section.answer_type,
            body=section.answer.encode(),
        )

    def _write(self, template: RequestTemplate, values: Values) -> HttpRequest:
        filled = {**self._values, **values}
        headers = {} if self.profile.headers is None else dict(self.profile.headers.fill(filled))
        if self.profile.basic is not None:
            headers["Authorization"] = self.profile.basic.header(filled)
        return template.fill(self._base_url, filled, headers)

    def _message_values(self, message: OutgoingMessage) -> Values:
        send = self.profile.send
        validity_s = max(message.validity_s, send.validity.least_s)
        if send.validity.most_s is not None:
            validity_s = min(validity_s, send.validity.most_s)
        values: dict[str, str | int] = {
            "to": message.recipient.removeprefix("+"),
            "to_plus": message.recipient,
            "sender": message.sender,
            "text": message.text,
            "reference": message.reference,
            "sequence": message.sequence,
            "callback_url": self._callback_url(message),
            **{unit: max(1, validity_s // size_s) for unit, size_s in VALIDITY_UNITS.items()},
            "validity_ms": validity_s * 1_000,
        }
        if send.alphabet is not None:
            values["alphabet"] = send.alphabet.unicode if message.unicode else send.alphabet.gsm
        if send.now is not None:
            values["now"] = (message.at + timedelta(hours=send.now.offset_h)).strftime(send.now.format)
        return values

    def _callback_url(self, message: OutgoingMessage) -> str:
        section = self.profile.callback
        if section is None or not section.reference_in_url or not message.callback_url:
            return message.callback_url
        return f"{message.callback_url}?{section.reference_in_url}={message.reference}"

    def _at(self, path: documents.DocumentPath | None, document: Any) -> Any:
        return None if path is None else path.find(document, fold=self.profile.fold_names)

    def _cost_currency(self) -> str:
        leaf = self.profile.send.answer.cost_currency
        return "" if leaf is None else leaf.fill_text(self._values).upper()

    def _detail(self, answer: HttpAnswer, document: Any, message: OutgoingMessage) -> str:
        """Return the provider's code and words without the text, its numbers, long numbers and secrets."""
        paths = self.profile.send.answer.detail
        said = "" if paths is None else " ".join(paths.texts(document, fold=self.profile.fold_names))
        for hidden in (*reversed(self._secrets), message.text, *_NUMBERS.findall(message.text)):
            said = said.replace(hidden, _HIDDEN) if hidden else said
        said = "".join(letter if letter.isprintable() else " " for letter in _LONG_NUMBER.sub(_HIDDEN, said))
        return f"HTTP {answer.status} {said[:DETAIL_MAX]}".strip()


def _read_base(base_url: str) -> str:
    url = urls.parse(base_url)
    is_open = url is not None and url.scheme == "http" and urls.is_loopback(url.host)
    if url is None or not url.host or not (url.scheme == "https" or is_open):
        raise ValueError("The URL must begin with https:// and name a host.")
    if (
        url.user is not None
        or url.query
        or url.fragment
        or not _VISIBLE.fullmatch(base_url)
        or " " in base_url
    ):
        raise ValueError("The URL may have no user, password, query or fragment: those are settings.")
    return base_url.rstrip("/")


def _read_settings(profile: Profile, settings: Mapping[str, str], secrets: Mapping[str, str]) -> Values:
    declared = profile.settings.settings
    values: dict[str, str | int] = {}
    for name, setting in declared.items():
        given = (secrets if setting.secret else settings).get(name, setting.default)
        kind = "secret" if setting.secret else "setting"
        if given is None:
            raise ValueError(f"The {kind} {name} is missing: {setting.title}.")
        if len(given) > VALUE_MAX or not _VISIBLE.fullmatch(given):
            raise ValueError(f"The {kind} {name} must have at most {VALUE_MAX} ASCII characters.")
        values[f"{kind}.{name}"] = given
    for kind, given_names, is_secret in (("setting", settings, False), ("secret", secrets, True)):
        known = [name for name, setting in declared.items() if setting.secret is is_secret]
        for name in given_names:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise ValueError(f"The profile {profile.name} has no {kind} {name[:40]}. Known: {listed}.")
    if profile.callback is not None and profile.callback.check is not None:
        profile.callback.check.check_settings(values)
    return values


def _read_receipts(profile: Profile, written: str) -> bool:
    """Tell whether receipts are polled."""
    if written not in {"", "callback", "poll"}:
        raise ValueError("receipts must be callback or poll.")
    if written == "poll" and profile.look is None:
        raise ValueError(f"The profile {profile.name} cannot poll receipts.")
    if written == "callback" and profile.callback is None:
        raise ValueError(f"The profile {profile.name} has no callback.")
    return written == "poll" or profile.callback is None


def _parse_answer(kind: str, separator: str, body: bytes) -> Any:
    match kind:
        case "json":
            return documents.parse_json(body)
        case "form":
            return documents.parse_form(documents.decode(body) or "")
        case _:
            return documents.parse_text(body, separator)


def _parse_callback(request: CallbackRequest) -> Any:
    """Read a query, a form or JSON, whichever it is; nothing at all is an empty table."""
    if request.method == "GET" or not request.body:
        return documents.parse_form(request.query)
    is_form = "form-urlencoded" in request.headers.get("content-type", "")
    if not is_form and request.body.lstrip()[:1] in {b"{", b"["}:
        return documents.parse_json(request.body)
    text = documents.decode(request.body)
    return None if text is None else documents.parse_form(text)


def _flat(document: Any) -> Mapping[str, str]:
    if not isinstance(document, Mapping):
        return {}
    texts = {
        name: value if isinstance(value, str) else documents.as_text(value)
        for name, value in document.items()
    }
    return {name: text for name, text in texts.items() if text is not None}
