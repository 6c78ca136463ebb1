"""Respelling of a text in the GSM-7 alphabet, so that it takes fewer segments and means the same.

Each piece of a text (a character with its accents, or a run of pictures) is looked up in `SPELLINGS` first
and taken apart by Unicode's own tables second. Nothing here depends on the version of Unicode: `DECOMPOSED`
and `MARKS` hold only characters that are in it since 2016, and Unicode never changes the decomposition of a
character.
"""
# ruff: noqa: RUF001 - Characters that look like others are what it is about.

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tumira.pricing.segments import BASIC, EXTENSION

_CAPITALS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _numbered(first: int, numbers: range, form: str) -> dict[str, str]:
    return {chr(first + place): form.format(number) for place, number in enumerate(numbers)}


def _lettered(first: int) -> dict[str, str]:
    return {chr(first + place): letter for place, letter in enumerate(_CAPITALS)}


# What decomposition would not give, or not as a reader expects it. A value is of the GSM-7 alphabet.
SPELLINGS: Final[dict[str, str]] = {
    # Quotation marks, apostrophes and what is typed for them.
    **dict.fromkeys("‘’‚‛‹›`´ʹʻʼʽʾʿˈˊˋ′‵❛❜❮❯ꞌ", "'"),
    **dict.fromkeys("“”„‟«»¨ʺ″‶❝❞〝〞〟", '"'),
    # Dashes, lines, bullets and stars.
    **dict.fromkeys("‐‑‒–—―⁃−¯‾˗─━➖•‣◦∙⁌⁍●○◉◎■□▪▫◆◇◾◽", "-"),
    **dict.fromkeys("★☆✦✧✱✲✳✴✶✷✸✹∗⁎※", "*"),
    **dict.fromkeys("·‧⋅", "."),
    **dict.fromkeys("⁓∼〜˜", "~"),
    **dict.fromkeys("│┃❘", "|"),
    "…": "...", "¦": "|", "‗": "_", "¸": ",", "‖": "||", "ˆ": "^", "⁄": "/", "∕": "/", "∶": ":",
    # Blanks and ends of lines.
    **dict.fromkeys(
        "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
        "\u202f\u205f\u2800\u3000",
        " ",
    ),
    **dict.fromkeys("\v\x85\u2028\u2029", "\n"),
    # Signs of sums. A cross may stand for "not", so it is not removed with the pictures.
    **dict.fromkeys("×✕✖✗✘❌❎", "x"),
    "÷": "/", "➗": "/", "±": "+/-", "➕": "+", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "≡": "=",
    "∞": "infinity", "√": "sqrt", "∆": "Δ", "∑": "Σ", "∏": "Π", "µ": "u", "°": "deg",
    "‰": " per mille", "¬": "not ",
    # Arrows and pointers.
    **dict.fromkeys("→➔➙➛➜➝➞➡⟶", "->"),
    **dict.fromkeys("←⟵⬅", "<-"),
    **dict.fromkeys("↔⟷", "<->"),
    **dict.fromkeys("⇒⟹", "=>"),
    **dict.fromkeys("▶▸►▷▹", ">"),
    **dict.fromkeys("◀◂◄◁◃", "<"),
    **dict.fromkeys("↑⬆▲△", "^"),
    **dict.fromkeys("↓⬇▼▽", "v"),
    # Signs of trade and of law, and references to notes.
    "©": "(c)", "®": "(R)", "℗": "(P)", "™": "TM", "№": "No.", "℮": "e", "¶": "", "†": "*", "‡": "**",
    "\ufffd": "?", "‽": "?!", "⸮": "?", "。": ".", "、": ",",
    # Money. Some signs serve several currencies; those are left as they are.
    "¢": "c", "₤": "£", "฿": "THB", "৳": "BDT", "₡": "CRC", "₣": "F", "₦": "NGN", "₩": "KRW", "₪": "ILS",
    "₫": "VND", "₭": "LAK", "₮": "MNT", "₱": "PHP", "₲": "PYG", "₴": "UAH", "₵": "GHS", "₸": "KZT",
    "₹": "INR", "₺": "TRY", "₼": "AZN", "₽": "RUB", "₾": "GEL", "₿": "BTC", "৲": "Rs", "₧": "Pts",
    # Letters that Unicode does not take apart: those of Europe, then those of Africa.
    "Œ": "OE", "œ": "oe", "Þ": "Th", "þ": "th", "Ð": "D", "ð": "d", "Đ": "D", "đ": "d", "Ħ": "H", "ħ": "h",
    "ı": "i", "ĸ": "k", "Ł": "L", "ł": "l", "Ŀ": "L", "ŀ": "l", "Ŋ": "N", "ŋ": "n", "Ŧ": "T", "ŧ": "t",
    "ẞ": "SS", "ȷ": "j", "Ώ": "Ω", "Ƒ": "F", "ƒ": "f", "ƀ": "b", "Ƚ": "L", "ƚ": "l", "ɫ": "l",
    "Ɨ": "I", "ɨ": "i",
    "Ɓ": "B", "ɓ": "b", "Ƈ": "C", "ƈ": "c", "Ɖ": "D", "ɖ": "d", "Ɗ": "D", "ɗ": "d", "Ǝ": "E", "ǝ": "e",
    "Ə": "E", "ə": "e", "Ɛ": "E", "ɛ": "e", "Ɠ": "G", "ɠ": "g", "ɡ": "g", "Ɣ": "G", "ɣ": "g", "Ɩ": "I",
    "ɩ": "i", "ɪ": "i", "Ƙ": "K", "ƙ": "k", "Ɲ": "N", "ɲ": "n", "Ɔ": "O", "ɔ": "o", "Ƥ": "P", "ƥ": "p",
    "Ʃ": "S", "ʃ": "s", "ʂ": "s", "ȿ": "s", "Ƭ": "T", "ƭ": "t", "ʈ": "t", "Ʊ": "U", "ʊ": "u", "Ʋ": "V",
    "ʋ": "v", "Ƴ": "Y", "ƴ": "y", "Ƶ": "Z", "ƶ": "z", "Ʒ": "Z", "ʒ": "z", "ʐ": "z", "ɀ": "z", "ɑ": "a",
    "ǀ": "|", "ǁ": "||", "ǃ": "!",
    # Units, with the degree as above.
    "℃": "degC", "℉": "degF",
    # Numbers and letters in circles and boxes.
    **_numbered(0x2460, range(1, 21), "({})"),
    **_numbered(0x24EB, range(11, 21), "({})"),
    **_numbered(0x24F5, range(1, 11), "({})"),
    **_numbered(0x2776, range(1, 11), "({})"),
    **_numbered(0x2780, range(1, 11), "({})"),
    **_numbered(0x278A, range(1, 11), "({})"),
    **_numbered(0x2488, range(1, 21), "{}."),
    "⓪": "(0)", "⓿": "(0)", "\U0001f51f": "10",
    **_lettered(0x1F150),
    **_lettered(0x1F170),
    "\U0001f18e": "AB", "\U0001f191": "CL", "\U0001f192": "COOL", "\U0001f193": "FREE", "\U0001f194": "ID",
    "\U0001f195": "NEW", "\U0001f196": "NG", "\U0001f197": "OK", "\U0001f198": "SOS", "\U0001f199": "UP!",
    "\U0001f19a": "VS",
}  # fmt: skip

