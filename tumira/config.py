"""Which settings are there, and what are they? Read once at the start and passed down."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from tumira.errors import Trouble

PREFIX: Final = "TUMIRA_"
PORT_MAX: Final = 65_535
# The port that carriers' SMPP servers listen on by custom.
SIMULATOR_PORT: Final = 2775

# Where a process that listens on every address can be reached from the same machine.
_OWN_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


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

    @property
    def local_url(self) -> str:
        """Return where the web process answers on this machine, whatever stands in front of it."""
        return _local_url(self.host, self.port)


def load(environment: Mapping[str, str] | None = None, env_file: Path = Path(".env")) -> Settings:
    """Read the settings from the environment, and from `.env` in the working directory where it is silent."""
    given = os.environ if environment is None else environment
    # A name without a value is as good as absent: an empty host would listen on every address.
    values = {name: value for name, value in (_read(env_file) | dict(given)).items() if value}
    port = _port(PREFIX + "PORT", values.get(PREFIX + "PORT", "8080"))
    host = values.get(PREFIX + "HOST", "127.0.0.1")
    database_url = values.get(PREFIX + "DATABASE_URL")
    return Settings(
        data_dir=_data_dir(values),
        database_url=database_url,
        host=host,
        port=port,
        public_url=values.get(PREFIX + "PUBLIC_URL", _local_url(host, port)).rstrip("/"),
        trusted_proxies=values.get(PREFIX + "TRUSTED_PROXIES", ""),
        log_level=values.get(PREFIX + "LOG_LEVEL", "info").lower(),
        simulator_port=_simulator_port(values, port, database_url),
        webhooks_allow_private=_switch(PREFIX + "WEBHOOKS_ALLOW_PRIVATE", values),
    )


def _read(env_file: Path) -> dict[str, str]:
    try:
        return {name: value for name, value in dotenv_values(env_file).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(
            f"{env_file.absolute()} cannot be read ({error}): put that right or remove it."
        ) from error


def _port(name: str, text: str) -> int:
    # Not 0, for which the system would choose a port that nobody else knows.
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= PORT_MAX):
        raise Trouble(f"{name} is {text!r}; it must be a number from 1 to {PORT_MAX}.")
    return int(text)


def _switch(name: str, values: Mapping[str, str]) -> bool:
    text = values.get(name, "0")
    if text not in {"0", "1"}:
        raise Trouble(f"{name} is {text!r}; it must be 1 for yes or 0 for no.")
    return text == "1"


def _simulator_port(values: Mapping[str, str], web_port: int, database_url: str | None) -> int | None:
    """Return where the simulator listens: a database of the operator's own is no place for trials."""
    name = PREFIX + "SIMULATOR_PORT"
    if name not in values and database_url is not None:
        return None
    port = _port(name, values.get(name, str(SIMULATOR_PORT)))
    if port == web_port:
        raise Trouble(f"TUMIRA_PORT and {name} are both {port}; give one of them another number.")
    return port


def _local_url(host: str, port: int) -> str:
    address = _OWN_ADDRESS.get(host, host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _data_dir(values: Mapping[str, str]) -> Path:
    try:
        return Path(values.get(PREFIX + "DATA_DIR") or _default_data_dir(values)).expanduser().absolute()
    except RuntimeError as error:
        raise Trouble("There is no home directory here: set TUMIRA_DATA_DIR to a directory.") from error


def _default_data_dir(values: Mapping[str, str]) -> str:
    if os.geteuid() == 0:
        return "/var/lib/tumira"
    return str(Path(values.get("XDG_DATA_HOME", "~/.local/share")) / "tumira")
