"""Lists the texts of pages for translators, one catalogue for customers and one for operators.

`python scripts/catalogue.py FOLDER` writes `dashboard.pot` and `console.pot` there. Texts in Python are
marked with `_`, `ngettext` or `mark` (`tumira/core/translation.py`), in templates with `_`, `ngettext` or
`{% trans %}`.
"""

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from jinja2 import Environment

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "tumira"
MARKS: Final = frozenset({"_", "mark", "ngettext"})
# Each catalogue leaves out what only the other's readers see.
LEFT_OUT: Final = {"dashboard": ("console", "cli"), "console": ("dashboard", "api", "cli")}

# One text, or its singular and plural.
Text = tuple[str, ...]


def texts_of(file: Path) -> Iterator[tuple[int, Text]]:
    """Yield the marked texts of a module or a template, each with its line."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from _texts_of_module(source)
        return
    environment = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    environment.policies["ext.i18n.trimmed"] = True
    for line, _, found in environment.extract_translations(source):  # type: ignore[attr-defined]
        parts = found if isinstance(found, tuple) else (found,)
        texts = tuple(part for part in parts if part is not None)
        # A constant that is marked where it is defined leaves nothing here.
        if texts:
            yield line, texts


def _texts_of_module(source: str) -> Iterator[tuple[int, Text]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
            parts = [part.value for part in node.args if isinstance(part, ast.Constant)]
            texts = tuple(part for part in parts if isinstance(part, str))
            if texts:
                yield node.lineno, texts


def catalogue(face: str) -> Mapping[Text, list[str]]:
    """Return every text of a face with the places where it is shown."""
    found: dict[Text, list[str]] = defaultdict(list)
    for file in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.jinja"))):
        if file.relative_to(PACKAGE).parts[0] in LEFT_OUT[face]:
            continue
        for line, text in texts_of(file):
            found[text].append(f"{file.relative_to(ROOT)}:{line}")
    return found


def write_catalogue(face: str) -> str:
    """Write a catalogue in the format of GNU gettext."""
    entries = ['msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n']
    for text, places in catalogue(face).items():
        lines = [f"#: {place}" for place in places]
        lines.append(f"msgid {json.dumps(text[0], ensure_ascii=False)}")
        if len(text) > 1:
            lines.append(f"msgid_plural {json.dumps(text[1], ensure_ascii=False)}")
            lines += ['msgstr[0] ""', 'msgstr[1] ""']
        else:
            lines.append('msgstr ""')
        entries.append("\n".join(lines) + "\n")
    return "\n".join(entries)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for face in LEFT_OUT:
        file = folder / f"{face}.pot"
        file.write_text(write_catalogue(face), encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
