"""Settings, read once at the start and passed down."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from tumira.core import urls
from tumira.core.errors import OperatorError
from tumira.core.mail_addresses import MAIL_ADDRESS
from tumira.core.settings.networks import NetworkLookup, read_network_lookup
from tumira.core.settings.payments import Payments, read_payments
from tumira.core.settings.seller import NO_SELLER, Seller, read_seller
from tumira.core.settings.support import NO_SUPPORT, Support, read_support
from tumira.core.settings.tracing import Tracing, read_tracing

PREFIX: Final = "TUMIRA_"
PORT_MAX: Final = 65_535
COUNT_MAX: Final = 1_000_000
DRAIN_WAIT_MAX_S: Final = 600
# Two years; and at least until receipts cannot come any more and the numbers of recipients were cut.
KEEP_WEEKS: Final = 104
KEEP_WEEKS_MIN: Final = 14
KEEP_WEEKS_MAX: Final = 5_200
# The port that carriers' SMPP servers listen on by custom.
SIMULATOR_PORT: Final = 2775

# Where a process that listens on every address can be reached from the same machine.
_OWN_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound

# Where mail servers listen: between each other, for programs that name their user, and with TLS at once.
_SMTP_PORT: Final = 25
_SUBMISSION_PORT: Final = 587
_SMTPS_PORT: Final = 465
_SMTP_SHAPE: Final = (
    "write it as smtp://user:password@host:587 or smtps://user:password@host, both user and password or "
    "neither, and any of @ : / ? # % in them as %40 %3A %2F %3F %23 %25."
)
_MAIL_FROM_SHAPE: Final = "write it as no-reply@sms.example or as Tumira <no-reply@sms.example>."

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
# Passwords that are made for programs are often written in groups, with spaces between.
_CREDENTIAL: Final = re.compile(r"[\x20-\x7e]{1,255}")
_NAMED_ADDRESS: Final = re.compile(r'("(?P<quoted>[^"\\<>]*)"|(?P<name>[^"\\<>]*))\s*<(?P<address>[^<>]*)>')


class Encryption(Enum):
    """When a connection to the mail server is encrypted."""

    # By STARTTLS, if the server has it.
    WHEN_OFFERED = auto()
    # By STARTTLS; a server without it is told nothing.
    REQUIRED = auto()
    FROM_START = auto()


@dataclass(frozen=True, slots=True)
class Smtp:
    """The server through which mails are sent, and their sender; a user always comes with a password."""

    host: str
    port: int
    encryption: Encryption
    user: str | None
    password: str | None = field(repr=False)
    sender_name: str
    sender_address: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator chose; `docs/configuration.md` explains each."""

    data_dir: Path
    database_url: str | None
    host: str
    port: int
    public_url: str
    trusted_proxies: str
    log_level: str
    # None for a gateway without a simulator.
    simulator_port: int | None
    # For tests and closed networks: webhooks may go to private addresses, and without TLS.
    webhooks_allow_private: bool
    # Codes that may be sent in an hour: asked for from one address, and in all.
    codes_per_address: int
    codes_per_hour: int
    # None for a gateway that sends no mails.
    smtp: Smtp | None
    payments: Payments
    support: Support = NO_SUPPORT
    # None for a worker that shows no metrics.
    worker_metrics_port: int | None = None
    # None for a gateway that sends no traces.
    tracing: Tracing | None = None
    # For how many weeks batches and messages are kept; None for good.
    keep_weeks: int | None = KEEP_WEEKS
    # Whether everybody who reaches the web process may read the simulator's handsets, passcodes included.
    simulator_public: bool = False
    # How long a web process that is to stop goes on, so that balancers look elsewhere first.
    drain_wait_s: int = 0
    seller: Seller = NO_SELLER
    # None for a gateway that asks nobody for the networks of numbers.
    network_lookup: NetworkLookup | None = None
    # The proxy for calls to carriers over HTTP; None for none.
    carrier_proxy: str | None = field(default=None, repr=False)

    @property
    def local_url(self) -> str:
        """Return the address of the web process on this machine, whatever proxy stands in front of it."""
        return _local_url(self.host, self.port)


