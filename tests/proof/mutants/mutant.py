"""A small fault in one file, and the files that faults are put into."""

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]

# The code that moves money, and the code that moves messages.
_MONEY: Final = """
accounts/holds accounts/ledger accounts/money_days accounts/open_account accounts/rate_limit
accounts/store approvals/manage approvals/store pricing/legs pricing/quote pricing/segments
pricing/destinations schedules/manage schedules/start schedules/store sending/admit sending/batcher
sending/charge sending/code_guard sending/decide sending/direct/claims sending/direct/wire
sending/fairness sending/insert sending/large sending/lifecycle sending/limits sending/lookups
sending/low_balance topups/reconcile_rules topups/settle topups/start topups/states topups/store
topups/vouchers topups/usdt/credit_deposits topups/usdt/deposit_rules topups/usdt/deposits
"""
_ENGINE: Final = """
delivery/circuit_breaker delivery/clocks delivery/direct_offers delivery/dispatcher delivery/doubts
delivery/follow_up delivery/lanes delivery/match_receipts delivery/place_receipts delivery/receipt_rules
delivery/recent delivery/recorder delivery/responses delivery/sender delivery/settle
delivery/settle_rules delivery/submission delivery/supervisor delivery/throttle delivery/store/binds
delivery/store/margins delivery/store/queue delivery/store/receipts delivery/store/references
delivery/store/refunds delivery/store/settlement delivery/store/waiting delivery/margin
carriers/routes/rules events
"""
TARGETS: Final = tuple(f"tumira/{name}.py" for name in sorted(f"{_MONEY} {_ENGINE}".split()))


class Source:
    """A file with the places of its lines, in bytes, as `ast` counts them."""

    def __init__(self, path: str, text: bytes | None = None) -> None:
        self.path = path
        self.text = (ROOT / path).read_bytes() if text is None else text
        self._starts = [0]
        for line in self.text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def line_of(self, place: int) -> int:
        return self.text.count(b"\n", 0, place) + 1

    def lines_around(self, start: int, end: int) -> tuple[int, int]:
        """Return where the first of the lines of a span begins, and where the last ends."""
        last = self.text.find(b"\n", end)
        return self.text.rfind(b"\n", 0, start) + 1, len(self.text) if last < 0 else last

    def mutant(self, where: str, kind: str, span: tuple[int, int], new: str) -> "Mutant":
        start, end = span
        first, last = self.lines_around(start, end)
        before = self.text[first:last]
        after = self.text[first:start] + new.encode() + self.text[end:last]
        return Mutant(
            self.path,
            where,
            kind,
            _one_line(before),
            _one_line(after),
            span,
            new,
            (self.line_of(start), self.line_of(max(start, end - 1))),
        )


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. It is named by what it changes, not by its line, which other changes move."""

    path: str
    # The function, or the constant of the module.
    where: str
    kind: str
    before: str
    after: str
    span: tuple[int, int]
    new: str
    lines: tuple[int, int]

    @property
    def key(self) -> str:
        return f"{self.path} | {self.where} | {self.before} | {self.after}"

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")

    def apply(self, text: bytes) -> bytes:
        start, end = self.span
        return text[:start] + self.new.encode() + text[end:]
