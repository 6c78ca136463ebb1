"""The public address: whether it leads here, and what a node sees of callers behind a proxy."""

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import ip_address, ip_network
from typing import Final

import httpx
import msgspec

from tumira.core.settings import Settings
from tumira.operations.doctor.clock import judge_offset
from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning
from tumira.operations.doctor.mirror import HEADER, SeenRequest, new_token, write_token
from tumira.operations.doctor.store import holding
from tumira.postgres.pool import Database

ANSWER_S: Final = 5.0
# An address that no caller can have (RFC 5737): a node that believes it believes anyone.
FORGED: Final = "192.0.2.77"
# The time in an answer is that of the last whole second.
DATE_S: Final = 1.0

_ALL: Final = "TUMIRA_TRUSTED_PROXIES trusts every address, so every caller can pretend to be another."
_NAME_PROXIES: Final = "Name the addresses of your proxies only."


class _Health(msgspec.Struct):
    seen: SeenRequest | None = None


@dataclass(frozen=True, slots=True)
class PublicAnswer:
    """The answer of the public address, and our end of the connection to it."""

    status: int
    date: str | None
    location: str | None
    seen: SeenRequest | None
    own: tuple[str, int]


async def check_public_url(settings: Settings, database: Database | None) -> Sequence[Diagnosis]:
    found = list(judge_trusted(settings.trusted_proxies))
    token = new_token()
    try:
        if database is None:
            answer = await ask(settings.public_url, token)
        else:
            async with holding(database, token):
                answer = await ask(settings.public_url, token)
    except httpx.HTTPError as error:
        return [*found, explain(settings, error)]
    found.append(judge_answer(settings, answer, knows_database=database is not None))
    if answer.seen is not None:
        found.append(judge_seen(settings, answer.seen, answer.own))
    if answer.date is not None:
        found.append(_judge_date(answer.date))
    return found


async def ask(url: str, token: int) -> PublicAnswer:
    """Ask a node through the public address, as a caller that pretends to speak for another one."""
    headers = {HEADER: write_token(token), "X-Forwarded-For": FORGED}
    async with (
        httpx.AsyncClient(
            timeout=ANSWER_S, trust_env=False, verify=ssl.create_default_context(), follow_redirects=False
        ) as client,
        client.stream("GET", f"{url}/healthz", headers=headers) as response,
    ):
        own = response.extensions["network_stream"].get_extra_info("client_addr")
        body = await response.aread()
        return PublicAnswer(
            status=response.status_code,
            date=response.headers.get("date"),
            location=response.headers.get("location"),
            seen=_read(body),
            own=(own[0], own[1]),
        )


def _read(body: bytes) -> SeenRequest | None:
    try:
        return msgspec.json.decode(body, type=_Health).seen
    except msgspec.DecodeError:
        return None


def is_trusted(address: str, trusted: str) -> bool:
    """Tell whether TUMIRA_TRUSTED_PROXIES names an address."""
    try:
        networks = [ip_network(part.strip()) for part in trusted.split(",")]
        return any(ip_address(address) in network for network in networks)
    except ValueError:
        return False


def judge_trusted(trusted: str) -> Sequence[Diagnosis]:
    """Refuse to trust every address, whether or not a proxy can be asked."""
    for part in filter(None, (one.strip() for one in trusted.split(","))):
        if part == "*":
            return [problem("proxy", _ALL, _NAME_PROXIES)]
        try:
            network = ip_network(part, strict=False)
        except ValueError:
            words = f"TUMIRA_TRUSTED_PROXIES has {part!r}, which is neither an address nor a network."
            return [
                problem("proxy", words, "Write addresses, as in 10.0.0.5, or networks, as in 10.0.0.0/24.")
            ]
        if network.prefixlen == 0:
            return [problem("proxy", _ALL, _NAME_PROXIES)]
        if str(network) not in {part, f"{part}/{network.max_prefixlen}"}:
            words = f"TUMIRA_TRUSTED_PROXIES has {part}, which is ignored: {network} is the network."
            return [problem("proxy", words, f"Write {network}.")]
    return []


