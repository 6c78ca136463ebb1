"""Redirects, and the current entry of the navigation."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import RedirectResponse

from tumira.html.page import HEADERS, PRIVATE


@dataclass(frozen=True, slots=True)
class NavItem:
    path: str
    name: str
    icon: str


def current_item(path: str, navigation: Sequence[NavItem]) -> str:
    """Return the path of the navigation entry that a page belongs to."""
    above = [item.path for item in navigation if path == item.path or path.startswith(item.path + "/")]
    return max(above, key=len, default="")


def redirect(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers={**HEADERS, **PRIVATE})
