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


def load(environment: Mapping[str, str] | None = None, env_file: Path = Path(".env")) -> Settings:
    """Read the settings from the environment, and from `.env` in the working directory where it is silent."""
    given = os.environ if environment is None else environment
    values = {name: value for name, value in dotenv_values(env_file).items() if value is not None} | dict(
        given
    )
    port = _port(values.get(PREFIX + "PORT", "8080"))
    host = values.get(PREFIX + "HOST", "127.0.0.1")
    shown_host = f"[{host}]" if ":" in host else host
    return Settings(
        data_dir=Path(values.get(PREFIX + "DATA_DIR") or _default_data_dir(values)).expanduser().absolute(),
        database_url=values.get(PREFIX + "DATABASE_URL") or None,
        host=host,
        port=port,
        public_url=(values.get(PREFIX + "PUBLIC_URL") or f"http://{shown_host}:{port}").rstrip("/"),
        trusted_proxies=values.get(PREFIX + "TRUSTED_PROXIES", ""),
        log_level=values.get(PREFIX + "LOG_LEVEL", "info").lower(),
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= PORT_MAX):
        raise Trouble(f"TUMIRA_PORT is {text!r}; it must be a number from 0 to {PORT_MAX}.")
    return int(text)


def _default_data_dir(values: Mapping[str, str]) -> str:
    if os.geteuid() == 0:
        return "/var/lib/tumira"
    home = values.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return str(Path(home) / "tumira")
