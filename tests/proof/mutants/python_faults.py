"""Faults in Python code: comparisons, boundaries, conditions, statements, arguments and constants."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.proof.mutants.mutant import Mutant, Source
from tests.proof.mutants.sql_faults import is_sql, sql_faults

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_OPERATORS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}
_CLOCK: Final = re.compile(r"\b(time|now|monotonic)\(")
# A moment that was stored; with another one on the other side, both were read from clocks.
_MOMENT: Final = re.compile(r"\.\w+_at\b")
_TWINS: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
# What is only shown, logged or counted moves neither money nor messages.
_SHOWN: Final = re.compile(
    r"(await )?(assert_never|_log|metrics|log_failure|self\._counts|self\._observer|observer|_tell_owners)\b"
)
# A pause chooses when something is done, not what.
_PAUSE: Final = re.compile(r"await asyncio\.sleep\b")
# They come first everywhere, and anything else in their place fails at once.
_EVERYWHERE: Final = frozenset({"connection", "database"})
_NOT_SWAPPED: Final = frozenset({"isinstance", "cast", "getattr", "setattr", "range", "partial"})


def list_mutants(source: Source) -> list[Mutant]:
    """Return all faults that can be put into a file, in the order of their places."""
    finder = _Finder(source)
    finder.visit(source.tree)
    # The same change to the same words of the same function is one fault.
    found = {one.key: one for one in reversed(finder.found)}
    return sorted(found.values(), key=lambda one: (one.span, one.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: Source) -> None:
        self._source = source
        self._inside: list[str] = []
        self._functions = 0
        self.found: list[Mutant] = []

    def _add(self, kind: str, span: tuple[int, int], new: str) -> None:
        self.found.append(self._source.mutant(".".join(self._inside), kind, span, new))

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._source.span(node)
        return self._source.text[start:end].decode()

    def _gap(self, left: ast.expr, right: ast.expr, pattern: str) -> tuple[int, int] | None:
        """Return the place of an operator between two expressions."""
        start, end = self._source.span(left)[1], self._source.span(right)[0]
        match = re.search(pattern, self._source.text[start:end].decode())
        return None if match is None else (start + match.start(), start + match.end())

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside.append(node.name)
        self._functions += 1
        for statement in node.body:
            self.visit(statement)
        self._functions -= 1
        self._inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._inside.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave asserts alone: they state what cannot be otherwise."""

    def visit_Expr(self, node: ast.Expr) -> None:
        text = self._text(node)
        if isinstance(node.value, ast.Constant) or _SHOWN.match(text) or _PAUSE.match(text):
            return
        self._remove(node)
        self.generic_visit(node)

    def _remove(self, node: ast.stmt) -> None:
        if self._functions:
            self._add("statement removed", self._source.span(node), "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        self._remove(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._remove(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._remove(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._remove(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if _SHOWN.match(self._text(node.value)):
            return
        if all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets):
            self._remove(node)
        self._visit_value(node.targets[0], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit_value(node.target, node.value)

    def _visit_value(self, target: ast.expr, value: ast.expr) -> None:
        name = self._text(target)
        if not self._functions:
            self._inside.append(name)
        self.visit(value)
        if not self._functions:
            self._inside.pop()

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._remove(node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        span = self._source.span(node.test)
        if isinstance(node.body[-1], _LEAVES) and not node.orelse:
            self._add("guard removed", span, "False")
        else:
            self._add("condition turned", span, f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add("condition turned", self._source.span(node.test), f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._add("filter removed", self._source.span(condition), "True")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            pattern, others = _COMPARISONS[type(operator)]
            gap = self._gap(left, right, pattern)
            if len(others) > 1 and _are_moments(self._text(left), self._text(right)):
                # The first differs only where both are equal, and a clock is never read at the very moment.
                others = others[1:]
            for other in others if gap is not None else ():
                assert gap is not None
                self._add("comparison", gap, other)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        is_and = isinstance(node.op, ast.And)
        old, new, neutral = ("and", "or", "True") if is_and else ("or", "and", "False")
        for left, right in zip(node.values, node.values[1:], strict=False):
            gap = self._gap(left, right, rf"\b{old}\b")
            if gap is not None:
                self._add("and, or", gap, new)
        for value in node.values:
            self._add("condition dropped", self._source.span(value), neutral)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("not removed", self._source.span(node), f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if self._functions and type(node.op) in _OPERATORS:
            old, new = _OPERATORS[type(node.op)]
            gap = self._gap(node.left, node.right, re.escape(old))
            if gap is not None and not any(_is_text(one) for one in (node.left, node.right)):
                self._add("arithmetic", gap, new)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        if len(node.elts) > 1:
            for left_out in node.elts:
                kept = ", ".join(self._text(one) for one in node.elts if one is not left_out)
                self._add("element removed", self._source.span(node), f"{{{kept}}}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", self._source.span(node), str(not node.value))
        elif isinstance(node.value, int) and self._functions:
            # Constants of a module are tuned: one more or less is as good. What is done with them is not.
            self._add("constant", self._source.span(node), str(node.value + 1))
        else:
            self._sql(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._sql(node, "".join(str(one.value) for one in node.values if isinstance(one, ast.Constant)))

    def _sql(self, node: ast.Constant | ast.JoinedStr, text: object) -> None:
        if isinstance(text, str) and is_sql(text):
            start, end = self._source.span(node)
            for kind, (low, high), new in sql_faults(self._source.text[start:end].decode()):
                self._add(kind, (start + low, start + high), new)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if _SHOWN.match(self._text(node)):
            return
        if name in _TWINS:
            self._add("call", self._source.span(node.func), _TWINS[name])
        pair = node.args[:2]
        if pair and isinstance(pair[0], ast.Name) and pair[0].id in _EVERYWHERE:
            pair = node.args[1:3]
        swappable = len(pair) > 1 and all(isinstance(one, ast.Name | ast.Attribute) for one in pair)
        if swappable and name not in _NOT_SWAPPED and name not in _TWINS:
            first, second = pair
            span = self._source.span(first)[0], self._source.span(second)[1]
            self._add("arguments swapped", span, f"{self._text(second)}, {self._text(first)}")
        self.generic_visit(node)


def _are_moments(left: str, right: str) -> bool:
    is_stored = all(_MOMENT.search(one) for one in (left, right))
    return is_stored or _CLOCK.search(f"{left} {right}") is not None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def functions_with(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Give the names that each function and each constant of a module uses."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, _names(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _names(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, _names(node)


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(
        one.id if isinstance(one, ast.Name) else one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.Attribute)
    )