def explain(settings: Settings, error: httpx.HTTPError) -> Diagnosis:
    """Say why the public address does not answer."""
    url = settings.public_url
    if url == settings.local_url:
        words = f"No web process answers at {url}."
        return warning(
            "public URL", words, "Start `tumira serve`, or set TUMIRA_PUBLIC_URL if web runs elsewhere."
        )
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        words = f"The certificate of {url} is not trusted: {cause.verify_message}."
        return problem("public URL", words, "Renew it, and have the proxy send the whole chain.")
    reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error)
    advice = (
        "Check TUMIRA_PUBLIC_URL, the name's DNS records, the proxy and its firewall. If this machine cannot "
        "reach its own public address, try the address from another machine."
    )
    return problem("public URL", f"{url} does not answer ({reason or type(error).__name__}).", advice)


def judge_answer(settings: Settings, answer: PublicAnswer, *, knows_database: bool) -> Diagnosis:
    url = settings.public_url
    if answer.status != httpx.codes.OK:
        if answer.location is not None:
            words = f"{url} redirects to {answer.location!r}."
            return problem(
                "public URL", words, "Set TUMIRA_PUBLIC_URL to the address that callers end up at."
            )
        words = f"{url}/healthz answers {answer.status}."
        return problem("public URL", words, "Start a web node, and check where the proxy passes requests to.")
    if answer.seen is not None:
        return ok("public URL", f"{url} leads to web process {answer.seen.node}.")
    if not knows_database:
        return warning("public URL", f"{url} answers.", "Whether it leads here is checked while Tumira runs.")
    words = f"{url} answers, but not as a web node of this database."
    return problem(
        "public URL", words, "Check where the name and the proxy lead, and the version of that node."
    )


def judge_seen(settings: Settings, seen: SeenRequest, own: tuple[str, int]) -> Diagnosis:
    """Judge what the node saw of our request, which named a forged address in X-Forwarded-For."""
    last = (seen.forwarded_for or "").rpartition(",")[2].strip()
    # A proxy that trusts the machine of this command rightly believes what we say.
    if seen.client == FORGED and (last == FORGED or not is_trusted(last, settings.trusted_proxies)):
        words = "Callers can forge their address: the node believes the X-Forwarded-For that we made up."
        advice = (
            "Have the proxy set X-Forwarded-For itself, and let TUMIRA_TRUSTED_PROXIES name only proxies."
        )
        return problem("proxy", words, advice)
    if seen.port == 0:
        return _judge_scheme(settings, seen)
    if (seen.client, seen.port) == own:
        return ok("proxy", "No proxy is in between; a forged X-Forwarded-For is ignored.")
    if seen.forwarded_for not in {None, FORGED}:
        words = f"A proxy passes on the callers' addresses, but {seen.client} is not trusted."
        advice = f"Set TUMIRA_TRUSTED_PROXIES={seen.client} (now {settings.trusted_proxies or 'not set'})."
        return problem("proxy", f"{words} All callers seem to come from there, and share its limits.", advice)
    words = f"Requests come from {seen.client} without the caller's address: all callers share its limits."
    advice = (
        "If that is a proxy, have it set X-Forwarded-For and X-Forwarded-Proto, and name it in "
        "TUMIRA_TRUSTED_PROXIES; deploy/ has examples."
    )
    if settings.trusted_proxies:
        return problem("proxy", words, advice)
    return warning("proxy", words, f"{advice} If it only translates addresses (NAT), nothing is wrong.")


def _judge_scheme(settings: Settings, seen: SeenRequest) -> Diagnosis:
    wanted = settings.public_url.partition(":")[0]
    if seen.scheme != wanted:
        words = f"The node sees {seen.scheme} where callers use {wanted}."
        return problem("proxy", words, f"Have the proxy set X-Forwarded-Proto to {wanted}.")
    return ok(
        "proxy", "The proxy passes on the callers' addresses and the scheme, and no caller can forge them."
    )


def _judge_date(text: str) -> Diagnosis:
    try:
        their_s = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return warning("clock", "The public URL answers with a date that cannot be read.", "Check the proxy.")
    return judge_offset(time.time() - their_s - DATE_S / 2, DATE_S / 2, "the clock behind the public URL")
