"""When a call is repeated, how long the client waits, and under which key each batch is sent."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Final

RECIPIENTS_MAX: Final = 1000

_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 8.0
_TRANSIENT: Final = frozenset({408, 429})
_SERVER_ERRORS: Final = 500
_REFUSALS: Final = 300
_REMAINING: Final = re.compile(r";\s*r=([0-9]{1,9})(?![0-9.])")
_RESET: Final = re.compile(r";\s*t=([0-9]{1,9})(?![0-9.])")


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and how long a call is tried: `timeout_s` for one try, `give_up_s` for all of them."""

    tries_max: int = 6
    timeout_s: float = 30.0
    give_up_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A try without a usable answer; `status` is None if nothing came, `retryable` if it was not ours."""

    status: int | None
    retryable: bool | None
    retry_after_s: float | None


def wait_s(policy: Policy, attempt: int, elapsed_s: float, failure: Failure, random: float) -> float | None:
    """Return how long to wait after a failed try, never less than `Retry-After`; None to give up."""
    if attempt >= policy.tries_max or not _is_transient(failure):
        return None
    backoff_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (attempt - 1)) * (0.5 + random / 2)
    chosen = (failure.retry_after_s or 0.0) + backoff_s
    return chosen if elapsed_s + chosen <= policy.give_up_s else None


def _is_transient(failure: Failure) -> bool:
    if failure.retryable is not None:
        return failure.retryable
    status = failure.status
    # A success that cannot be read is no answer: with the same key the next try gets it again.
    return status is None or status < _REFUSALS or status in _TRANSIENT or status >= _SERVER_ERRORS


def read_retry_after(value: str | None, now_s: float) -> float | None:
    """Read the header `Retry-After`: seconds or a date."""
    if value is None:
        return None
    if re.fullmatch("[0-9]{1,9}", value.strip()):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now_s)


def read_pause(value: str | None) -> float:
    """Return for how long the header `RateLimit` allows no further call."""
    pause = 0
    for policy in (value or "").split(","):
        remaining, reset = _REMAINING.search(policy), _RESET.search(policy)
        if remaining and reset and int(remaining[1]) == 0:
            pause = max(pause, int(reset[1]))
    return float(pause)


class Pacer:
    """Remembers until when the account has no calls left."""

    def __init__(self) -> None:
        self._not_before_s = 0.0

    def note(self, headers: Mapping[str, str], now_s: float, limited_for_s: float | None = None) -> None:
        pause = max(read_pause(headers.get("ratelimit")), limited_for_s or 0.0)
        if pause:
            self._not_before_s = max(self._not_before_s, now_s + pause)

    def pause_s(self, now_s: float) -> float:
        return max(0.0, self._not_before_s - now_s)


def chunks(numbers: Sequence[str], size: int = RECIPIENTS_MAX) -> Sequence[Sequence[str]]:
    """Split the distinct numbers, in their order, so that the same numbers always give the same batches."""
    distinct = list(dict.fromkeys(numbers))
    return [distinct[start : start + size] for start in range(0, len(distinct), size)]


def chunk_key(key: str, index: int) -> str:
    """Return the key of a batch: the first has the caller's own, so `send` with that key is the same call."""
    return key if index == 0 else sha256(f"{key} {index}".encode()).hexdigest()[:32]


def now_utc_s() -> float:
    return datetime.now(UTC).timestamp()