def load(environment: Mapping[str, str] | None = None, env_file: Path = Path(".env")) -> Settings:
    """Read the settings from the environment, and from `.env` in the working directory where it is silent."""
    given = os.environ if environment is None else environment
    # A name without a value is as good as absent: an empty host would listen on every address.
    values = {name: value for name, value in (_read(env_file) | dict(given)).items() if value}
    port = _port(PREFIX + "PORT", values.get(PREFIX + "PORT", "8080"))
    host = values.get(PREFIX + "HOST", "127.0.0.1")
    database_url = values.get(PREFIX + "DATABASE_URL")
    public_url = values.get(PREFIX + "PUBLIC_URL", _local_url(host, port)).rstrip("/")
    return Settings(
        data_dir=_data_dir(values),
        database_url=database_url,
        host=host,
        port=port,
        public_url=public_url,
        trusted_proxies=values.get(PREFIX + "TRUSTED_PROXIES", ""),
        log_level=values.get(PREFIX + "LOG_LEVEL", "info").lower(),
        simulator_port=_simulator_port(values, port, database_url),
        webhooks_allow_private=_switch(PREFIX + "WEBHOOKS_ALLOW_PRIVATE", values),
        codes_per_address=_count(PREFIX + "CODES_PER_ADDRESS", values, 40),
        codes_per_hour=_count(PREFIX + "CODES_PER_HOUR", values, 500),
        smtp=_smtp(values, public_url),
        payments=read_payments(values),
        support=read_support(values),
        worker_metrics_port=_metrics_port(values, port),
        tracing=read_tracing(values),
        keep_weeks=_keep_weeks(values),
        simulator_public=_switch(PREFIX + "SIMULATOR_PUBLIC", values),
        drain_wait_s=_drain_wait(values),
        seller=read_seller(values),
        network_lookup=read_network_lookup(values),
        carrier_proxy=_carrier_proxy(values),
    )


