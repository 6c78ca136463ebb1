"""The files of the handsets survive crashes, full disks and concurrent readers."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.core.errors import OperatorError
from tumira.simulator import handsets
from tumira.simulator.handsets import (
    FILES_MAX,
    LATEST_MAX,
    HandsetFiles,
    ReceivedText,
    list_latest,
    read_latest,
    read_of,
    state,
)
from tumira.simulator.pages import HANDSETS_MAX, TEXTS_SHOWN_MAX, by_handset

NUMBER = "+263771200001"
OTHER = "+263771200002"


def a_text(text: str = "Your code is 493817.", to: str = NUMBER) -> ReceivedText:
    return ReceivedText(to, "Tumira", text, handsets.moment(1_900_000_000.1234))


def keep(directory: Path, texts: Sequence[ReceivedText]) -> None:
    async def simulate() -> None:
        keeper = HandsetFiles(directory)
        for text in texts:
            keeper.add(text)
        keeper.close()

    asyncio.run(simulate())


def texts_of(answer: bytes) -> list[str]:
    return [one["text"] for one in json.loads(answer)]


def test_texts_are_read_back_as_the_page_promises(tmp_path: Path) -> None:
    directory = tmp_path / "simulator"
    assert read_latest(directory) == read_of(directory, NUMBER) == b"[]"
    assert (list_latest(directory), state(directory)) == ([], "0-0")
    keep(directory, [a_text("one"), a_text("two", OTHER), a_text("three")])

    assert json.loads(read_of(directory, NUMBER)) == [
        {"to": NUMBER, "from": "Tumira", "text": "one", "at": "2030-03-17T17:46:40.123+00:00"},
        {"to": NUMBER, "from": "Tumira", "text": "three", "at": "2030-03-17T17:46:40.123+00:00"},
    ]
    assert texts_of(read_latest(directory)) == ["one", "two", "three"]
    assert [text.text for text in list_latest(directory)] == ["three", "two", "one"]
    assert read_of(directory, "+26377120000") == b"[]"
    # Only their owner can read them.
    (file,) = directory.iterdir()
    assert [stat.S_IMODE(one.stat().st_mode) for one in (directory, file)] == [0o700, 0o600]


async def test_a_text_is_in_the_file_before_anybody_closes_it(tmp_path: Path) -> None:
    keeper = HandsetFiles(tmp_path)
    before = state(tmp_path)
    keeper.add(a_text("one"))
    keeper.add(a_text("two"))
    async with asyncio.timeout(40):
        while state(tmp_path) == before:  # noqa: ASYNC110 - another process would see it so
            await asyncio.sleep(0.001)

    assert texts_of(read_latest(tmp_path)) == ["one", "two"]
    keeper.close()


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_a_line_that_was_cut_short_is_skipped(tmp_path: Path, cut: int) -> None:
    keep(tmp_path, [a_text("one"), a_text("two")])
    (file,) = tmp_path.iterdir()
    os.truncate(file, file.stat().st_size - cut)
    # Where only the line break is missing, the text is whole.
    whole = ["one", "two"] if cut == 1 else ["one"]
    assert texts_of(read_of(tmp_path, NUMBER)) == texts_of(read_latest(tmp_path)) == whole

    keep(tmp_path, [a_text("three")])

    assert texts_of(read_of(tmp_path, NUMBER)) == texts_of(read_latest(tmp_path)) == [*whole, "three"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())), st.data())
def test_any_text_survives_and_none_looks_like_another(
    tmp_path_factory: pytest.TempPathFactory, said: Sequence[tuple[str, bool]], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("texts")
    line = handsets._encode(a_text("forged", OTHER)).decode()
    texts = [
        a_text(data.draw(st.sampled_from([text, line, f"\n{line}\n"])), NUMBER if mine else OTHER)
        for text, mine in said
    ]
    keep(directory, texts)

    expected: list[dict[str, Any]] = [json.loads(handsets._encode(text)) for text in texts]
    assert json.loads(read_latest(directory)) == expected
    for number in (NUMBER, OTHER):
        assert json.loads(read_of(directory, number)) == [one for one in expected if one["to"] == number]


def test_old_files_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handsets, "FILE_BYTES_MAX", 4_000)
    for number in range(4 * (FILES_MAX + 2)):
        keep(tmp_path, [a_text(f"{number} {'x' * 1_000}")])

    files = sorted(tmp_path.iterdir())
    assert len(files) <= FILES_MAX
    assert sum(file.stat().st_size for file in files) <= FILES_MAX * 6_000
    kept = [int(text.split()[0]) for text in texts_of(read_of(tmp_path, NUMBER))]
    assert kept == list(range(kept[0], number + 1))
    assert len(kept) >= 3 * (FILES_MAX - 1)


def sizes(directory: Path) -> list[int]:
    return [file.stat().st_size for file in directory.iterdir()]


async def test_all_texts_can_be_deleted_while_they_are_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handsets, "FILE_BYTES_MAX", 500)
    handsets.empty(tmp_path / "never")
    for _ in range(3):
        keeper = HandsetFiles(tmp_path)
        for number in range(6):
            keeper.add(a_text(str(number)))
        keeper.close()
    keeper = HandsetFiles(tmp_path)
    assert len(sizes(tmp_path)) == 4

    handsets.empty(tmp_path)

    assert sizes(tmp_path) == [0]
    keeper.add(a_text("after"))
    keeper.close()
    assert texts_of(read_of(tmp_path, NUMBER)) == ["after"]


def test_the_latest_are_found_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handsets, "FILE_BYTES_MAX", 20_000)
    for start in range(0, 1200, 100):
        keep(tmp_path, [a_text(str(number)) for number in range(start, start + 100)])

    assert len(list(tmp_path.iterdir())) > 1
    assert texts_of(read_latest(tmp_path)) == [str(number) for number in range(1200 - LATEST_MAX, 1200)]


WRITER = """
import asyncio, sys
from pathlib import Path
from tumira.simulator.handsets import HandsetFiles, ReceivedText, moment

async def write():
    keeper = HandsetFiles(Path(sys.argv[1]))
    number = 0
    while True:
        for _ in range(100):
            keeper.add(ReceivedText("+263771200001", "Tumira", str(number), moment(0)))
            number += 1
        await asyncio.sleep(0.001)

asyncio.run(write())
"""


def test_a_kill_loses_nothing_that_could_be_read_before(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    try:
        while len(seen := texts_of(read_of(tmp_path, NUMBER))) < 1000:
            assert writer.poll() is None
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()

    kept = texts_of(read_of(tmp_path, NUMBER))
    assert kept == [str(number) for number in range(len(kept))]
    assert kept[: len(seen)] == seen


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
async def test_a_full_disk_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "texts-000000001.jsonl").symlink_to("/dev/full")
    keeper = HandsetFiles(tmp_path)
    keeper.add(a_text())
    keeper.close()


def test_a_place_that_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    with pytest.raises(
        OperatorError, match=r"cannot keep its texts in .*/data/simulator \(Not a directory\)"
    ):
        HandsetFiles(handsets.directory_in(tmp_path / "data"))


def test_the_page_shows_the_handsets_that_got_something_last() -> None:
    numbers = [f"+2637712{number:05}" for number in range(100)]
    newest_first = [a_text(str(place), number) for number in numbers for place in range(10)]

    shown = by_handset(newest_first)

    assert [handset.number for handset in shown] == numbers[:HANDSETS_MAX]
    assert [text.text for text in shown[0].texts] == [str(place) for place in range(TEXTS_SHOWN_MAX)]
    assert shown[0].more == 10 - TEXTS_SHOWN_MAX
