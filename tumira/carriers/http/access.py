"""Opens carriers over HTTP as they are stored, and reads the settings that the engine has of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tumira.carriers import url as carrier_url
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.profile import Profile, load_profile, parse_profile
from tumira.carriers.store import HttpAccess
from tumira.carriers.url import CarrierSettings
from tumira.core import urls
from tumira.core.translation import _

# Where the provider reports what became of messages.
HOOKS: Final = "/hooks/carriers/"

# Calls under way and messages a second, unless the operator says otherwise.
_DEFAULTS: Final = {"window": "10", "tps": "50"}
_ENGINE_OPTIONS: Final = ("window", "tps", "source", "in_doubt", "doubt_wait", "refund", "sender_fallback")
# A callback may be lost or not believed, so a message is asked about although the profile does not poll.
_SAFETY_AGES_S: Final = (6 * 3600, 24 * 3600)
_PORTS: Final = {"https": 443, "http": 80}


def read_profile(name: str, text: str | None) -> Profile:
    """Return one of our profiles, or the operator's own; a ValueError says what is wrong with it."""
    return load_profile(name) if text is None else parse_profile(text)


def open_carrier(access: HttpAccess) -> HttpCarrier:
    """Return a carrier that writes requests and reads answers; a ValueError names the setting at fault."""
    profile = read_profile(access.profile, access.profile_text)
    return HttpCarrier(profile, access.url, own_options(access), access.secrets)


def own_options(access: HttpAccess) -> Mapping[str, str]:
    """Return the options of the profile, without those of the engine."""
    return {name: value for name, value in access.options.items() if name not in _ENGINE_OPTIONS}


def read_settings(access: HttpAccess, http: HttpCarrier) -> CarrierSettings:
    """Return the settings of the engine; a ValueError says in one sentence what to change."""
    parts = urls.parse(access.url)
    assert parts is not None, "checked by the carrier"
    given = {name: value for name, value in access.options.items() if name in _ENGINE_OPTIONS}
    defaults = {**_DEFAULTS, "in_doubt": http.in_doubt, "doubt_wait": str(http.doubt_wait_s)}
    settings = carrier_url.read_options({**defaults, **given})
    if settings.in_doubt == "look" and not http.looks_by_reference:
        raise ValueError(
            _("This provider cannot be asked for a message in doubt: in_doubt must be resend or hold.")
        )
    if settings.sender_fallback and http.safe_repeat:
        # The second call would be taken for a repetition of the first.
        raise ValueError(_("sender_fallback must be 0: this provider takes a second call for the first one."))
    return replace(
        settings,
        host=parts.host,
        port=parts.port or _PORTS[parts.scheme],
        tls=parts.scheme == "https",
        # The provider has a default of its own.
        source=settings.source if "source" in given else "",
    )


def callback_url(public_url: str, access: HttpAccess) -> str:
    return public_url + HOOKS + access.hook_token


def poll_ages(http: HttpCarrier) -> Sequence[int]:
    """Return how many seconds after the claim a carrier is asked for the outcome of a message."""
    can_look = http.looks_by_id or http.looks_by_reference
    return http.polls or (_SAFETY_AGES_S if can_look else ())
