"""What does the API look like, in OpenAPI's words?"""


def document() -> bytes:
    """Return the OpenAPI document."""
    return b"{}"
