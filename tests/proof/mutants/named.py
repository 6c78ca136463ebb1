"""Faults that were put in by hand and found by no test at first, each with the test that catches it now."""

import tomllib
from pathlib import Path
from typing import Final

from msgspec import Struct, convert

from tests.proof.mutants.mutant import Mutant, Source

NAMED: Final = Path(__file__).parent / "named.toml"


class NamedFault(Struct, frozen=True):
    name: str
    path: str
    old: str
    new: str
    by: str

    @property
    def mutant(self) -> Mutant:
        source = Source(self.path)
        start = source.text.index(self.old.encode())
        return source.mutant(self.name, "by hand", (start, start + len(self.old.encode())), self.new)


def read_named() -> list[NamedFault]:
    return convert(tomllib.loads(NAMED.read_text())["fault"], list[NamedFault])
