"""Holds the structure of the code: the sizes of subjects, folders and modules, and class names.

`python scripts/structure.py` prints what is too large; `--sizes` prints the sizes themselves.
The order of imports is held by import-linter.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TREES: Final = ("tumira", "tests")
FOLDER_MODULES_MAX: Final = 25
MODULE_LINES_MAX: Final = 500
# Of the code of `tumira/`.
SUBJECT_SHARE_MAX: Final = 0.15
# Public classes of `tumira/` whose name stands in more than one module.
REPEATED_NAMES_MAX: Final = 15


def main(arguments: Sequence[str]) -> int:
    """Print the sizes, or what is too large, one line each; return the exit code."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _modules()}
    if "--sizes" in arguments:
        _print_sizes(lines)
        return 0
    found = [*find_full_folders(lines), *find_long_modules(lines), *find_large_subjects(lines)]
    found += find_repeated_names(path for path in lines if path.is_relative_to(ROOT / "tumira"))
    for problem in found:
        print(problem)
    return 1 if found else 0


def find_full_folders(modules: Mapping[Path, int]) -> Iterator[str]:
    """Find folders with too many modules."""
    for folder, count in Counter(path.parent for path in modules).items():
        if count > FOLDER_MODULES_MAX:
            yield f"{_name(folder)}: {count} modules, at most {FOLDER_MODULES_MAX}; divide it by subject"


def find_long_modules(modules: Mapping[Path, int]) -> Iterator[str]:
    """Find modules of the product with too many lines."""
    for path, lines in modules.items():
        if lines > MODULE_LINES_MAX and path.is_relative_to(ROOT / "tumira"):
            yield f"{_name(path)}: {lines} lines, at most {MODULE_LINES_MAX}; divide it"


def find_large_subjects(modules: Mapping[Path, int]) -> Iterator[str]:
    """Find subjects that have too much of the product's code."""
    subjects = _subjects(modules)
    total = sum(subjects.values())
    for subject, lines in subjects.items():
        if lines > total * SUBJECT_SHARE_MAX:
            yield (
                f"tumira/{subject}: {lines / total:.1%} of the code, at most {SUBJECT_SHARE_MAX:.0%}; "
                "make a part of it a subject of its own"
            )


def find_repeated_names(modules: Iterator[Path]) -> Iterator[str]:
    """Find public class names that stand in several modules, once there are too many of them."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_name(path))
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    if len(repeated) > REPEATED_NAMES_MAX:
        yield f"{len(repeated)} class names stand in several modules, at most {REPEATED_NAMES_MAX}:"
        for name, where in sorted(repeated.items()):
            yield f"    {name}: {', '.join(where)}"


def _modules() -> Iterator[Path]:
    for tree in TREES:
        # A package without code has at most a docstring.
        yield from sorted(path for path in (ROOT / tree).rglob("*.py") if path.name != "__init__.py")


def _subjects(modules: Mapping[Path, int]) -> Counter[str]:
    subjects: Counter[str] = Counter()
    for path, lines in modules.items():
        if path.is_relative_to(ROOT / "tumira"):
            inner = path.relative_to(ROOT / "tumira")
            subjects[inner.parts[0] if len(inner.parts) > 1 else "."] += lines
    return subjects


def _print_sizes(modules: Mapping[Path, int]) -> None:
    for tree in TREES:
        print(
            f"{sum(lines for path, lines in modules.items() if path.is_relative_to(ROOT / tree)):>7,} {tree}/"
        )
    subjects = _subjects(modules)
    for subject, lines in subjects.most_common():
        print(f"{lines:>7,} {lines / sum(subjects.values()):6.1%} tumira/{subject}")


def _name(path: Path) -> str:
    return (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path).as_posix()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
