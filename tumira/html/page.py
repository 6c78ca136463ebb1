"""Pages: templates, assets, security headers and how values are written."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tumira.core import money, translation
from tumira.core.ids import write_id
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.pricing.phone_numbers import write_phone

HERE: Final = Path(__file__).parent
# Harare and Johannesburg, all year.
LOCAL: Final = timezone(timedelta(hours=2), "CAT")
_CENT: Final = Decimal("0.01")

_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
# A browser keeps no copy of a page behind the sign-in.
PRIVATE: Final = {"Cache-Control": "no-store"}

ASSET_PREFIX: Final = "/static/"
_ASSET_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_CACHED_FOREVER: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Asset:
    path: str
    media_type: str
    plain: bytes
    compressed: bytes


def read_asset(file: Path) -> Asset:
    plain = file.read_bytes()
    path = f"{ASSET_PREFIX}{file.stem}.{sha256(plain).hexdigest()[:12]}{file.suffix}"
    return Asset(path, _ASSET_TYPES[file.suffix], plain, gzip.compress(plain, 9, mtime=0))


class Assets:
    """The stylesheets, scripts and images of some folders.

    A file's address holds a hash of its content, so a browser may cache it for ever.
    """

    def __init__(self, *folders: Path) -> None:
        self._named = {
            file.name: read_asset(file)
            for folder in folders
            for file in sorted(folder.iterdir())
            if file.suffix in _ASSET_TYPES
        }
        self._at: Mapping[str, Asset] = {asset.path: asset for asset in self._named.values()}

    def path(self, name: str) -> str:
        return self._named[name].path

    def find(self, path: str) -> Asset | None:
        return self._at.get(path)


def asset_route(*folders: Assets) -> Route:

    async def answer(request: Request) -> Response:
        asset = next(filter(None, (assets.find(request.url.path) for assets in folders)), None)
        if asset is None:
            raise HTTPException(404)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = {**_CACHED_FOREVER, "Content-Encoding": "gzip"}
            return Response(asset.compressed, media_type=asset.media_type, headers=headers)
        return Response(asset.plain, media_type=asset.media_type, headers=_CACHED_FOREVER)

    return Route(ASSET_PREFIX + "{name}", answer)


@cache
def stylesheet(own: Path) -> bytes:
    """Return a page's stylesheet: the shared rules first, so that the page's own rules win."""
    return (HERE / "static" / "base.css").read_bytes() + b"\n" + own.read_bytes()


class Templates:
    """The templates and assets of the dashboard or the console, on top of the shared ones."""

    def __init__(
        self,
        folder: Path,
        support: Support = NO_SUPPORT,
        filters: Mapping[str, Callable[..., str]] | None = None,
        **shared: Any,
    ) -> None:
        self.assets = Assets(HERE / "static", folder / "static")
        self._environment = Environment(
            loader=FileSystemLoader([folder / "templates", HERE / "templates"]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.i18n"],
        )
        self._environment.policies["ext.i18n.trimmed"] = True
        install = self._environment.install_gettext_callables  # type: ignore[attr-defined]
        install(translation._, translation.ngettext, newstyle=True)
        # `shared` are values that every template may use, such as what the operator has set up.
        self._environment.globals |= {"asset": self.assets.path, "contacts": support.contacts, **shared}
        self._environment.filters |= {
            "usd": write_usd,
            "cost": write_cost,
            "exact_usd": write_exact_usd,
            "price": write_price,
            "count": write_count,
            "moment": write_moment,
            "minute": write_minute,
            "clock": write_clock,
            "phone": write_phone,
            "machine_time": write_machine_time,
            "plural": write_plural,
            "id": lambda id_, prefix: write_id(prefix, id_),
            **(filters or {}),
        }

    def render(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)

    def page(
        self,
        template: str,
        status: int = 200,
        headers: Mapping[str, str] = PRIVATE,
        **values: Any,
    ) -> HTMLResponse:
        return HTMLResponse(self.render(template, **values), status, headers={**HEADERS, **headers})


def write_usd(amount: Decimal) -> str:
    """Write whole cents. A part of a cent is left out: no balance is shown as larger than it is."""
    return _write_dollars(f"{amount.quantize(_CENT, ROUND_FLOOR):z.2f}")


def write_cost(amount: Decimal) -> str:
    """Write whole cents for a cost or its refund. A part of a cent counts whole: no cost is shown too low."""
    return _write_dollars(f"{amount.quantize(_CENT, ROUND_CEILING):z.2f}")


def write_exact_usd(amount: Decimal) -> str:
    """Write whole cents where that is exact, else all four decimals, as the ledger does."""
    return _write_dollars(money.write(amount).removesuffix("00"))


def _write_dollars(text: str) -> str:
    whole, _, decimals = text.partition(".")
    sign, digits = ("\N{MINUS SIGN}", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{sign}US${int(digits):,}.{decimals}"


def write_price(amount: Decimal) -> str:
    """Write a price per segment, as in `US$0.04` and `US$0.019`."""
    text = money.write(amount).rstrip("0")
    whole, _, decimals = text.partition(".")
    return f"US${whole}.{decimals:0<2}"


def write_count(number: int) -> str:
    return f"{number:,}"


def write_plural(number: int, one: str, many: str | None = None) -> str:
    """Write a number with its noun, as in `1 segment` and `2 segments`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def write_moment(at: datetime) -> str:
    """Write local time, which is the same in both countries."""
    return at.astimezone(LOCAL).strftime("%-d %b %Y, %H:%M:%S")


def write_minute(at: datetime) -> str:
    """Write local time for a list, without the year where it is this one."""
    local = at.astimezone(LOCAL)
    is_this_year = local.year == datetime.now(LOCAL).year
    return local.strftime("%-d %b, %H:%M" if is_this_year else "%-d %b %Y")


def write_clock(at: datetime) -> str:
    """Write a time of today, or of last night."""
    return at.astimezone(LOCAL).strftime("%H:%M")


def write_machine_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
