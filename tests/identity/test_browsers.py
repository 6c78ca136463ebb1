"""Short names of browsers."""

import pytest

from tumira.identity.browsers import describe

ANDROID = "Mozilla/5.0 (Linux; Android 14; SM-A155F) AppleWebKit/537.36 (KHTML, like Gecko) "


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (ANDROID + "Chrome/130.0.0.0 Mobile Safari/537.36", "Chrome on Android"),
        (ANDROID + "SamsungBrowser/26.0 Chrome/122.0 Mobile Safari/537.36", "Samsung Internet on Android"),
        (ANDROID + "Chrome/130.0 Mobile Safari/537.36 OPR/85.0", "Opera on Android"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit Chrome/130.0 Safari/537.36 Edg/130.0",
            "Edge on Windows",
        ),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0", "Firefox on Linux"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit Version/18.1 Safari/604.1",
            "Safari on an iPhone",
        ),
        ("", "Unknown browser"),
        ("<script>Windows</script>", "Unknown browser on Windows"),
    ],
)
def test_a_browser_is_told_in_words(user_agent: str, words: str) -> None:
    assert describe(user_agent) == words
