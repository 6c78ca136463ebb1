"""The corpus has both labels in balance in every language and kind, and nothing twice."""

import re
from collections import Counter

import pytest

from tests.support.content.texts import LANGUAGES, corpus

KINDS = range(1, 31)
SECTORS = {
    *("bank", "betting", "church", "clinic", "courier", "farm", "government", "insurance", "job", "loan"),
    *("mobile_money", "other", "passcode", "property", "restaurant", "school", "security", "shop"),
    *("telecom", "transport", "utility"),
}
# Numbers that belong to nobody we know: +263 77 12x xxxx and +27 82 123 xxxx.
PHONE = re.compile(r"(?<!\d)(?:\+?27|0)[678]\d{8}(?!\d)|(?<!\d)(?:\+?263|0)7[1378]\d{7}(?!\d)")
ALLOWED = re.compile(r"(?:\+?27|0)82123\d{4}|(?:\+?263|0)7712\d{5}")


def test_there_are_more_than_twelve_thousand_messages_for_the_thirty_kinds_and_ordinary_ones() -> None:
    assert len(corpus()) > 30_000
    assert sum("kind" in row for row in corpus()) > 9_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_labels_are_in_balance_in_every_language_and_kind(language: str) -> None:
    labels = Counter((row.get("kind", 0), row["label"]) for row in corpus() if row["lang"] == language)
    for kind in [0, *KINDS]:
        service, adverts = labels[kind, "transactional"], labels[kind, "promotional"]
        assert min(service, adverts) >= 8, kind
        assert abs(service - adverts) <= max(3, 0.2 * (service + adverts)), kind


def test_every_sector_has_both_labels() -> None:
    counts = Counter((row["sector"], row["label"]) for row in corpus())
    assert {sector for sector, _ in counts} == SECTORS
    for sector in SECTORS:
        service, adverts = counts[sector, "transactional"], counts[sector, "promotional"]
        # Few adverts look like a passcode.
        least = 0.3 if sector == "passcode" else 0.6
        assert min(service, adverts) > least * max(service, adverts), sector


def test_no_message_is_there_twice_and_an_advert_is_part_of_its_message() -> None:
    texts = Counter(row["text"] for row in corpus())
    assert [text for text, count in texts.items() if count > 1] == []
    for row in corpus():
        assert row["country"] in {"ZA", "ZW"}
        assert bool(row.get("mixed")) is ("advert" in row)
        if row.get("mixed"):
            assert row["advert"] in row["text"]
            assert row["label"] == "promotional"


def test_telephone_numbers_are_made_up() -> None:
    found = [phone for row in corpus() for phone in PHONE.findall(row["text"].replace(" ", ""))]
    assert [phone for phone in found if not ALLOWED.fullmatch(phone)] == []
