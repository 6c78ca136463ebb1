"""Short names of browsers, from their user agents."""

from typing import Final

from tumira.core.translation import _, mark

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
    ("iPhone", mark("an iPhone")),
    ("iPad", mark("an iPad")),
    ("Android", "Android"),
    ("KAIOS", "KaiOS"),
    ("Windows", "Windows"),
    ("CrOS", mark("a Chromebook")),
    ("Macintosh", mark("a Mac")),
    ("Linux", "Linux"),
)


def describe(user_agent: str) -> str:
    """Return the browser and its system, such as `Chrome on Android`, as far as it names them."""
    browser = next((name for part, name in _BROWSERS if part in user_agent), _("Unknown browser"))
    system = next((name for part, name in _SYSTEMS if part in user_agent), None)
    if system is None:
        return browser
    return _("{browser} on {system}").format(browser=browser, system=_(system))
