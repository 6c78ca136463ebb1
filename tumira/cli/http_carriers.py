"""Input and output of carrier commands for carriers over HTTP: profiles, settings, secrets and trials."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tumira.carriers import http_store as http_carriers
from tumira.carriers.http.access import callback_url, read_profile
from tumira.carriers.http.profile import Profile, load_profile, profile_names
from tumira.carriers.manage import new_access
from tumira.carriers.store import Carrier, HttpAccess
from tumira.cli.output import load_settings
from tumira.core.errors import OperatorError
from tumira.delivery.http import trial
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

SECRETS_BYTES_MAX: Final = 16 * 1024
PROFILE_BYTES_MAX: Final = 256 * 1024
STANDARD_INPUT: Final = "-"
TRIAL_TEXT: Final = "Test message from your SMS gateway."


def read_access(url: str, profile: str, given: Sequence[str], secrets_file: str | None) -> HttpAccess:
    """Read the description of a carrier; an error repeats no secret."""
    name, text = profile, None
    if profile.endswith(".toml"):
        text = _read_file("--profile", profile, PROFILE_BYTES_MAX)
        name = Path(profile).stem
    try:
        described = read_profile(name, text)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    if text is not None:
        name = described.name
    options = _read_pairs("--set", given)
    return new_access(name, url, options, _read_secrets(described, secrets_file), text)


def _read_secrets(profile: Profile, secrets_file: str | None) -> Mapping[str, str]:
    if secrets_file is None and sys.stdin.isatty():
        return _ask_secrets(profile)
    text = _read_file("--secrets-file", secrets_file or STANDARD_INPUT, SECRETS_BYTES_MAX)
    lines = [line.strip() for line in text.splitlines()]
    return _read_pairs("The secrets", [line for line in lines if line and not line.startswith("#")])


def _ask_secrets(profile: Profile) -> Mapping[str, str]:
    """Ask for each secret at the terminal; none at all means those that are stored."""
    answers = {
        name: str(click.prompt(setting.title, hide_input=True, default="", show_default=False, err=True))
        for name, setting in profile.settings.settings.items()
        if setting.secret
    }
    return {name: answer for name, answer in answers.items() if answer}


def _read_pairs(what: str, given: Sequence[str]) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        # Not repeated: it may be a secret.
        if not sign or not name.strip():
            raise OperatorError(f"{what}: write KEY=VALUE.")
        if name.strip() in pairs:
            raise OperatorError(f"{what}: a key is given twice.")
        pairs[name.strip()] = value.strip()
    return pairs


def _read_file(option: str, file: str, bytes_max: int) -> str:
    try:
        if file == STANDARD_INPUT:
            read = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as handle:
                read = handle.read(bytes_max + 1)
        text = read.decode()
    except (OSError, ValueError) as error:
        # Neither the error nor the name: one quotes what it read, and the other may be a secret itself.
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OperatorError(f"The file of {option} cannot be read ({reason}).") from None
    if len(read) > bytes_max:
        raise OperatorError(f"The file of {option} has more than {bytes_max // 1024} KiB.")
    return text


def list_profiles() -> Sequence[Mapping[str, Any]]:
    return [_profile(load_profile(name)) for name in profile_names()]


def _profile(profile: Profile) -> Mapping[str, Any]:
    settings = profile.settings.settings
    return {
        "profile": profile.name,
        "title": profile.title,
        "url": profile.base or None,
        "settings": [name for name, one in settings.items() if not one.secret],
        "secrets": [name for name, one in settings.items() if one.secret],
    }


async def describe(database: Database, carrier: Carrier) -> Mapping[str, Any]:
    """Return what is shown of a carrier over HTTP besides what all carriers have; nothing for SMPP."""
    access = carrier.http
    if access is None:
        return {}
    async with database.connection() as connection:
        balances = await http_carriers.list_balances(connection)
    balance = next((one for one in balances if one.carrier_id == carrier.id), None)
    return {
        "profile": access.profile,
        "settings": [f"{name}={value}" for name, value in sorted(access.options.items())],
        "window": carrier.settings.window_size,
        "tps": carrier.settings.tps,
        "source": carrier.settings.source or None,
        "in_doubt": carrier.settings.in_doubt,
        "doubt_wait": carrier.settings.doubt_wait_s,
        "secrets": sorted(access.secrets),
        "callback_url": callback_url(load_settings().public_url, access),
        "balance": None if balance is None else balance.amount,
        "currency": None if balance is None else balance.currency or None,
        "balance_at": None if balance is None else balance.at,
    }


async def try_carrier(
    database: Database, carrier: Carrier, to: str | None, text: str | None, wait_s: float
) -> tuple[str, Mapping[str, Any]]:
    """Try a carrier over HTTP; return a title and what was found."""
    assert carrier.http is not None
    settings = load_settings()
    shown = {"name": carrier.name, "url": carrier.http.url, "profile": carrier.http.profile}
    if to is None:
        checked = await trial.check_access(carrier, proxy=settings.carrier_proxy)
        found = {"answer_ms": checked.answer_ms, "balance": checked.balance, "currency": checked.currency}
        return "The carrier knows us. Nothing was sent.", {**shown, **found}
    async with database.connection() as connection:
        number = read_phone(await get_tariff(connection), to)
    if number is None:
        raise OperatorError("--to: give a mobile number that you can send to, such as +263771200001.")
    sent = await trial.send_trial(
        database,
        carrier,
        number,
        text or TRIAL_TEXT,
        public_url=settings.public_url,
        wait_s=wait_s,
        proxy=settings.carrier_proxy,
    )
    answer = sent.answer
    return (
        "The carrier answered.",
        {
            **shown,
            "verdict": str(answer.verdict),
            "detail": answer.detail or None,
            "carrier_ref": answer.carrier_ref or None,
            "answer_ms": sent.answer_ms,
            "segments": answer.segments,
            "cost": None if answer.cost is None else str(answer.cost),
            "receipt": sent.state,
        },
    )
