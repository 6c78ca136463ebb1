"""What does a page look like? As all of ours do, and then as its own stylesheet says."""

from functools import cache
from pathlib import Path
from typing import Final

BASE: Final = Path(__file__).parent / "static" / "base.css"


@cache
def stylesheet(own: Path) -> bytes:
    """Return a page's stylesheet: what all share first, so that the page's own rules win."""
    return BASE.read_bytes() + b"\n" + own.read_bytes()
