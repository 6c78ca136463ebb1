"""Checks docstrings, log messages, texts of pages and docs for questions, banned words and lost files.

`python scripts/plain_english.py [PATH...]` checks the given files and folders, or everything.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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


def main(arguments: list[str]) -> int:
    """Print what is wrong, one line each, and return the exit code."""
    found = 0
    for path in _files(arguments):
        for line, text, is_docstring in _texts(path):
            if is_docstring and _QUESTION.search(text):
                found += 1
                print(f"{path}:{line}: a docstring is a statement, not a question")
            for start, word, replacement in banned_words(text):
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


def banned_words(text: str) -> list[tuple[int, str, str]]:
    """Return each banned word of a text: where it begins, the word, and what to write instead."""
    return [
        (match.start(), match.group(), replacement)
        for pattern, replacement in _banned()
        for match in pattern.finditer(text)
    ]


@cache
def _banned() -> list[tuple[re.Pattern[str], str]]:
    instead = tomllib.loads(WORDS.read_text(encoding="utf-8"))["instead"]
    return [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), text) for pattern, text in instead.items()]


def _files(arguments: list[str]) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *arguments], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\n")
    kinds = (".py", ".md", ".jinja")
    return [Path(name) for name in listed if name.endswith(kinds) and name not in _GENERATED]


def _texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the texts of a file: first line, text, and whether it is a docstring."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, _prose(source), False
        return
    if path.suffix != ".py":
        yield 1, source, False
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)) is not None:
            yield node.body[0].lineno, docstring, True
        if isinstance(node, ast.Call) and _is_said(node.func):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.lineno, argument.value, False


def _is_said(function: ast.expr) -> bool:
    """Tell whether a call logs its argument, or marks it as a text of a page."""
    if isinstance(function, ast.Attribute):
        return function.attr in _LOG_METHODS
    return isinstance(function, ast.Name) and function.id in _MARKS


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
