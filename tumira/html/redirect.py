"""Where does a page stand in the navigation, and where is a browser sent on to?"""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import RedirectResponse

from tumira.html.page import HEADERS, PRIVATE


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation."""

    path: str
    name: str
    icon: str


def place_of(path: str, navigation: Sequence[Place]) -> str:
    """Return the entry of the navigation under which a page stands."""
    above = [place.path for place in navigation if path == place.path or path.startswith(place.path + "/")]
    return max(above, key=len, default="")


def go(path: str) -> RedirectResponse:
    """Send the browser on to a page of ours, to be read."""
    return RedirectResponse(path, 303, headers={**HEADERS, **PRIVATE})