# Behind a digit these would make another number of it: one and a half is not eleven halves.
AFTER_DIGIT: Final[dict[str, str]] = {
    **{high: f"^{number}" for number, high in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{low: f"_{number}" for number, low in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **_numbered(0x2488, range(1, 21), " {}."),
    "¼": " 1/4", "½": " 1/2", "¾": " 3/4", "⅐": " 1/7", "⅑": " 1/9", "⅒": " 1/10", "⅓": " 1/3", "⅔": " 2/3",
    "⅕": " 1/5", "⅖": " 2/5", "⅗": " 3/5", "⅘": " 4/5", "⅙": " 1/6", "⅚": " 5/6", "⅛": " 1/8", "⅜": " 3/8",
    "⅝": " 5/8", "⅞": " 7/8", "⅟": " 1/", "↉": " 0/3", "\U0001f51f": " 10",
}  # fmt: skip

# From here on: the inside of the square brackets of a regular expression.
# Accents and variation selectors, which belong to the character before them. Those of one script are letters.
MARKS: Final = (
    "\u0300-\u036f\u1ab0-\u1abe\u1dc0-\u1df5\u20d0-\u20f0\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef"
)
# They glue pictures together, but in some scripts they make another word.
JOINERS: Final = "\u200c\u200d"
# Controls, soft hyphen, directions, and what has no width.
INVISIBLE: Final = (
    "\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180b-\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffc"
)
# What a text can hold without showing anything, beside blanks and the three above: selectors and fillers.
_UNSEEN: Final = "\u034f\u17b4\u17b5\u180f\u2800\ufe00-\ufe0f\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
# Emoji and their parts: pictures, flags, tones of skin. Room for those to come is in the last but one.
PICTOGRAPHS: Final = (
    "\u2195-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u2600-\u2604\u2607-\u2714\u2719-\u2725"
    "\u2728-\u2730\u2735\u273a-\u274b\u274d\u274f-\u2757\u2761-\u2767\u27b0\u27bf\u2934\u2935\u2b1b\u2b1c\u2b50"
    "\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f0ff\U0001f1e6-\U0001f1ff\U0001f201\U0001f202\U0001f21a"
    "\U0001f22f\U0001f232-\U0001f23a\U0001f250\U0001f251\U0001f300-\U0001f51e\U0001f520-\U0001faff"
    "\U000e0001\U000e0020-\U000e007f"
)
# Latin letters, letterlike signs, numbers, units, and forms that are wide, small or mathematical.
DECOMPOSED: Final = (
    "\u00aa-\u024f\u02b0-\u02b8\u02e0-\u02e4\u1d2c-\u1d6a\u1d9b-\u1dbf\u1e00-\u1eff\u2024-\u2026\u2032-\u2037"
    "\u203c-\u203d\u2047-\u2049\u2057\u2070-\u2071\u2074-\u208e\u2090-\u209c\u20a8\u2100-\u2189\u2460-\u24ff"
    "\u2c7c\u2c7d\u32cc-\u32cf\u3371-\u3376\u3380-\u33df\ufb00-\ufb06\ufe10-\ufe19\ufe50-\ufe52\ufe54-\ufe66"
    "\ufe68-\ufe6b\uff01-\uff5e\uffe0-\uffe2\uffe4-\uffe6\U0001d400-\U0001d7ff"
    "\U0001f110-\U0001f12e\U0001f130-\U0001f14f"
)

# Words for what people cannot see.
NAMES: Final[dict[str, str]] = {
    "\t": "tab", "\n": "line break", "\r": "carriage return", "\f": "page break", " ": "space",
    "\v": "line break", "\x85": "line break", "\xa0": "no-break space", "\xad": "soft hyphen",
    "\u1680": "Ogham space", "\u2000": "en space", "\u2001": "em space", "\u2002": "en space",
    "\u2003": "em space", "\u2004": "third of an em space", "\u2005": "quarter of an em space",
    "\u2006": "sixth of an em space", "\u2007": "figure space", "\u2008": "punctuation space",
    "\u2009": "thin space", "\u200a": "hair space", "\u200b": "zero-width space",
    "\u200c": "zero-width non-joiner", "\u200d": "zero-width joiner", "\u200e": "left-to-right mark",
    "\u200f": "right-to-left mark", "\u2028": "line separator", "\u2029": "paragraph separator",
    "\u202f": "narrow no-break space", "\u205f": "mathematical space", "\u2060": "word joiner",
    "\u2800": "blank Braille cell", "\u3000": "ideographic space", "\u3164": "Hangul filler",
    "\ufe0e": "text variation selector", "\ufe0f": "emoji variation selector",
    "\ufeff": "zero-width no-break space", "\ufffc": "object placeholder",
}  # fmt: skip

_GSM_7: Final = frozenset(BASIC + EXTENSION)
_PIECE: Final = re.compile(f"[{PICTOGRAPHS}][{PICTOGRAPHS}{MARKS}{JOINERS}]*|[^{MARKS}][{MARKS}]*|[{MARKS}]+")
_MARK: Final = re.compile(f"[{MARKS}]")
_JOINER: Final = re.compile(f"[{JOINERS}]")
_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_PICTOGRAPH: Final = re.compile(f"[{PICTOGRAPHS}]")
_DECOMPOSED: Final = re.compile(f"[{DECOMPOSED}]")
_DIGIT: Final = re.compile("[0-9]")
_SHOWN: Final = re.compile(rf"[^\s{JOINERS}{INVISIBLE}{_UNSEEN}]")
_WORD: Final = re.compile("[0-9A-Za-z]")
_NOT_CHARACTERS: Final = re.compile("[\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff]")


class Respelling(Struct, frozen=True):
    """A text in another spelling.

    `replaced` pairs each piece with what stands for it, and `left` lists those that have no spelling; both
    name a piece once, as they come. If nothing is left, the text is of the GSM-7 alphabet.
    """

    text: str
    replaced: Sequence[tuple[str, str]]
    left: Sequence[str]


def respell(text: str) -> Respelling:
    """Write a text in the GSM-7 alphabet as far as that keeps its meaning."""
    if _GSM_7.issuperset(text):
        return Respelling(text, (), ())
    replaced: dict[str, str] = {}
    left: dict[str, None] = {}
    written: list[str] = []
    before, stayed, gap = "", False, False
    for piece in _PIECE.findall(text):
        spelt = _spell(piece, before, _last(written), stayed=stayed)
        stayed = spelt is None
        if spelt is None:
            left[piece] = None
        elif spelt != piece:
            replaced.setdefault(piece, spelt)
        if spelt != "":
            gap = not _write(written, spelt or piece, gap=gap)
        elif _PICTOGRAPH.match(piece):
            gap = True
        before = piece[0]
    if gap and written[-1:] == [" "]:
        written.pop()
    return Respelling("".join(written), tuple(replaced.items()), tuple(left))


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: it is empty, or has only blanks and invisible characters."""
    return _SHOWN.search(text) is None


def name(character: str) -> str:
    """Return how to show a character to people: itself, or words if they would not see it."""
    if not character:
        return "nothing"
    if len(character) > 1:
        return character
    words = NAMES.get(character)
    if words is None and _INVISIBLE.match(character):
        words = "invisible character"
    elif words is None and _MARK.match(character):
        words = "accent"
    elif words is None and _NOT_CHARACTERS.match(character):
        words = "unknown character"
    return character if words is None else f"{words} (U+{ord(character):04X})"


def _spell(piece: str, before: str, last: str, *, stayed: bool) -> str | None:
    """Return the spelling of a piece, or None if it has none."""
    if piece in _GSM_7:
        return piece
    if _PICTOGRAPH.match(piece) or _INVISIBLE.match(piece) or _MARK.match(piece):
        return ""
    if _JOINER.match(piece):
        return None if stayed else ""
    # Composed first: a stroke through an equals sign must not be dropped like an accent.
    base = unicodedata.normalize("NFC", piece)[0]
    if base in _GSM_7:
        return base
    # Of several in a row only the first stands behind the number.
    if base in AFTER_DIGIT and before not in AFTER_DIGIT and _DIGIT.match(last):
        return AFTER_DIGIT[base]
    return SPELLINGS[base] if base in SPELLINGS else _decompose(base)


def _decompose(character: str) -> str | None:
    """Decompose a character and keep those of its accents that the alphabet has."""
    if not _DECOMPOSED.match(character):
        return None
    spelt = ""
    for letter in unicodedata.normalize("NFKD", character):
        if _MARK.match(letter):
            accented = unicodedata.normalize("NFC", spelt[-1:] + letter)
            spelt = spelt[:-1] + accented if accented in _GSM_7 else spelt
        elif letter in _GSM_7:
            spelt += letter
        elif letter in SPELLINGS:
            spelt += SPELLINGS[letter]
        else:
            return None
    return spelt


def _last(written: Sequence[str]) -> str:
    return written[-1][-1] if written else ""


def _write(written: list[str], spelt: str, *, gap: bool) -> bool:
    """Append a spelling, and return False if it was dropped.

    Where a picture was removed, one blank separates two words and none ends a line.
    """
    last = _last(written)
    if gap and spelt == " " and last in {"", " ", "\n", "\r"}:
        return False
    if gap and spelt in {"\n", "\r"} and written[-1:] == [" "]:
        written.pop()
    elif gap and _WORD.match(spelt) and _WORD.match(last):
        written.append(" ")
    written.append(spelt)
    return True
