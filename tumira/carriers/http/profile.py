"""Profiles: how to send, read answers and receive receipts, described as TOML for each kind of carrier."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from tumira.carriers.http.checks import CallbackCheck
from tumira.carriers.http.documents import DocumentPath, DocumentPaths
from tumira.carriers.http.reports import ReasonCodes, ReplyPaths, ReportPaths, StateWords
from tumira.carriers.http.rules import RULES_MAX, AnswerMatch, AnswerRule, Conditions, HttpStatuses
from tumira.carriers.http.templates import (
    BasicAuth,
    BodyTree,
    HeaderTable,
    Leaf,
    LeafTable,
    RequestTemplate,
    UrlPath,
)
from tumira.carriers.http.values import SubmitVerdict

PROFILE_MAX: Final = 64 * 1024
SETTINGS_MAX: Final = 20
AGES_MAX: Final = 20
AGES_DEFAULT: Final = (60, 300, 900, 3_600, 21_600, 86_400)
_AGE_MAX_S: Final = 7 * 86_400
_DOUBT_WAIT_MAX_S: Final = 86_400

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`")
_QUERY_NAME: Final = re.compile(r"[a-z]{1,16}")

VALIDITY_UNITS: Final[Mapping[str, int]] = {
    "validity_ms": 1,
    "validity_s": 1,
    "validity_min": 60,
    "validity_h": 3_600,
}
SEND_PLACEHOLDERS: Final = frozenset(
    {
        "to",
        "to_plus",
        "sender",
        "text",
        "reference",
        "sequence",
        "callback_url",
        "alphabet",
        "now",
        *VALIDITY_UNITS,
    }
)
LOOK_PLACEHOLDERS: Final = frozenset({"carrier_ref", "reference"})


class ProfileSetting(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the operator enters; without a default it is required. A secret is never shown."""

    title: str
    secret: bool = False
    default: str | None = None


class SettingTable:
    """The settings of a profile, by name."""

    __slots__ = ("settings",)

    def __init__(self, written: object) -> None:
        if not isinstance(written, dict) or len(written) > SETTINGS_MAX:
            raise ValueError(f"write a table of at most {SETTINGS_MAX} settings")
        self.settings: Final = {name: _setting(name, value) for name, value in written.items()}

    @property
    def names(self) -> frozenset[str]:
        """The placeholders of these settings."""
        return frozenset(
            f"{'secret' if setting.secret else 'setting'}.{name}" for name, setting in self.settings.items()
        )


def _setting(name: str, written: object) -> ProfileSetting:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: write small letters, digits and _")
    try:
        return msgspec.convert(written, ProfileSetting)
    except msgspec.ValidationError as error:
        place, problem = _locate(str(error))
        raise ValueError(f"{name}{place and f'.{place}'}: {problem}") from None


class Alphabet(Struct, frozen=True, forbid_unknown_fields=True):
    """The provider's words for texts in GSM 7-bit and in Unicode."""

    gsm: str
    unicode: str


class TimePattern(Struct, frozen=True, forbid_unknown_fields=True):
    """How `now` is written, and how many hours it is ahead of UTC."""

    format: str
    offset_h: int = 0


class ValidityRange(Struct, frozen=True, forbid_unknown_fields=True):
    """The least and most seconds that the provider accepts."""

    least_s: int = 1
    most_s: int | None = None

    def __post_init__(self) -> None:
        if self.least_s < 1 or (self.most_s is not None and self.most_s < self.least_s):
            raise ValueError("least_s must be 1 or more, and most_s not below it")


