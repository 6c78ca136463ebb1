"""How do developers read about the API?"""


def reference_page() -> str:
    """Return the reference page."""
    return "<!doctype html>"
