"""Checks docstrings, log messages, texts of pages and docs for questions, banned words and lost files.

`python scripts/plain_english.py [PATH...]` checks the given files and folders, or everything.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
WORDS: Final = Path(__file__).with_name("plain_words.toml")
COLUMNS_MAX: Final = 100
NEW_LINE: Final = "\n"

# Written by `make docs` from the code, whose texts are checked where they stand.
_GENERATED: Final = frozenset({"docs/errors.md", "docs/metrics.md", "docs/openapi.json"})
# A first sentence that asks, or a last one. Code in backticks may hold a question mark.
_QUESTION: Final = re.compile(r"\A[^`\n]*\?(?=\s|\Z)|\?\s*\Z")
# A file in inline code with its folder, from the top or from `tumira/`; and a link to a file.
_NAMED_FILE: Final = re.compile(r"`((?:[a-z_]+/)+(?:[a-z0-9_]+\.(?:py|md|sh|toml|yml))?)`")
# A function or class in inline code, such as `sending.batcher.Batcher.ask`.
_NAMED_CODE: Final = re.compile(r"`((?:[a-z_0-9]+\.)+[A-Za-z_]\w*(?:\.[a-z_]\w*)?)(?:\(\))?`")
_LINK: Final = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_MARKS: Final = frozenset({"_", "mark", "ngettext"})
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Kind(Enum):
    """What a text is; pages have banned phrasings of their own."""

    DOCSTRING = auto()
    PAGE = auto()
    OTHER = auto()


def main(arguments: list[str]) -> int:
    """Print what is wrong, one line each, and return the exit code."""
    found = 0
    for path in _files(arguments):
        for line, text, kind in _texts(path):
            if kind is Kind.DOCSTRING and _QUESTION.search(text):
                found += 1
                print(f"{path}:{line}: a docstring is a statement, not a question")
            for start, word, replacement in banned_words(text, kind):
                found += 1
                print(f"{path}:{line + text.count(NEW_LINE, 0, start)}: “{word}”: {replacement}")
        for line in _long_lines(path):
            found += 1
            print(f"{path}:{line}: wrap at {COLUMNS_MAX} columns")
        for name in _lost_files(path):
            found += 1
            print(f"{path}: {name} does not exist")
    if found:
        print(f"{found} to rewrite; the words and what to write instead: {WORDS.relative_to(ROOT)}")
    return 1 if found else 0


def banned_words(text: str, kind: Kind = Kind.PAGE) -> list[tuple[int, str, str]]:
    """Return each banned word of a text: where it begins, the word, and what to write instead."""
    return [
        (match.start(), match.group(), replacement)
        for pattern, replacement in _banned(kind)
        for match in pattern.finditer(text)
    ]


@cache
def _banned(kind: Kind) -> list[tuple[re.Pattern[str], str]]:
    words = tomllib.loads(WORDS.read_text(encoding="utf-8"))
    instead = words["instead"] | (words["on_pages"] if kind is Kind.PAGE else {})
    return [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), text) for pattern, text in instead.items()]


def _files(arguments: list[str]) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *arguments], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\n")
    kinds = (".py", ".md", ".jinja")
    return [Path(name) for name in listed if name.endswith(kinds) and name not in _GENERATED]


def _texts(path: Path) -> Iterator[tuple[int, str, Kind]]:
    """Yield the texts of a file, each with its first line and its kind."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, _prose(source), Kind.OTHER
        return
    if path.suffix != ".py":
        yield 1, source, Kind.PAGE
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)) is not None:
            yield node.body[0].lineno, docstring, Kind.DOCSTRING
        if isinstance(node, ast.Call) and (kind := _said_by(node.func)) is not None:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.lineno, argument.value, kind


def _said_by(function: ast.expr) -> Kind | None:
    """Return the kind of the texts that a function is called with, if it logs or marks them."""
    if isinstance(function, ast.Attribute):
        return Kind.OTHER if function.attr in _LOG_METHODS else None
    return Kind.PAGE if isinstance(function, ast.Name) and function.id in _MARKS else None


def _prose(source: str) -> str:
    """Blank out inline code, which holds names, and lines that repeat the text of the API."""
    api = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    lines = ("" if line.startswith("| ") and line in api else line for line in source.split("\n"))
    return re.sub(r"`[^`\n]+`", "``", "\n".join(lines))


def _long_lines(path: Path) -> Iterator[int]:
    """Yield the lines of a document that are too long; tables, code and lone links cannot be wrapped."""
    if path.suffix != ".md":
        return
    is_code = False
    for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_lone = " " not in line.strip().removeprefix("- ").removeprefix("* ")
        if len(line) > COLUMNS_MAX and not is_code and not line.startswith("|") and not is_lone:
            yield number


def _lost_files(path: Path) -> Iterator[str]:
    """Yield the files and functions that a document names and that are not there."""
    if path.suffix != ".md":
        return
    text = (ROOT / path).read_text(encoding="utf-8")
    for name in _NAMED_FILE.findall(text):
        if not any((folder / name).exists() for folder in (ROOT, ROOT / "tumira")):
            yield name
    for name in _NAMED_CODE.findall(text):
        if not name.endswith(".log") and not _is_code(name.split(".")):
            yield name
    for link in _LINK.findall(text):
        if not (ROOT / path.parent / link).exists():
            yield link


def _is_code(parts: list[str]) -> bool:
    """Tell whether the parts name a module, or what a module defines; other names are none of ours."""
    place = ROOT / "tumira"
    parts = parts[1:] if parts[0] == "tumira" else parts
    if not (place / parts[0]).is_dir() and not (place / f"{parts[0]}.py").exists():
        return True
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    module = place / f"{parts.pop(0)}.py"
    if not module.exists():
        return False
    source = module.read_text(encoding="utf-8")
    return all(re.search(rf"(?:^|\n) *(?:async def|def|class) {part}\b|\n{part}\b", source) for part in parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