class AnswerPaths(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the parts of an answer to a submit stand."""

    format: Literal["json", "form", "text"] = "json"
    separator: str = ""
    id: DocumentPath | None = None
    id_is_reference: bool = False
    segments: DocumentPath | None = None
    cost: DocumentPath | None = None
    cost_divisor: int = 1
    cost_currency: Leaf | None = None  # For a cost that names none.
    balance: DocumentPath | None = None
    detail: DocumentPaths | None = None

    def __post_init__(self) -> None:
        if (self.id is None) != self.id_is_reference:
            raise ValueError("write either id, the path of the provider's id, or id_is_reference = true")
        if self.cost_divisor < 1:
            raise ValueError("cost_divisor must be 1 or more")


class SendSection(RequestTemplate, frozen=True, forbid_unknown_fields=True, kw_only=True):
    alphabet: Alphabet | None = None
    now: TimePattern | None = None
    validity: ValidityRange = ValidityRange()
    answer: AnswerPaths
    rules: tuple[AnswerRule, ...]

    def __post_init__(self) -> None:
        RequestTemplate.__post_init__(self)
        if not 1 <= len(self.rules) <= RULES_MAX:
            raise ValueError(f"write 1 to {RULES_MAX} rules")
        if all(rule.verdict is not SubmitVerdict.TAKEN for rule in self.rules):
            raise ValueError("no rule has the verdict taken")
        missing = {"alphabet": self.alphabet, "now": self.now}
        for name, section in missing.items():
            if name in self.names and section is None:
                raise ValueError(f"the placeholder {{{name}}} needs the table {name}")


class LookSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to ask for the outcome of a message."""

    by_id: RequestTemplate | None = None
    by_reference: RequestTemplate | None = None
    report: ReportPaths
    not_found: tuple[AnswerMatch, ...] = ()
    ages: tuple[int, ...] = AGES_DEFAULT

    def __post_init__(self) -> None:
        if self.by_id is None and self.by_reference is None:
            raise ValueError("write by_id, by_reference or both")
        if len(self.ages) > AGES_MAX or sorted(set(self.ages)) != list(self.ages):
            raise ValueError(f"ages must be at most {AGES_MAX} rising numbers of seconds")
        if self.ages and not 1 <= self.ages[0] <= self.ages[-1] <= _AGE_MAX_S:
            raise ValueError(f"ages must be from 1 to {_AGE_MAX_S} seconds")
        if len(self.not_found) > RULES_MAX:
            raise ValueError(f"not_found may have at most {RULES_MAX} entries")


class CallbackSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How receipts and replies arrive; `reference_in_url` names the query field that brings our reference."""

    report: ReportPaths | None = None
    reply: ReplyPaths | None = None
    check: CallbackCheck | None = None
    reference_in_url: str = ""
    answer: str = ""
    answer_type: str = "text/plain"

    def __post_init__(self) -> None:
        if self.reference_in_url and not _QUERY_NAME.fullmatch(self.reference_in_url):
            raise ValueError("reference_in_url must be 1 to 16 small letters")
        if self.reference_in_url and self.check is not None and self.check.kind in {"hmac", "vonage"}:
            raise ValueError(f"the check {self.check.kind} does not cover reference_in_url")


class TokenSection(RequestTemplate, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request whose answer has the token for all others."""

    token: DocumentPath
    lifetime: DocumentPath | None = None
    lifetime_unit: Literal["seconds", "minutes"] = "seconds"
    lifetime_default_s: int = 3_600


class BalanceSection(RequestTemplate, frozen=True, forbid_unknown_fields=True, kw_only=True):
    amount: DocumentPath
    divisor: int = 1
    currency_path: DocumentPath | None = None
    currency: str = ""

    def __post_init__(self) -> None:
        RequestTemplate.__post_init__(self)
        if self.divisor < 1:
            raise ValueError("divisor must be 1 or more")


class Profile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    title: str
    base: str = ""  # The usual address, shown to the operator.
    in_doubt: Literal["resend", "hold", "look"] = "hold"
    doubt_wait_s: int = 600
    safe_repeat: bool = False  # The same request again never sends a second text.
    adapter: Literal["", "vonage"] = ""
    fold_names: bool = False  # Names in documents are compared without regard to case.
    settings: SettingTable
    basic: BasicAuth | None = None
    headers: HeaderTable | None = None
    token: TokenSection | None = None
    send: SendSection
    look: LookSection | None = None
    balance: BalanceSection | None = None
    callback: CallbackSection | None = None
    states: StateWords | None = None
    reasons: ReasonCodes | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError("name must be small letters, digits and _")
        if not 1 <= self.doubt_wait_s <= _DOUBT_WAIT_MAX_S:
            raise ValueError(f"doubt_wait_s must be from 1 to {_DOUBT_WAIT_MAX_S}")
        if self.in_doubt == "look" and (self.look is None or self.look.by_reference is None):
            raise ValueError("in_doubt = look needs look.by_reference")
        reads_states = self.look is not None or (
            self.callback is not None and self.callback.report is not None
        )
        if reads_states != (self.states is not None):
            raise ValueError("the table states belongs to callback.report or look, which need it")
        self._check_placeholders()

    def _check_placeholders(self) -> None:
        own = self.settings.names
        with_token = own | {"token"} if self.token is not None else own
        for key, names, known in (
            ("basic", _names(self.basic), own),
            ("headers", _names(self.headers), with_token),
            ("token", _names(self.token), own),
            ("send", _names(self.send), with_token | SEND_PLACEHOLDERS),
            ("send.answer.cost_currency", _names(self.send.answer.cost_currency), own),
            ("look.by_id", _names(self.look and self.look.by_id), with_token | LOOK_PLACEHOLDERS),
            ("look.by_reference", _names(self.look and self.look.by_reference), with_token | {"reference"}),
            ("balance", _names(self.balance), with_token),
            ("callback.check", _names(self.callback and self.callback.check), own),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"{key}: {{{name}}} is no placeholder here: {_listed(known)}")


def _names(part: Any) -> Sequence[str]:
    return () if part is None else part.names


def _listed(known: frozenset[str]) -> str:
    return "known are " + ", ".join(sorted(known)) if known else "declare it under settings"


class ProfileError(ValueError):
    """A profile that cannot be used; the sentence names the key."""


_OWN_TYPES: Final = (
    BodyTree,
    Conditions,
    DocumentPath,
    DocumentPaths,
    HeaderTable,
    HttpStatuses,
    Leaf,
    LeafTable,
    ReasonCodes,
    SettingTable,
    StateWords,
    UrlPath,
)


def _convert(wanted: type, written: Any) -> Any:
    assert wanted in _OWN_TYPES
    return wanted(written)


def parse_profile(text: str) -> Profile:
    """Read a profile; a ProfileError says in one sentence what to change."""
    if len(text.encode()) > PROFILE_MAX:
        raise ProfileError(f"A profile may have at most {PROFILE_MAX // 1024} KiB.")
    try:
        return msgspec.convert(tomllib.loads(text), Profile, dec_hook=_convert)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"The profile is no TOML: {error}.") from None
    except msgspec.ValidationError as error:
        place, problem = _locate(str(error))
        raise ProfileError(f"{place or 'profile'}: {problem}.") from None
    except RecursionError:
        raise ProfileError("The profile is nested too deeply.") from None


def _locate(message: str) -> tuple[str, str]:
    """Split a message into the key at fault, such as `send.path`, and the problem."""
    place = _PLACE.search(message)
    return ("" if place is None else place[1]), _PLACE.sub("", message)


def profile_names() -> Sequence[str]:
    return sorted(one.name.removesuffix(".toml") for one in _folder().iterdir() if one.name.endswith(".toml"))


@cache
def load_profile(name: str) -> Profile:
    """Read a profile of the package; a ProfileError lists them if there is none of this name."""
    if name not in profile_names():
        raise ProfileError(f"There is no profile {name!r}. Profiles: {', '.join(profile_names())}.")
    return parse_profile((_folder() / f"{name}.toml").read_text(encoding="utf-8"))


def _folder() -> Any:
    return files("tumira.carriers.http") / "profiles"
