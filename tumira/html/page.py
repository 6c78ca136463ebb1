"""How does a page come together, and how does it leave? From templates, with headers that forbid much."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from tumira.core import money
from tumira.html.assets import Assets

HERE: Final = Path(__file__).parent
# Harare and Johannesburg, all year.
LOCAL: Final = timezone(timedelta(hours=2), "CAT")

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
# Nothing of a page that somebody signed in to see is left behind in the browser.
PRIVATE: Final = {"Cache-Control": "no-store"}


class Look:
    """The templates and files of one face, on top of those that all pages share."""

    def __init__(self, folder: Path) -> None:
        self.assets = Assets(HERE / "static", folder / "static")
        self._environment = Environment(
            loader=FileSystemLoader([folder / "templates", HERE / "templates"]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["asset"] = self.assets.path
        self._environment.filters |= {
            "usd": write_usd,
            "price": write_price,
            "count": write_count,
            "moment": write_moment,
            "machine_time": write_machine_time,
            "plural": write_plural,
        }

    def render(self, template: str, **values: Any) -> str:
        """Fill in a template."""
        return self._environment.get_template(template).render(values)

    def page(
        self,
        template: str,
        status: int = 200,
        headers: Mapping[str, str] = PRIVATE,
        **values: Any,
    ) -> HTMLResponse:
        """Answer with a page."""
        return HTMLResponse(self.render(template, **values), status, headers={**HEADERS, **headers})


def write_usd(amount: Decimal) -> str:
    """Write an amount for people: whole cents where that is exact, else all four decimals."""
    text = money.write(amount)
    whole, _, decimals = text.removesuffix("00").partition(".")
    sign, digits = ("\N{MINUS SIGN}", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{sign}US${int(digits):,}.{decimals}"


def write_price(amount: Decimal) -> str:
    """Write a price per segment, as in `US$0.04` and `US$0.019`."""
    text = money.write(amount).rstrip("0")
    whole, _, decimals = text.partition(".")
    return f"US${whole}.{decimals:0<2}"


def write_count(number: int) -> str:
    """Write a number with its thousands apart."""
    return f"{number:,}"


def write_plural(number: int, one: str, many: str | None = None) -> str:
    """Write a number with its noun, as in `1 segment` and `2 segments`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def write_moment(at: datetime) -> str:
    """Write a moment as people in both countries read it."""
    return at.astimezone(LOCAL).strftime("%-d %b %Y, %H:%M:%S")


def write_machine_time(at: datetime) -> str:
    """Write a moment for programs."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
