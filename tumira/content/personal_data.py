"""Personal data in a text, and the text without it.

Names are found behind a greeting or a title; a name elsewhere stays.
"""

import re
from typing import Final

# Behind these stands a name, in the languages of both countries.
_GREETINGS: Final = (
    "dear|hi|hello|hey|hie|good (?:morning|day|afternoon|evening)|greetings"
    "|makadii|makadini|mhoro|mhoroi|kwaziwai|wadiwa|mangwanani|masikati|manheru"
    "|sawubona|sanibona|salibonani|molo|molweni|bhota|lotjhani"
    "|dumela|dumelang|lumela|lumelang|thobela"
    "|beste|geagte|liewe|hallo|goeie (?:more|môre|dag|middag|naand)"
)
_TITLES: Final = "mr|mrs|ms|miss|dr|prof|rev|pastor|adv|mnr|mev|mai|baba|mama|ntate|mme|rre|mma"
# They greet a reader without a name, or begin the sentence behind a greeting.
_NO_NAME: Final = re.compile(
    "valued|customers?|clients?|members?|parents?|guardians?|sir|madam|all|there|team|colleagues?|students?"
    "|learners?|patients?|guests?|tenants?|residents?|passengers?|subscribers?|users?|employees?|staff"
    "|drivers?|applicants?|policyholders?|cardholders?|shareholders?|friends?|family|everyone"
    "|mutengi|vatengi|mubereki|vabereki|nhengo|kliënte?|ouers?|lede|lid|mzali|bazali|mthengi|bathengi"
    "|motswadi|batswadi|moreki|bareki|motsoadi|batsoadi"
    "|your?|u|ur|we|our|the|this|that|please|kindly|is|are|has|have|to|for|from|jou|ons|die",
    re.IGNORECASE,
)
_WORD: Final = r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*"
_CAPITAL: Final = r"[A-ZÀ-ÖØ-Þ][^\W\d_]*(?:['\u2019-][^\W\d_]+)*"
# Up to three words before a sign, or capitalised ones.
_GREETED: Final = re.compile(
    rf"(?P<before>(?:^|(?<=[.!?:,;\n])|(?<=[.!?:,;] ))\s*(?i:{_GREETINGS}),?\s+(?:(?i:{_TITLES})\.?\s+)?)"
    rf"(?P<name>{_WORD}(?: {_WORD}){{0,2}}(?=\s*[,!:\n])|{_CAPITAL}(?: {_CAPITAL}){{0,2}})"
)
_TITLED: Final = re.compile(
    r"(?P<before>\b(?:(?:Mr|Mrs|Ms|Miss|Dr|Prof|Mnr|Mev)\.?|(?:[Pp]arents?|[Gg]uardians?) of)\s+)"
    rf"(?P<name>{_CAPITAL}(?: {_CAPITAL})?)"
)
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_LINK: Final = re.compile(
    r"(?P<host>(?:https?://|www\.)[\w.-]+(?::\d+)?|\b[\w-]+(?:\.[\w-]+)*\.[a-z]{2,6}(?=/))/[^\s<>\"]*",
    re.IGNORECASE,
)
# Phone numbers, accounts, identities and references; also in groups of digits.
_LONG_NUMBER: Final = re.compile(r"(?<![\w*#])\+?\d(?:[ -]?\d){6,}(?!\w)|\d{5,}")
_DIGIT: Final = re.compile(r"\d")

SOME_NAME: Final = "Tariro"


def replace_names(text: str, name: str) -> str:
    """Put another name, or a placeholder, where a name stands behind a greeting or a title."""
    for pattern in (_GREETED, _TITLED):
        text = pattern.sub(lambda found: found["before"] + _replace_name(found["name"], name), text)
    return text


def _replace_name(words: str, name: str) -> str:
    first, *others = words.split(" ")
    if _NO_NAME.fullmatch(first):
        return words
    # In capital letters throughout, the sentence behind the name looks like names too.
    rest = next((place for place, word in enumerate(others) if _NO_NAME.fullmatch(word)), len(others))
    return " ".join([name, *others[rest:]])


def anonymise(text: str) -> str:
    """Return a text without names in greetings, mail addresses, paths of links and long numbers."""
    text = _MAIL.sub("name@example.com", text)
    text = _LINK.sub(lambda found: found["host"] + "/x", text)
    text = _LONG_NUMBER.sub(lambda found: _DIGIT.sub("0", found[0]), text)
    return replace_names(text, SOME_NAME)
