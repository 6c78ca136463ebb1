"""Texts that test segment counts and respelling, in Python and in the browser."""
# ruff: noqa: RUF001 - Characters that look like others are what it is about.

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from hypothesis import strategies as st

from tumira.pricing.gsm7 import AFTER_DIGIT, NAMES, SPELLINGS
from tumira.pricing.segments import BASIC, EXTENSION

CYRILLIC: Final = "я"
EMOJI: Final = "\N{GRINNING FACE}"
FAMILY: Final = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
FLAG: Final = "\N{REGIONAL INDICATOR SYMBOL LETTER Z}\N{REGIONAL INDICATOR SYMBOL LETTER W}"
SCOTLAND: Final = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
KEYCAP: Final = "1\ufe0f\u20e3"
HIGH: Final = chr(0xD83D)
LOW: Final = chr(0xDE00)

# Lengths at which a text takes one more segment, in septets and in UTF-16 units.
_SEPTETS: Final = (160, *(153 * parts for parts in range(1, 8)))
_UNITS: Final = (70, *(67 * parts for parts in range(1, 8)))
_NEAR: Final = (-2, -1, 0, 1, 2)

LONE: Final = (
    "",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\f",
    "\x1b",
    "\0",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "\U00010000",
    HIGH,
    LOW,
    LOW + HIGH,
    HIGH * 300,
    LOW * 200 + HIGH * 200,
    "a" * 67 + LOW * 9,
    "a" * 66 + HIGH * 9,
    "\N{COMBINING ACUTE ACCENT}",
    "\N{COMBINING ACUTE ACCENT}a",
    "\N{ZERO WIDTH JOINER}",
    "\N{ZERO WIDTH JOINER}a",
    "\ufe0f",
    EMOJI,
    FAMILY,
    FLAG,
    SCOTLAND,
    KEYCAP,
)

SPELT: Final = (
    "Dear customer, your order has been delivered.",
    "“Hello” – it’s «done»…",
    f"Hi {EMOJI} there",
    f"{EMOJI} Hi",
    f"Hi {EMOJI}",
    f"Hi {EMOJI} {EMOJI} there {EMOJI}",
    f"Hi  {EMOJI}  there",
    f"Hi {EMOJI}\nthere {EMOJI}\r\n{EMOJI} you",
    f"Thanks{EMOJI}See you",
    f"Thanks!{EMOJI}See you",
    f"Hi{EMOJI} {EMOJI}there",
    f"Hi {EMOJI}\N{ZERO WIDTH SPACE} there",
    f"Hi {EMOJI}\N{NO-BREAK SPACE}there",
    f"a{FAMILY}b {FLAG} c {SCOTLAND}{EMOJI} d {KEYCAP}",
    "👍🏽 Paid ❤️ © ©️ ™ ‼️ ✅ yes ❌ no ☎ 🅿️ 🆗 🔟 10🔟",
    "1½ cups, 10² or 10²³ m², H₂O, 2₁₀, ½, ½½, ①②, 3⒈ and 4⅟8",
    "e\u0301 E\u0301 a\u030a u\u0308 u\u0308\u0304 x\u0301 C\u0327 c\u0327 n\u0303",
    "ế ề ǻ ǽ ǿ ǖ ọ ộ ạ\u0308",
    "=\u0338 ≠ <\u0338 ≮ ↛",
    "Ḓivhani ṱhoho ṅwana ḽa ṋ, š Š ê ô û ë ï ŉ, ç Ç č Č ł Ł",
    "Ａｂｃ０１２！￥￠￦ ﬁ ﬂ ﬅ Ⅷ ㎏ ㎡ ㏑ ℃ ℉ № ℡ 𝐇𝐞𝐥𝐥𝐨 𝔽 𝒜 Ⓐ ⒜ 🅐 🅰",
    "₦500 ₹20 ¢5 €3 £2 ﷼1 ₤4",
    "ΔΦΓΛΩΠΨΣΘΞ ΑΒΕ αβγ Ώ Ω\u0301 Ω ∆ µ μ",
    "Привет и\u0306 й",
    "می\u200cخواهم क\u094d\u200dष ש\u05c1",
    f"{CYRILLIC}\u200d\u200d\u200b\u200d {CYRILLIC}\ufe0f {CYRILLIC}{EMOJI}{CYRILLIC}",
    "漢字、かな。ー",
    "co\u00adoperate\u200b \u200fok\u202c a\tb\vc\u2028d\u2029e",
    "\u00b4 \u00a8 \u00af \u00b8 \u02d8 \u02dd \uffe3",
    HIGH + "“" + HIGH,
    "\ue000 \U000f0000 \U000e0001",
)


