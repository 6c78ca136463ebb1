"""Phrases of which the law is plain that they are marketing.

The patterns match normalised text: lower case, no accents. `docs/content-policy.md` explains each category.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from tumira.content.verdict import Category


def _one_of(patterns: Sequence[str]) -> re.Pattern[str]:
    # A blank stands for any white space.
    return re.compile("|".join(patterns).replace(" ", r"\s+"))


_MONEY: Final = r"(?:r|usd|us\$|zig|zwg|\$|rands? )\s*\d+"

# The prizes of a draw or competition, and how to enter it.
_PRIZE_DRAW: Final = (
    r"(?:stand|get|have|be in with) a chance (?:to|of) (?:win|being)\w*",
    (
        r"(?:chance|entered|entry|enter|play|vote|spend|buy|recharge|deposit)\b[^.!?]{0,60}"
        r" (?:to|and|&|could|can) win\b"
    ),
    r"\bwin (?:a share|your share|one of|up to|a brand|a trip|a car|a house|a holiday|big|instantly)\b",
    rf"\bwin {_MONEY}",
    r"\b(?:lucky|grand|prize|cash|monthly|weekly) draw\b(?! (?:result|date|venue))",
    r"\benter (?:the |our |this )?(?:competition|draw|raffle)\b",
)
# The same in Afrikaans, and in the other languages.
_PRIZE_DRAW_AF: Final = (
    r"\bstaan (?:jy |u )?'?n kans om\b[^.!?]{0,40}\bwen\b",
    r"\bwen (?:'n|een van|jou deel|tot)\b",
)
_PRIZE_DRAW_LOCAL: Final = (
    r"\bithuba loku(?:wina|win|zuza|phumelela)\w*|\bmukana wekuhwina\b|\bmukana wekuwina\b",
    r"\b(?:monyetla|sebaka) sa ho (?:hapa|wina)\b|\b(?:tshono ya|sebaka sa) go (?:fenya|wina)\b",
)
# Marketing must offer an opt-out, and service messages need none.
_OPT_OUT_LINE: Final = (
    r"\bopt[ -]?out\b[:;,]? (?:sms|reply|text|send|dial|with|by|stop|at|via|to \*?\d)",
    r"\b(?:to|\d) (?:opt[ -]?out|unsubscribe)\b",
    (
        r"\b(?:sms|reply|text|send|antwoord|stuur|pindurai|tumirai|phendula|araba|thumela|romela)"
        r" ['\"]?stop['\"]? (?:to|\d|na|ku|kwa|ho|go) (?:opt|end|unsub|\d{3,})"
    ),
    r"\bstop ?(?:to|=|\d) ?(?:end|opt|opt-?out|unsub\w*|\d{5})\b",
    r"\boptout\b|\bunsub(?:scribe)?:",
)
_BETTING_OFFER: Final = (
    (
        r"\bfree (?:bets?|spins?)\b[^.!?]{0,60}"
        r"\b(?:claim|deposit|join|sign|register|waiting|wait|today|now|when|bet|play|get)\b"
    ),
    r"\b(?:get|claim|grab|enjoy|your|a|extra) [^.!?]{0,30}\bfree (?:bets?|spins?)\b",
    r"\b(?:bet|stake|wager) (?:now|today|tonight|here|and win|from (?:as little|only|r|usd|\$))",
    r"\bplace (?:your|a) bets?\b(?! was)",
    r"\b(?:deposit|welcome|sign[ -]?up|betting) bonus\b",
    r"\b(?:boosted|enhanced|best|great|super) odds\b",
    r"\bgratis (?:bet|spins?|weddenskap)\b",
)
_LOAN_OFFER: Final = (
    (
        r"\b(?:you|u)(?: now| may| could| still)? (?:pre-?)?qualify for (?:a |an |up to |your )?"
        rf"(?:[a-z]+ ){{0,3}}(?:loan|credit|{_MONEY})"
    ),
    r"\bpre-?approved (?:for(?! \d)|loan|credit)\b",
    rf"\bloans? (?:from |up to |of up to |available |for up to ){_MONEY}",
    rf"\b(?:borrow|get a loan of) (?:up to )?{_MONEY}",
    r"\b(?:need|want) (?:(?:a|some|quick|extra|urgent) )*(?:cash|loan|money)\b(?! or\b)[^.!]{0,20}\?",
    (
        r"\b(?:apply|dial|sms|call)\b[^.!?]{0,30} for (?:a |your |an )"
        r"(?:(?:quick|instant|personal|cash|payday|salary) )?loan\b(?! (?:balance|statement))"
    ),
    rf"\blenings? (?:tot |van tot |vanaf ){_MONEY}",
    r"\bvoorafgoedgekeur\b|\bvooraf goedgekeur\b",
)


# A price that is lower than usual.
_DISCOUNT_OFFER: Final = (
    r"\b\d+\s*% (?:off|discount|less|afslag|korting)\b(?! (?:rates|of your (?:bill|rates|fine)))",
    r"\b(?:save|get|enjoy|kry|spaar) (?:up to |tot )?\d+\s*%",
    r"\b(?:buy|koop) (?:one|two|any|een|\d)\b[^.!?]{0,30}\b(?:get|kry)\b",
    r"\bhalf[ -]price\b|\b\d for (?:the price of )?\d\b(?! (?:people|persons|nights))",
    r"\b(?:isaphulelo|isephulelo) (?:sika|sama|se)-?\d+%|\btheolelo ya \d+\s*%",
)


class Rule(Struct, frozen=True):
    """A pattern of one category, and substrings of which every match contains at least one.

    A category may have several rules: the less a rule needs, the more rarely its pattern is tried.
    """

    category: Category
    needs: Sequence[str]
    pattern: re.Pattern[str]


RULES: Final = (
    Rule(
        Category.PRIZE_DRAW,
        ("win", "draw", "enter", "chance"),
        _one_of(_PRIZE_DRAW),
    ),
    Rule(Category.PRIZE_DRAW, ("wen",), _one_of(_PRIZE_DRAW_AF)),
    Rule(
        Category.PRIZE_DRAW,
        ("ithuba", "mukana", "monyetla", "sebaka", "tshono"),
        _one_of(_PRIZE_DRAW_LOCAL),
    ),
    Rule(Category.OPT_OUT_LINE, ("stop", "opt", "unsub"), _one_of(_OPT_OUT_LINE)),
    Rule(
        Category.BETTING_OFFER,
        ("bet", "spin", "stake", "wager", "bonus", "odds", "wedden"),
        _one_of(_BETTING_OFFER),
    ),
    Rule(
        Category.LOAN_OFFER,
        ("loan", "qualif", "approved", "borrow", "cash", "money", "lening", "goedgekeur"),
        _one_of(_LOAN_OFFER),
    ),
    Rule(
        Category.DISCOUNT_OFFER,
        ("%", "buy", "koop", "price", *(f"{digit} for " for digit in range(10))),
        _one_of(_DISCOUNT_OFFER),
    ),
)


# A category, and where the phrase begins and ends.
Phrase = tuple[Category, int, int]


def find_phrases(text: str) -> Iterator[Phrase]:
    """Yield the category and span of each rule match in a normalised text."""
    holds = " ".join(text.split()).__contains__
    for rule in RULES:
        # A pattern takes fifty times as long as a substring search.
        if any(map(holds, rule.needs)):
            for match in rule.pattern.finditer(text):
                yield rule.category, match.start(), match.end()
