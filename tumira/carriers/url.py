"""The URL that describes a carrier; wherever it is shown, the password is `***`.

Error messages never repeat a part of the URL in which the password could be.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from tumira.core import urls
from tumira.core.translation import _, mark
from tumira.pricing import segments
from tumira.pricing.segments import Encoding

PORT_DEFAULT: Final = 2775
REFUNDS: Final = ("failed", "expired", "undelivered")

# What data_coding 0 means to a carrier; the others are names of Python's codecs.
GSM_7: Final = "gsm7"
LATIN_1: Final = "latin1"
ASCII: Final = "ascii"
ALPHABETS: Final = (GSM_7, LATIN_1, ASCII)

_HIDDEN: Final = "***"
# SMPP 3.4, section 4.1.1: 16 and 9 octets, each with the NUL that ends it. Some carriers cut what is longer
# without a word and then refuse the password.
_SYSTEM_ID_MAX: Final = 15
_PASSWORD_MAX: Final = 8
_SOURCE_MAX: Final = 11

_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z_]{1,20}")
_SOURCE_NUMBER: Final = re.compile(r"\+?[0-9]{3,15}")

_SHAPE: Final = mark(
    "Enter the URL as smpp://user:password@host:2775?window=64&tps=200. In the user, password and source, "
    "write @ / ? # & % as %40 %2F %3F %23 %26 %25."
)


@dataclass(frozen=True, slots=True)
class CarrierSettings:
    """How to reach a carrier; `tps` is over all binds, 0 for no limit."""

    host: str
    port: int
    tls: bool
    system_id: str
    password: str = field(repr=False)
    bind_mode: str
    binds: int
    window_size: int
    tps: int
    source: str
    in_doubt: str
    doubt_wait_s: int
    refund: tuple[str, ...]
    # Whether a message is submitted again under `source` when the carrier refuses the sender name.
    sender_fallback: bool = False
    # What data_coding 0 means to the carrier.
    alphabet: str = GSM_7


def lacks_password(url: str) -> bool:
    rest = url.partition("://")[2]
    credentials, at, _place = rest.partition("?")[0].rpartition("@")
    return bool(at and credentials) and ":" not in credentials


def parse(url: str, password: str | None = None) -> CarrierSettings:
    """Read a URL; a ValueError says in one sentence what to change.

    A password may be given beside the URL, which must have none then.
    """
    scheme, _sign, rest = url.partition("://")
    if scheme not in {"smpp", "smpps"}:
        raise ValueError(_("The URL must begin with smpp://, or smpps:// for TLS.") + " " + _(_SHAPE))
    front, _sign, query = rest.partition("?")
    credentials, at, place = front.rpartition("@")
    user, colon, written = credentials.partition(":")
    # An @ behind the question mark means that the question mark is in the password.
    if not at or "@" in query or "#" in place + query or not (colon or password is not None):
        raise ValueError(_(_SHAPE))
    if colon and password is not None:
        raise ValueError(
            _("The password is given twice. Leave it out of the URL, for example smpp://user@host:2775.")
        )
    if password is not None:
        written = quote(password, safe="*")
    if written == _HIDDEN:
        raise ValueError(_("*** stands for the hidden password. Enter the carrier's real password."))
    host, port = _read_place(place.removesuffix("/"))
    values = _read_query(query)
    tls = values.pop("tls")
    if scheme == "smpps" and tls is False:
        raise ValueError(_("smpps:// and tls=0 contradict each other. Leave one out."))
    return CarrierSettings(
        host=host,
        port=port,
        tls=scheme == "smpps" or tls is True,
        system_id=_read_credential(_("The user"), user, 1, _SYSTEM_ID_MAX),
        password=_read_credential(_("The password"), written, 0, _PASSWORD_MAX),
        **values,
    )


def read_options(given: Mapping[str, str]) -> CarrierSettings:
    """Read the options of a carrier without a URL of this kind, which may also be asked about doubts."""
    parameters = {
        **_PARAMETERS,
        "in_doubt": _Parameter("in_doubt", "hold", _choice("resend", "hold", "look")),
    }
    values = {
        parameter.setting: parameter.read(name, given.get(name, parameter.default))
        for name, parameter in parameters.items()
        if name != "tls"
    }
    return CarrierSettings(host="", port=PORT_DEFAULT, tls=False, system_id="", password="", **values)


def write(settings: CarrierSettings) -> str:
    query = {
        "window": settings.window_size,
        "tps": settings.tps,
        "bind": settings.bind_mode,
        "binds": settings.binds,
        "source": settings.source,
        "in_doubt": settings.in_doubt,
        "doubt_wait": settings.doubt_wait_s,
        "refund": ",".join(settings.refund),
        "sender_fallback": int(settings.sender_fallback),
        "alphabet": settings.alphabet,
    }
    shown = [
        f"{name}={quote(str(value), safe='+,')}"
        for name, value in query.items()
        if name in {"window", "tps"} or str(value) != _PARAMETERS[name].default
    ]
    scheme = "smpps" if settings.tls else "smpp"
    user = quote(settings.system_id, safe="")
    authority = urls.write_authority(settings.host, settings.port)
    return f"{scheme}://{user}:{_HIDDEN}@{authority}?{'&'.join(shown)}"


def _read_place(place: str) -> tuple[str, int]:
    host, port = urls.split_port(place) or ("", None)
    if host.startswith("["):
        address = urls.parse_ipv6(host)
        is_named = address is not None
        host = str(address)
    else:
        host = host.lower()
        is_named = urls.is_host_name(host)
    if not is_named:
        raise ValueError(
            _(
                "The URL has no host after the last @. Enter a name such as smpp.example.com, an address "
                "such as 192.0.2.1, or [2001:db8::1] in brackets."
            )
        )
    return host, PORT_DEFAULT if port is None else _read_number(_("The port"), port, 1, urls.PORT_MAX)


def _read_credential(what: str, text: str, least: int, most: int) -> str:
    decoded = urls.unescape(text)
    if decoded is None or not _VISIBLE.fullmatch(decoded):
        raise ValueError(
            _("{what} may have visible ASCII characters only. Write % as %25.").format(what=what)
        )
    if not least <= len(decoded) <= most:
        text = _(
            "{what} must have {least} to {most} characters, as SMPP requires. Ask the carrier for another."
        )
        raise ValueError(text.format(what=what, least=least, most=most))
    return decoded


def _read_query(query: str) -> dict[str, Any]:
    """Read all parameters by the names of their settings, with defaults."""
    given: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _sign, value = part.partition("=")
        if name not in _PARAMETERS:
            named = name if _PARAMETER_NAME.fullmatch(name) else "…"
            text = _("A carrier URL has no parameter {name}. Allowed: {allowed}.")
            raise ValueError(text.format(name=named, allowed=", ".join(_PARAMETERS)))
        if name in given:
            raise ValueError(_("The URL has {name} twice. Give it once.").format(name=name))
        decoded = urls.unescape(value)
        if decoded is None:
            text = _("The value of {name} is not percent-encoded UTF-8. Write % as %25.")
            raise ValueError(text.format(name=name))
        given[name] = decoded
    return {
        parameter.setting: parameter.read(name, given.get(name, parameter.default))
        for name, parameter in _PARAMETERS.items()
        if name != "tls"
    } | {"tls": _read_tls(given.get("tls"))}


def _read_number(what: str, text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        text = _("{what} must be a whole number from {least} to {most}.")
        raise ValueError(text.format(what=what, least=least, most=most))
    return int(text)


def _number(least: int, most: int) -> Callable[[str, str], int]:
    return lambda name, text: _read_number(name, text, least, most)


def _choice(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise ValueError(_("{name} must be {words}.").format(name=name, words=_(" or ").join(words)))
        return text

    return read


def read_source(name: str, text: str) -> str:
    """Check a sender name or number; a ValueError says what to change about what is called `name`."""
    if _SOURCE_NUMBER.fullmatch(text):
        return text
    measure = segments.measure(text)
    is_short = measure.encoding == Encoding.GSM_7 and measure.characters <= _SOURCE_MAX
    has_letter = any(letter.isalpha() for letter in text)
    if not (is_short and has_letter and text.isprintable() and text == text.strip()):
        text = _(
            "{name} must have 1 to {most} GSM-7 characters with at least one letter, or 3 to 15 digits with "
            "or without a plus."
        )
        raise ValueError(text.format(name=name, most=_SOURCE_MAX))
    return text


def _read_refund(name: str, text: str) -> tuple[str, ...]:
    words = set(text.split(",")) if text else set()
    if not words <= set(REFUNDS):
        text = _("{name} must list some of {words} separated by commas, or be empty.")
        raise ValueError(text.format(name=name, words=",".join(REFUNDS)))
    return tuple(word for word in REFUNDS if word in words)


def _read_flag(name: str, text: str) -> bool:
    return _choice("0", "1")(name, text) == "1"


def _read_tls(text: str | None) -> bool | None:
    if text not in {None, "0", "1"}:
        raise ValueError(_("tls must be 0 or 1."))
    return None if text is None else text == "1"


@dataclass(frozen=True, slots=True)
class _Parameter:
    setting: str
    default: str
    read: Callable[[str, str], Any]


_PARAMETERS: Final[Mapping[str, _Parameter]] = {
    "window": _Parameter("window_size", "64", _number(1, 10_000)),
    "tps": _Parameter("tps", "200", _number(0, 100_000)),
    "bind": _Parameter("bind_mode", "transceiver", _choice("transceiver", "pair")),
    "binds": _Parameter("binds", "1", _number(1, 32)),
    "source": _Parameter("source", "Tumira", read_source),
    "in_doubt": _Parameter("in_doubt", "resend", _choice("resend", "hold")),
    "doubt_wait": _Parameter("doubt_wait_s", "30", _number(1, 86_400)),
    "refund": _Parameter("refund", ",".join(REFUNDS), _read_refund),
    "sender_fallback": _Parameter("sender_fallback", "0", _read_flag),
    "alphabet": _Parameter("alphabet", GSM_7, _choice(*ALPHABETS)),
    "tls": _Parameter("tls", "0", _choice("0", "1")),
}