def _read(env_file: Path) -> dict[str, str]:
    try:
        return {name: value for name, value in dotenv_values(env_file).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(
            f"{env_file.absolute()} cannot be read ({error}): put that right or remove it."
        ) from error


def _number(name: str, text: str, low: int, high: int, what: str = "a number", rest: str = "") -> int:
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise OperatorError(f"{name} is {text!r}; it must be {what} from {low} to {high}{rest}.")
    return int(text)


def _port(name: str, text: str, web_port: int | None = None) -> int:
    # Not 0, for which the system would choose a port that nobody else knows.
    port = _number(name, text, 1, PORT_MAX)
    if port == web_port:
        raise OperatorError(f"TUMIRA_PORT and {name} are both {port}; give one of them another number.")
    return port


def _count(name: str, values: Mapping[str, str], default: int) -> int:
    return _number(name, values.get(name, str(default)), 1, COUNT_MAX)


def _drain_wait(values: Mapping[str, str]) -> int:
    name = PREFIX + "DRAIN_WAIT"
    return _number(name, values.get(name, "0"), 0, DRAIN_WAIT_MAX_S, "a number of seconds")


def _keep_weeks(values: Mapping[str, str]) -> int | None:
    name = PREFIX + "KEEP_WEEKS"
    text = values.get(name, str(KEEP_WEEKS))
    if text in {"0", "none"}:
        return None
    rest = ", or none to keep messages for good"
    return _number(name, text, KEEP_WEEKS_MIN, KEEP_WEEKS_MAX, "a number of weeks", rest)


def _switch(name: str, values: Mapping[str, str]) -> bool:
    text = values.get(name, "0")
    if text not in {"0", "1"}:
        raise OperatorError(f"{name} is {text!r}; it must be 1 for yes or 0 for no.")
    return text == "1"


def _simulator_port(values: Mapping[str, str], web_port: int, database_url: str | None) -> int | None:
    """Return where the simulator listens; none by default on a database of the operator's own."""
    name = PREFIX + "SIMULATOR_PORT"
    if name not in values and database_url is not None:
        return None
    return _port(name, values.get(name, str(SIMULATOR_PORT)), web_port)


def _metrics_port(values: Mapping[str, str], web_port: int) -> int | None:
    name = PREFIX + "WORKER_METRICS_PORT"
    return _port(name, values[name], web_port) if name in values else None


def _carrier_proxy(values: Mapping[str, str]) -> str | None:
    """Read the proxy for carriers. An error never repeats the URL, which may hold a password."""
    name = PREFIX + "CARRIER_PROXY"
    if name not in values:
        return None
    parts = urls.parse(values[name])
    has_more = parts is not None and (parts.path not in {"", "/"} or bool(parts.query or parts.fragment))
    if parts is None or parts.scheme not in {"http", "https"} or not urls.is_host(parts.host) or has_more:
        raise OperatorError(f"{name} is no address of a proxy: write it as http://user:password@host:3128.")
    return values[name]


def _smtp(values: Mapping[str, str], public_url: str) -> Smtp | None:
    """Read how mails are sent. An error never repeats the URL, which may hold the password."""
    sender_name, sender_address = _mail_from(values, public_url)
    name = PREFIX + "SMTP_URL"
    if name not in values:
        return None
    parts = urls.parse(values[name])
    if parts is None:
        raise OperatorError(f"{name} has no host or port that can be read: {_SMTP_SHAPE}")
    host, port = parts.host, parts.port
    if parts.scheme not in {"smtp", "smtps"}:
        raise OperatorError(
            f"{name} must begin with smtp:// or, for TLS from the start, with smtps://: {_SMTP_SHAPE}"
        )
    # The URL is read without its line breaks and tabs, so that it has to be looked at whole.
    is_plain = _VISIBLE.fullmatch(values[name]) is not None
    has_more = parts.path not in {"", "/"} or bool(parts.query or parts.fragment)
    if has_more or not is_plain or not urls.is_host(host) or port == 0:
        raise OperatorError(f"{name} is no address of a mail server: {_SMTP_SHAPE}")
    user, password = _credential(parts.user), _credential(parts.password)
    if (user is None) != (password is None) or ("@" in parts.authority and user is None):
        raise OperatorError(f"The user and password of {name} cannot be read: {_SMTP_SHAPE}")
    if parts.scheme == "smtps":
        encryption, usual_port = Encryption.FROM_START, _SMTPS_PORT
    else:
        # On this machine nobody listens in.
        needs_tls = password is not None and not urls.is_loopback(host)
        encryption = Encryption.REQUIRED if needs_tls else Encryption.WHEN_OFFERED
        usual_port = _SMTP_PORT if user is None else _SUBMISSION_PORT
    return Smtp(host, port or usual_port, encryption, user, password, sender_name, sender_address)


def _credential(text: str | None) -> str | None:
    """Undo the percent-encoding; None where nothing is given, or nothing that a mail server accepts."""
    decoded = None if text is None else urls.unescape(text)
    return decoded if decoded is not None and _CREDENTIAL.fullmatch(decoded) else None


def _mail_from(values: Mapping[str, str], public_url: str) -> tuple[str, str]:
    name = PREFIX + "MAIL_FROM"
    if name not in values:
        return "Tumira", f"no-reply@{_mail_domain(public_url)}"
    text = values[name].strip()
    named = _NAMED_ADDRESS.fullmatch(text)
    address = named["address"] if named else text
    sender_name = (named["quoted"] or named["name"] or "").strip() if named else ""
    if not MAIL_ADDRESS.fullmatch(address) or not sender_name.isprintable():
        raise OperatorError(f"{name} is {values[name]!r}: {_MAIL_FROM_SHAPE}")
    return sender_name, address


def _mail_domain(public_url: str) -> str:
    parts = urls.parse(public_url)
    host = "" if parts is None else parts.host
    try:
        address = ip_address(host)
    except ValueError:
        return host if urls.is_host_name(host) else "localhost"
    # RFC 5321, section 4.1.3.
    return f"[IPv6:{address}]" if address.version == 6 else f"[{address}]"  # noqa: PLR2004 - IP's own number


def _local_url(host: str, port: int) -> str:
    address = _OWN_ADDRESS.get(host, host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _data_dir(values: Mapping[str, str]) -> Path:
    try:
        return Path(values.get(PREFIX + "DATA_DIR") or _default_data_dir(values)).expanduser().absolute()
    except RuntimeError as error:
        raise OperatorError("There is no home directory here: set TUMIRA_DATA_DIR to a directory.") from error


def _default_data_dir(values: Mapping[str, str]) -> str:
    if os.geteuid() == 0:
        return "/var/lib/tumira"
    return str(Path(values.get("XDG_DATA_HOME", "~/.local/share")) / "tumira")
