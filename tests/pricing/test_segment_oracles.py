"""Segment counts and cuts compared with two independent counters.

The oracles are `smsutil` for Python and `split-sms` for Node.js. Both cut by the letter of the standard,
which counts code units and knows no graphemes. Left out is what they get wrong or what is no text: the empty
string and U+001B, which smsutil takes for UCS-2 and GSM-7, and lone surrogates.
"""

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import smsutil

from tests.support.npm import node_with
from tumira.pricing.segments import Encoding, measure, parts

ORACLES: Final = Path(__file__).parents[1] / "support" / "pricing" / "oracles"
SPLIT_S: Final = 90

BASIC: Final = "abc XYZ 0123\n\r@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ¤%&¡ÄÖÑÜ§¿äöñüà"
EXTENSION: Final = "\f^{}\\[~]|€"
UCS_2: Final = "яжç`\t«»漢字\N{COMBINING ACUTE ACCENT}\N{ZERO WIDTH JOINER}\N{NO-BREAK SPACE}"
EMOJI: Final = (
    "\N{GRINNING FACE}\N{WOMAN}\N{REGIONAL INDICATOR SYMBOL LETTER Z}\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
)
ALPHABETS: Final = (BASIC, BASIC * 5 + EXTENSION, EXTENSION, UCS_2, UCS_2 + EMOJI, BASIC + UCS_2, EMOJI)
BOUNDARIES: Final = (1, 35, 67, 70, 80, 134, 153, 160, 201, 306, 335, 459, 765)


def made_up_texts(count: int) -> Sequence[str]:
    """Make texts whose lengths lie around the boundaries and whose characters change at any place."""
    dice = random.Random(38)
    texts = []
    for _ in range(count):
        length = max(1, dice.choice(BOUNDARIES) + dice.randint(-4, 4))
        head = dice.randint(0, length)
        texts.append(
            "".join(dice.choices(dice.choice(ALPHABETS), k=head))
            + "".join(dice.choices(dice.choice(ALPHABETS), k=length - head))
        )
        # A text of one letter with a pair in it meets every cut at every offset.
        filler, wide = dice.choice([("a", "€"), ("я", "\N{GRINNING FACE}")])
        texts.append(filler * head + wide * dice.randint(1, 3) + filler * (length - head))
    return texts


# Every character that may look like GSM-7, alone, and then the longer texts.
TEXTS: Final = (
    *(chr(code) for code in range(0x2200) if code != 0x1B),
    *made_up_texts(300),
)


@pytest.fixture(scope="module")
def split_sms() -> Sequence[Any]:
    node = node_with(ORACLES)
    done = subprocess.run(
        [node.program, ORACLES / "split.mjs"],
        cwd=node.folder,
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=SPLIT_S,
    )
    results: Sequence[Any] = json.loads(done.stdout)
    return results


def test_smsutil_counts_and_cuts_every_text_as_we_do() -> None:
    encodings = {"gsm0338": Encoding.GSM_7, "utf_16_be": Encoding.UCS_2}
    for text in TEXTS:
        theirs, ours = smsutil.split(text), measure(text)
        assert ours.encoding is encodings[theirs.encoding], text
        assert ours.segments == len(theirs.parts), text
        assert ours.characters == theirs.total_bytes // (1 if ours.encoding is Encoding.GSM_7 else 2), text
        assert list(parts(text)) == [part.content for part in theirs.parts], text


@pytest.mark.long
def test_split_sms_counts_and_cuts_every_text_as_we_do(split_sms: Sequence[Any]) -> None:
    encodings = {"GSM": Encoding.GSM_7, "Unicode": Encoding.UCS_2}
    for text, theirs in zip(TEXTS, split_sms, strict=True):
        ours = measure(text)
        assert ours.encoding is encodings[theirs["characterSet"]], text
        assert ours.segments == len(theirs["parts"]), text
        assert ours.characters == theirs["bytes"] // (1 if ours.encoding is Encoding.GSM_7 else 2), text
        assert list(parts(text)) == theirs["parts"], text


def test_the_made_up_texts_reach_every_case() -> None:
    seen = {(measure(text).encoding, measure(text).segments) for text in TEXTS}
    assert seen >= {(encoding, segments) for encoding in Encoding for segments in range(1, 7)}
