"""Looks up the networks of numbers that may have been ported, at a provider of the operator's choice.

A lookup delays no message: the network of a number is asked for after a message to it was accepted, and
counts from the next one on. It runs only where the operator has set an address.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec
import structlog

from tumira.core.ids import first_id
from tumira.core.loops import forever
from tumira.core.settings.networks import NetworkLookup
from tumira.delivery.networks import ported
from tumira.postgres.pool import Database
from tumira.pricing.networks import MobileNetwork, read_code

EVERY_S: Final = 5.0
# A call is on disk by then, whichever node accepted it.
BEHIND_MS: Final = 5_000
# Messages that are older are passed over, as after a pause.
BACK_MAX_MS: Final = 600_000
LOOKUPS_MAX: Final = 50
AT_ONCE_MAX: Final = 5
ANSWER_S: Final = 10.0
ANSWER_MAX: Final = 65_536
DEPTH_MAX: Final = 4

# As in `OK 655 10 0.0450`.
_WORDS: Final = re.compile(r"\b(6[0-9]{2})[ -]?([0-9]{2,3})\b")
_WHOLE: Final = ("mccmnc", "mcc_mnc", "network_code")
_HALVES: Final = (("mcc", "mnc"), ("mobile_country_code", "mobile_network_code"))

_log: Final = structlog.get_logger()


def read_answer(body: bytes) -> MobileNetwork | None:
    """Return the network that an answer names by its code: in JSON at any depth, or in a line of text."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return next(_find_in_text(body.decode("latin-1")), None)
    return next(_find(document, DEPTH_MAX), None)


def _find_in_text(text: str) -> Iterator[MobileNetwork]:
    for country, network in _WORDS.findall(text):
        found = read_code(country + network)
        if found is not None:
            yield found


def _find(item: Any, depth: int) -> Iterator[MobileNetwork]:
    if isinstance(item, list) and depth:
        for part in item:
            yield from _find(part, depth - 1)
    if not isinstance(item, dict):
        return
    fields = {key.lower(): part for key, part in item.items() if isinstance(part, str | int)}
    codes = [str(fields[name]) for name in _WHOLE if name in fields]
    for country, network in _HALVES:
        if country in fields and network in fields:
            codes.append(f"{fields[country]}{str(fields[network]).zfill(2)}")
    yield from (found for code in codes if (found := read_code(code)) is not None)
    if depth:
        for part in item.values():
            yield from _find(part, depth - 1)


class LookupWorker:
    def __init__(self, database: Database, settings: NetworkLookup) -> None:
        self._database = database
        self._settings = settings
        self._after: UUID | None = None

    async def run(self) -> None:
        timeout = httpx.Timeout(ANSWER_S)
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, headers=self._headers()) as client:
            await forever("look up networks", lambda: self._step(client), EVERY_S)

    def _headers(self) -> dict[str, str]:
        header = self._settings.header
        return {} if header is None else dict([header])

    async def _step(self, client: httpx.AsyncClient) -> float | None:
        """Look up the numbers of new messages, and store what is said of them."""
        now_ms = self._database.clock.now_ms()
        oldest = first_id(now_ms - BACK_MAX_MS)
        after = oldest if self._after is None else max(self._after, oldest)
        async with self._database.transaction() as connection:
            sent = await ported.list_sent(connection, after, first_id(now_ms - BEHIND_MS), LOOKUPS_MAX)
            claimed = await ported.claim_lookups(connection, [number for _, number in sent]) if sent else []
        self._after = sent[-1][0] if sent else after
        places = asyncio.Semaphore(AT_ONCE_MAX)
        found = await asyncio.gather(*(self._ask(client, places, number) for number in claimed))
        async with self._database.transaction() as connection:
            for number, network in zip(claimed, found, strict=True):
                if network is not None:
                    await ported.store_lookup(connection, number, network.key)
        return 0.0 if len(sent) == LOOKUPS_MAX else None

    async def _ask(
        self, client: httpx.AsyncClient, places: asyncio.Semaphore, number: int
    ) -> MobileNetwork | None:
        async with places:
            try:
                answer = await client.get(self._settings.url.replace("{number}", str(number)))
            except httpx.HTTPError as error:
                _log.warning("network lookup failed", problem=type(error).__name__)
                return None
        if answer.status_code != httpx.codes.OK or len(answer.content) > ANSWER_MAX:
            _log.warning("network lookup failed", status=answer.status_code)
            return None
        return read_answer(answer.content)
