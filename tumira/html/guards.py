"""The refusal of cross-site writes, 404 for what is missing, and the address that limits count against.

A browser names the site that a request comes from (`Sec-Fetch-Site`), or at least a form's `Origin`. A write
from another site is refused before the session is read. A request with neither header does not come from a
browser, so it carries no cookies against its user's will.
"""

from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tumira.core.translation import _

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# The half of an IPv6 address that a subscriber is given; the other half is theirs to choose.
_NETWORK_BITS: Final = 64

Value = TypeVar("Value")


def refuse_foreign_writes(request: Request, public_url: str) -> None:
    if request.method in READING:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        foreign = site not in {"same-origin", "none"}
    else:
        foreign = origin is not None and not _is_own(request, origin, public_url)
    if foreign:
        raise HTTPException(
            403,
            _("This came from another site, so nothing was changed. Open the page here and try again"),
        )


def _is_own(request: Request, origin: str, public_url: str) -> bool:
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        return False
    # A proxy may have ended the TLS, so the scheme that we see need not be the browser's.
    return bool(host) and host in {request.headers.get("host", ""), urlsplit(public_url).netloc}


def or_404(found: Value | None, missing: str) -> Value:
    """Return what was found; answer 404 with `missing` if there is nothing."""
    if found is None:
        raise HTTPException(404, missing)
    return found


def address_of(request: Request) -> str:
    """Return the address that limits count against; for IPv6 its network, which has many addresses."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS)) + f"/{_NETWORK_BITS}"
    return str(address)
