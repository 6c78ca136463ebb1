"""Rules that say what an answer means: ordered, and the first that fits decides."""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct

from tumira.carriers.http.documents import DocumentPath, as_money, as_text
from tumira.carriers.http.values import HttpAnswer, Stop, SubmitAnswer, SubmitVerdict
from tumira.sending.lifecycle import FAILURE_REASONS

RULES_MAX: Final = 100
TESTS_MAX: Final = 8
WORDS_MAX: Final = 100

_CLASS: Final = re.compile(r"[1-5]xx")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_RETRY_AFTER_MAX_S: Final = 300.0

_STATUS_MIN: Final = 100
_STATUS_MAX: Final = 599

Test = Callable[[Any], bool]


class HttpStatuses:
    """A set of HTTP statuses: numbers, or classes such as `2xx`."""

    __slots__ = ("statuses",)

    def __init__(self, written: object) -> None:
        given = written if isinstance(written, list) else [written]
        found: set[int] = set()
        for one in given:
            if isinstance(one, str) and _CLASS.fullmatch(one):
                first = int(one[0]) * 100
                found.update(range(first, first + 100))
            elif type(one) is int and _STATUS_MIN <= one <= _STATUS_MAX:
                found.add(one)
            else:
                raise ValueError(f"{one!r} is no HTTP status: write a number, or a class such as 2xx")
        self.statuses: Final = frozenset(found)

    def __contains__(self, status: int) -> bool:
        return status in self.statuses


class Conditions:
    """Tests of values in a document, all of which must hold.

    A path is followed by a value, a list of values of which one must be there, or a table with `contains`,
    `prefix`, `exists` or `above`. Case is ignored.
    """

    __slots__ = ("tests",)

    def __init__(self, written: object) -> None:
        if not isinstance(written, dict):
            raise TypeError("write a table of paths and values")
        if len(written) > TESTS_MAX:
            raise ValueError(f"at most {TESTS_MAX} conditions")
        self.tests: Final = tuple((DocumentPath(path), _test(path, value)) for path, value in written.items())

    def hold(self, document: Any, *, fold: bool = False) -> bool:
        return all(test(path.find(document, fold=fold)) for path, test in self.tests)


def _test(path: str, written: object) -> Test:
    if not isinstance(written, dict):
        words = _words(path, written)
        return lambda value: _folded(value) in words
    if len(written) != 1:
        raise ValueError(f"{path}: write one of contains, prefix, exists and above")
    [(kind, wanted)] = written.items()
    match kind:
        case "exists" if isinstance(wanted, bool):
            return lambda value: (value is not None) == wanted
        case "above" if type(wanted) is int:
            return lambda value: _is_above(value, wanted)
        case "contains":
            words = _words(path, wanted)
            return lambda value: any(word in (_folded(value) or "") for word in words)
        case "prefix":
            starts = tuple(_words(path, wanted))
            return lambda value: (_folded(value) or "").startswith(starts)
        case _:
            raise ValueError(
                f"{path}: write one of contains, prefix, exists (true or false) and above (a number)"
            )


def _words(path: str, written: object) -> frozenset[str]:
    given = written if isinstance(written, list) else [written]
    if not 1 <= len(given) <= WORDS_MAX:
        raise ValueError(f"{path}: write 1 to {WORDS_MAX} values")
    if not all(isinstance(one, str | int) for one in given):
        raise ValueError(f"{path}: a value must be a text, a whole number, true or false")
    return frozenset((as_text(one) or "").casefold() for one in given)


def _folded(value: Any) -> str | None:
    text = as_text(value)
    return None if text is None else text.casefold()


def _is_above(value: Any, least: int) -> bool:
    found = as_money(value)
    return found is not None and found[0] > Decimal(least)


class AnswerMatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An HTTP status and values that an answer must have."""

    http: HttpStatuses | None = None
    when: Conditions | None = None

    def __post_init__(self) -> None:
        if self.http is None and self.when is None:
            raise ValueError("a rule needs http or when, or it would fit every answer")

    def fits(self, status: int, document: Any, *, fold: bool) -> bool:
        if self.http is not None and status not in self.http:
            return False
        return self.when is None or (document is not None and self.when.hold(document, fold=fold))


class AnswerRule(AnswerMatch, frozen=True, forbid_unknown_fields=True, kw_only=True):
    verdict: SubmitVerdict
    reason: str | None = None
    alarm: bool = False
    stop: Stop | None = None

    def __post_init__(self) -> None:
        AnswerMatch.__post_init__(self)
        if self.reason is not None and self.reason not in FAILURE_REASONS:
            raise ValueError(
                f"{self.reason!r} is no failure reason: write one of {', '.join(FAILURE_REASONS)}"
            )
        if (self.verdict is SubmitVerdict.STOPPED) != (self.stop is not None):
            raise ValueError("stop belongs to the verdict stopped, which needs it")
        if self.reason is not None and self.verdict is not SubmitVerdict.REFUSED:
            raise ValueError("reason belongs to the verdict refused")


_V: Final = SubmitVerdict
# Answers that mean the same with every provider, for profiles whose rules do not mention them. A wrong
# address or password must never cost a message: it would fail, and pay back, all that wait.
_COMMON: Final[Mapping[int, tuple[SubmitVerdict, Stop | None]]] = {
    401: (_V.STOPPED, "credentials"),
    402: (_V.STOPPED, "credit"),
    403: (_V.STOPPED, "account"),
    404: (_V.STOPPED, "account"),
    405: (_V.STOPPED, "account"),
    407: (_V.STOPPED, "credentials"),
    408: (_V.DOUBT, None),
    429: (_V.THROTTLED, None),
}
_OK: Final = 2
_REDIRECT: Final = 3
_OUR_FAULT: Final = 4


def judge(rules: Sequence[AnswerRule], answer: HttpAnswer, document: Any, *, fold: bool) -> SubmitAnswer:
    """Return what an answer means, without the values that stand in it."""
    rule = next((rule for rule in rules if rule.fits(answer.status, document, fold=fold)), None)
    if rule is None:
        return _judge_status(answer)
    may_end = rule.verdict in {_V.REFUSED, _V.TEMPORARY, _V.UNKNOWN}
    return SubmitAnswer(
        rule.verdict,
        reason=rule.reason or "CARRIER_REJECTED" if may_end else None,
        alarm=rule.alarm or rule.verdict is _V.STOPPED,
        stop=rule.stop,
        retry_after_s=_retry_after(answer, rule.verdict),
    )


def _judge_status(answer: HttpAnswer) -> SubmitAnswer:
    if answer.status in _COMMON:
        verdict, stop = _COMMON[answer.status]
        wait_s = _retry_after(answer, verdict)
        return SubmitAnswer(verdict, alarm=stop is not None, stop=stop, retry_after_s=wait_s)
    match answer.status // 100:
        case kind if kind == _REDIRECT:
            return SubmitAnswer(_V.STOPPED, alarm=True, stop="redirect")
        case kind if kind == _OUR_FAULT:
            return SubmitAnswer(_V.UNKNOWN, reason="CARRIER_REJECTED", alarm=True)
        case kind:
            # The message may have been taken: by the provider itself with 2xx, or behind a proxy that failed.
            return SubmitAnswer(_V.DOUBT, alarm=kind == _OK)


def _retry_after(answer: HttpAnswer, verdict: SubmitVerdict) -> float | None:
    """Read how many seconds to wait; a date is ignored."""
    written = answer.headers.get("retry-after", "").strip()
    if verdict not in {_V.THROTTLED, _V.TEMPORARY, _V.STOPPED} or not _SECONDS.fullmatch(written):
        return None
    return min(float(written), _RETRY_AFTER_MAX_S)
