"""Faults are what they should be, and those that no test has to catch are still there."""

from typing import Final

import pytest

from tests.proof.mutants.__main__ import ACCEPTED, read_accepted
from tests.proof.mutants.mutant import ROOT, TARGETS, Source
from tests.proof.mutants.named import NamedFault, read_named
from tests.proof.mutants.python_faults import list_mutants

CODE: Final = b'''
SQL_TAKE: Final = Statement("""
SELECT id FROM queue
 WHERE lane = 0
   AND turn BETWEEN %(first)s AND %(last)s
   AND id BETWEEN %(low)s AND %(high)s
   AND due_at <= clock_timestamp()
 ORDER BY turn
 LIMIT %(count_max)s
   FOR UPDATE SKIP LOCKED
""")


def take(room: int, wanted: int) -> int:
    """Take no more than there is room for."""
    assert room >= 0
    if not room:
        return 0
    _log.info("taking", wanted=wanted)
    book(room, wanted)
    return min(room, wanted) if wanted > 1 and room != 9 else room + 1
'''
EXPECTED: Final = {
    "WHERE lane = 0 => WHERE true",
    "AND turn BETWEEN %(first)s AND %(last)s =>",
    "AND due_at <= clock_timestamp() =>",
    "ORDER BY turn =>",
    "FOR UPDATE SKIP LOCKED =>",
    "FOR UPDATE SKIP LOCKED => FOR UPDATE",
    "if not room: => if False:",
    "if not room: => if (room):",
    "return 0 => return 1",
    "book(room, wanted) => pass",
    "book(room, wanted) => book(wanted, room)",
    "max(room, wanted) if wanted > 1 and room != 9 else room + 1",
    "min(room, wanted) if wanted >= 1 and room != 9 else room + 1",
    "min(room, wanted) if wanted <= 1 and room != 9 else room + 1",
    "min(room, wanted) if wanted > 2 and room != 9 else room + 1",
    "min(room, wanted) if wanted > 1 or room != 9 else room + 1",
    "min(room, wanted) if True and room != 9 else room + 1",
    "min(room, wanted) if wanted > 1 and True else room + 1",
    "min(room, wanted) if wanted > 1 and room == 9 else room + 1",
    "min(room, wanted) if wanted > 1 and room != 10 else room + 1",
    "min(room, wanted) if not (wanted > 1 and room != 9) else room + 1",
    "min(room, wanted) if wanted > 1 and room != 9 else room - 1",
    "min(room, wanted) if wanted > 1 and room != 9 else room + 2",
}


def test_the_faults_of_a_few_lines_are_these() -> None:
    source = Source("example.py", CODE)
    found = {
        one.after.removeprefix("return ")
        if one.before.startswith("return min")
        else f"{one.before} => {one.after}".strip()
        for one in list_mutants(source)
    }
    assert found == EXPECTED
    for one in list_mutants(source):
        compile(one.apply(source.text), "example.py", "exec")


@pytest.mark.skipif(not read_accepted(), reason="there are none")
def test_every_accepted_fault_can_still_be_made_and_has_a_reason() -> None:
    accepted = read_accepted()
    paths = {key.split(" | ")[0] for key in accepted}
    assert paths <= set(TARGETS)
    known = {one.key for path in paths for one in list_mutants(Source(path))}
    assert accepted.keys() - known == set(), f"of {ACCEPTED.name}, these are gone"
    assert all(len(reason) > 20 for reason in accepted.values())


@pytest.mark.parametrize("fault", read_named(), ids=lambda one: one.name)
def test_every_fault_that_was_put_in_by_hand_has_its_place_and_its_test(fault: NamedFault) -> None:
    source = Source(fault.path)
    assert source.text.count(fault.old.encode()) == 1
    compile(fault.mutant.apply(source.text), fault.path, "exec")
    test_file, _, name = fault.by.partition("::")
    assert f"def {name.split('[')[0]}(" in (ROOT / test_file).read_text()