def _boundaries() -> Iterator[str]:
    """Give texts of one character around each length, and of one pair at each place of each cut."""
    for length, near in product(_SEPTETS, _NEAR):
        yield "a" * (length + near)
        yield "a" * (length + near - 1) + "€" + "b" * (near + 2)
        yield "€" * ((length + near) // 2)
    for length, near in product(_UNITS, _NEAR):
        yield CYRILLIC * (length + near)
        yield CYRILLIC * (length + near - 1) + EMOJI + "b" * (near + 2)
        yield EMOJI * ((length + near) // 2)
        yield "€" * (length + near - 1) + CYRILLIC
    for length, near, parts in product((153, 160), _NEAR, (1, 2, 3)):
        yield "a" * (length + near) + "{" + "b" * (153 * parts - 1 + near)
        yield "\r\n" * (length * parts // 2) + "a" * (near + 2)
    for length, near, parts in product((67, 70), _NEAR, (1, 2, 3)):
        yield CYRILLIC * (length + near) + EMOJI + "b" * (67 * parts - 1 + near)
        yield "\r\n" * (length * parts // 2) + CYRILLIC * (near + 2)


VECTORS: Final[Sequence[str]] = tuple(
    dict.fromkeys(
        (
            *LONE,
            *SPELT,
            BASIC,
            EXTENSION,
            BASIC + EXTENSION,
            *_boundaries(),
            *SPELLINGS,
            *(f"a {character} b" for character in SPELLINGS),
            *(f"5{character}" for character in (*AFTER_DIGIT, *SPELLINGS)),
            *NAMES,
        )
    )
)

# Where Unicode has signs, or may get some, that are made of others; not Chinese and Korean, which are whole.
_SIGNS: Final = (
    range(0x3400),
    range(0xA000, 0xAC00),
    range(0xE000, 0x11000),
    range(0x1C000, 0x20000),
    range(0xE0000, 0xE0200),
)
CHARACTERS: Final[Sequence[str]] = tuple(chr(code) for signs in _SIGNS for code in signs)

_TELLING: Final = (
    "ab Z059 .\n\r[]€éçÇñΩя漢"
    + EMOJI
    + "👍🏽❤❌½²₁①“’–…\t\xa0\xad\u200b\u200c\u200d\ufe0f\u20e3\u0301\u0308\u0338=<"
)


def _around(*boundaries: int) -> st.SearchStrategy[int]:
    return st.sampled_from(boundaries).flatmap(
        lambda boundary: st.integers(max(0, boundary - 3), boundary + 3)
    )


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    filler = draw(st.sampled_from(["a", "é", "€", CYRILLIC, EMOJI]))
    head = filler * draw(_around(0, 33, 67, 70, 76, 80, 134, 153, 160, 306))
    tail = draw(st.sampled_from(["a", "€", filler])) * draw(_around(0, 67, 153, 306))
    return head + draw(st.text(alphabet="ab[]€\nя\t" + EMOJI, max_size=8)) + tail


def short_texts() -> st.SearchStrategy[str]:
    return st.text(alphabet=_TELLING, max_size=24)


def texts() -> st.SearchStrategy[str]:
    return st.one_of(
        long_texts(),
        short_texts(),
        st.text(alphabet=BASIC + EXTENSION, max_size=400),
        st.text(alphabet=[*SPELLINGS, *"a5 "], max_size=60),
        st.text(max_size=120),
    )
