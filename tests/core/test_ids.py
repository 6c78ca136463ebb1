"""Identifiers."""

from collections.abc import Iterable
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core.ids import (
    ACCOUNT,
    BATCH,
    KEY,
    MESSAGE,
    MESSAGES_MAX,
    REQUEST,
    TEMPLATE,
    BatchId,
    first_id,
    made_at_ms,
    message_bounds,
    message_ids,
    new_id,
    new_request_id,
    read_id,
    write_id,
)

NOW_MS = 1_794_700_800_000
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"

prefixes = st.sampled_from([ACCOUNT, KEY, BATCH, MESSAGE, REQUEST, TEMPLATE])
uuids = st.uuids()


@given(prefixes, uuids, uuids)
def test_an_id_is_read_as_it_was_written_and_sorts_alike(prefix: str, one: UUID, two: UUID) -> None:
    text = write_id(prefix, one)
    assert read_id(prefix, text) == one
    assert text.startswith(prefix)
    assert len(text) == len(prefix) + 26
    assert (text < write_id(prefix, two)) == (one < two)


def test_the_id_of_a_request_is_spelt_like_the_others() -> None:
    ids = [new_request_id(NOW_MS) for _ in range(100)]
    made = [read_id(REQUEST, one) for one in ids]
    assert {one and made_at_ms(one) for one in made} == {NOW_MS}
    assert len(set(ids)) == len(ids)


@given(st.text(alphabet=DIGITS, min_size=26, max_size=26), st.text(max_size=40))
def test_an_id_has_one_spelling_and_no_text_makes_its_reading_fail(digits: str, text: str) -> None:
    identifier = read_id(MESSAGE, MESSAGE + digits)
    if identifier is not None:
        assert write_id(MESSAGE, identifier) == MESSAGE + digits
    read_id(MESSAGE, text)
    read_id(MESSAGE, MESSAGE + text)


@pytest.mark.parametrize(
    ("value", "digits"), [(0, "0" * 26), (31, "0" * 25 + "z"), ((1 << 128) - 1, "7" + "z" * 25)]
)
def test_an_id_is_written_in_base32_of_26_digits(value: int, digits: str) -> None:
    assert write_id(MESSAGE, UUID(int=value)) == MESSAGE + digits
    assert read_id(MESSAGE, MESSAGE + digits) == UUID(int=value)


GOOD = "msg_" + "0" * 25 + "a"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "msg_",
        GOOD[:-1],
        GOOD + "0",
        GOOD[4:],
        GOOD.upper(),
        "bat_" + GOOD[4:],
        *(GOOD[:-1] + letter for letter in "ilou-_ \n\0"),
        GOOD[:-1] + "\N{ARABIC-INDIC DIGIT THREE}",
        GOOD[:-1] + "\N{FULLWIDTH LATIN SMALL LETTER A}",
        "msg_" + "8" + "0" * 25,
        str(UUID(int=10)),
    ],
)
def test_a_misspelt_id_names_nothing(text: str) -> None:
    assert read_id(MESSAGE, GOOD) == UUID(int=10)
    assert read_id(MESSAGE, text) is None


@given(st.integers(0, (1 << 48) - 2), st.integers(1, 50))
def test_ids_are_of_version_7_and_bear_their_moment(at_ms: int, count: int) -> None:
    batch_id = BatchId(new_id(at_ms))
    assert first_id(at_ms) <= batch_id < first_id(at_ms + 1)
    for identifier in (batch_id, *message_ids(batch_id, count)):
        assert (identifier.version, identifier.variant) == (7, RFC_4122)
        assert identifier.int >> 80 == at_ms


@pytest.mark.parametrize("count", [0, 1, 2, 1000, MESSAGES_MAX])
def test_the_ids_of_messages_ascend_within_the_bounds_of_their_batch(count: int) -> None:
    batch_id = BatchId(new_id(NOW_MS))
    low, high = message_bounds(batch_id)
    identifiers = message_ids(batch_id, count)
    assert len(identifiers) == count
    assert all(one < two for one, two in pairwise(identifiers))
    assert all(low <= identifier <= high for identifier in identifiers)
    assert low <= batch_id <= high


def test_a_batch_has_no_more_messages_than_their_numbering_holds() -> None:
    with pytest.raises(AssertionError):
        message_ids(BatchId(new_id(NOW_MS)), MESSAGES_MAX + 1)


def test_the_bounds_of_batches_do_not_meet() -> None:
    bounds = sorted(message_bounds(BatchId(new_id(NOW_MS))) for _ in range(100))
    assert all(one_high < two_low for (_, one_high), (two_low, _) in pairwise(bounds))


def constant_bits(values: Iterable[int], bits: int) -> list[int]:
    everywhere_set, somewhere_set = (1 << bits) - 1, 0
    for value in values:
        everywhere_set &= value
        somewhere_set |= value
    return [bit for bit in range(bits) if everywhere_set >> bit & 1 or not somewhere_set >> bit & 1]


def test_no_bit_that_should_be_random_is_constant() -> None:
    assert constant_bits((new_id(NOW_MS).int for _ in range(200)), 62) == []
    assert constant_bits((new_id(NOW_MS).int >> 64 for _ in range(200)), 12) == []
    batch_id = BatchId(new_id(NOW_MS))
    assert constant_bits((identifier.int for identifier in message_ids(batch_id, 200)), 28) == []
