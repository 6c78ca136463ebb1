"""Checks that a callback comes from the provider. Secrets are compared in constant time."""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal

from msgspec import Struct

from tumira.carriers.http.templates import BasicAuth, Leaf, Values
from tumira.carriers.http.values import CallbackRequest

SIGNATURE_METHODS: Final = ("md5hash", "md5", "sha1", "sha256", "sha512")
NETWORKS_MAX: Final = 64

Network = IPv4Network | IPv6Network


class CallbackCheck(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the provider proves itself. It applies once the operator has given the secret that it needs."""

    kind: Literal["header", "basic", "hmac", "twilio", "vonage"]
    header: str = "authorization"
    value: Leaf | None = None
    basic: BasicAuth | None = None
    key: Leaf | None = None
    method: Leaf | None = None
    prefix: str = ""
    encoding: Literal["hex", "base64"] = "hex"

    def __post_init__(self) -> None:
        field = {"header": "value", "basic": "basic"}.get(self.kind, "key")
        if getattr(self, field) is None:
            raise ValueError(f"the check {self.kind} needs {field}")
        if not any(name.startswith("secret.") for name in self.names):
            raise ValueError("a check needs a secret: {secret.NAME}")

    @property
    def names(self) -> tuple[str, ...]:
        parts = (self.value, self.basic, self.key, self.method)
        return tuple(name for part in parts if part is not None for name in part.names)

    def applies(self, values: Values) -> bool:
        return all(values[name] != "" for name in self.names if name.startswith("secret."))

    def check_settings(self, values: Values) -> None:
        """Raise a ValueError that says which setting to change."""
        known = SIGNATURE_METHODS if self.kind == "vonage" else SIGNATURE_METHODS[1:]
        if self.method is not None and self.method.fill_text(values) not in known:
            raise ValueError(f"The method of the callback's check must be one of {', '.join(known)}.")

    def passes(self, request: CallbackRequest, fields: Mapping[str, str], values: Values) -> bool:
        """Tell whether a callback is genuine; `fields` are those of its form or query."""
        # An empty value or key would be known to everybody.
        if any(leaf is not None and not leaf.fill_text(values) for leaf in (self.value, self.key)):
            return False
        match self.kind:
            case "header":
                assert self.value is not None
                given, wanted = request.headers.get(self.header.lower(), ""), self.value.fill_text(values)
            case "basic":
                assert self.basic is not None
                given, wanted = request.headers.get("authorization", ""), self.basic.header(values)
            case "hmac":
                assert self.key is not None
                method = "sha256" if self.method is None else self.method.fill_text(values)
                given = request.headers.get(self.header.lower(), "").removeprefix(self.prefix)
                given = given.lower() if self.encoding == "hex" else given
                wanted = sign_body(request.body, self.key.fill_text(values), method, self.encoding)
                # The query is not signed, so only a body is believed.
                if request.method == "GET" or not request.body:
                    return False
            case "twilio":
                assert self.key is not None
                # The body is what Twilio signs beside the address; the fields of a query are in the address.
                form = fields if request.method == "POST" else {}
                given = request.headers.get("x-twilio-signature", "")
                wanted = sign_twilio(full_url(request), form, self.key.fill_text(values))
            case "vonage":
                assert self.key is not None
                method = "md5hash" if self.method is None else self.method.fill_text(values)
                given = fields.get("sig", "").lower()
                wanted = sign_vonage(fields, self.key.fill_text(values), method)
        return hmac.compare_digest(_octets(given), wanted.encode())


def _octets(text: str) -> bytes:
    """Encode what a caller sent, which may hold halves of surrogate pairs."""
    return text.encode(errors="backslashreplace")


def full_url(request: CallbackRequest) -> str:
    return f"{request.public_url}?{request.query}" if request.query else request.public_url


def sign_body(body: bytes, key: str, method: str, encoding: str) -> str:
    signed = hmac.new(key.encode(), body, method)
    return signed.hexdigest() if encoding == "hex" else b64encode(signed.digest()).decode()


def sign_twilio(url: str, form: Mapping[str, str], token: str) -> str:
    """Sign the address as called, followed by all names and values in the order of the names."""
    text = url + "".join(name + form[name] for name in sorted(form))
    return b64encode(hmac.new(token.encode(), _octets(text), hashlib.sha1).digest()).decode()


def sign_vonage(fields: Mapping[str, str], secret: str, method: str) -> str:
    """Sign all fields but `sig`, in the order of their names; `md5hash` puts the secret behind them."""
    text = "".join(
        f"&{name}={fields[name].replace('&', '_').replace('=', '_')}"
        for name in sorted(fields)
        if name != "sig"
    )
    if method == "md5hash":
        return hashlib.md5(_octets(text + secret), usedforsecurity=False).hexdigest()
    return hmac.new(secret.encode(), _octets(text), method).hexdigest()


def parse_networks(text: str) -> Sequence[Network]:
    """Read addresses and networks separated by commas; a ValueError says what to change."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > NETWORKS_MAX:
        raise ValueError(f"callback_addresses may have at most {NETWORKS_MAX} entries")
    try:
        return [ip_network(word) for word in words]
    except ValueError:
        raise ValueError("callback_addresses must list addresses or networks such as 192.0.2.0/24") from None


def is_among(address: str, networks: Sequence[Network]) -> bool:
    try:
        caller = ip_address(address)
    except ValueError:
        return False
    if isinstance(caller, IPv6Address) and caller.ipv4_mapped is not None:
        caller = caller.ipv4_mapped
    return any(caller.version == network.version and caller in network for network in networks)
