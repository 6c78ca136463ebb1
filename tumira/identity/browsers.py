"""Short names of browsers, from their user agents."""

from typing import Final

# Most pretend to be others as well, so the first that is found counts.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Opera Mini", "Opera Mini"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("UCBrowser/", "UC Browser"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("iPhone", "an iPhone"),
    ("iPad", "an iPad"),
    ("Android", "Android"),
    ("KAIOS", "KaiOS"),
    ("Windows", "Windows"),
    ("CrOS", "a Chromebook"),
    ("Macintosh", "a Mac"),
    ("Linux", "Linux"),
)


def describe(user_agent: str) -> str:
    """Return the browser and its system, such as `Chrome on Android`, as far as it names them."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), None)
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), None)
    if browser is None:
        return "An unknown browser" if system is None else f"An unknown browser on {system}"
    return browser if system is None else f"{browser} on {system}"
