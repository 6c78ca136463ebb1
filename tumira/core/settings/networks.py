"""Settings of network lookups: where to ask for the network of a number."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tumira.core import urls
from tumira.core.errors import OperatorError

NUMBER: Final = "{number}"

_URL: Final = "TUMIRA_NETWORK_LOOKUP_URL"
_HEADER: Final = "TUMIRA_NETWORK_LOOKUP_HEADER"
_LINE: Final = re.compile(r"([A-Za-z0-9-]{1,64}): ?([\x20-\x7e]{1,1000})")


@dataclass(frozen=True, slots=True)
class NetworkLookup:
    """The address with a place for the number, and a header with the provider's key; both may be secret."""

    url: str = field(repr=False)
    header: tuple[str, str] | None = field(default=None, repr=False)


def read_network_lookup(values: Mapping[str, str]) -> NetworkLookup | None:
    """Read where networks are looked up; None where they are not. An error never repeats the address."""
    url = values.get(_URL)
    if url is None:
        return None
    parts = urls.parse(url.replace(NUMBER, "1"))
    if parts is None or parts.scheme not in {"http", "https"} or not parts.host or NUMBER not in url:
        raise OperatorError(
            f"{_URL} must be an address with a place for the number, as in https://host/{NUMBER}."
        )
    line = values.get(_HEADER)
    header = None if line is None else _LINE.fullmatch(line)
    if line is not None and header is None:
        raise OperatorError(f"{_HEADER} must be a name and a value, as in Authorization: Bearer secret.")
    return NetworkLookup(url, None if header is None else (header[1], header[2]))
