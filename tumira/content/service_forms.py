"""The forms of notices that must arrive: passcode, money alert, delivery, appointment and outage.

A form is a few kinds of words and figures that stand together, such as a word for "code" beside a number of
four to eight digits. A text with a price or the plain words of an offer has no form.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

CACHED_WORDS: Final = 16_384
# A longer word is no word of the tables.
WORD_MAX: Final = 40
# How many words and figures may stand between the parts of a form.
CODE_GAP: Final = 10
NEXT_GAP: Final = 3
BALANCE_GAP: Final = 8
MONEY_GAP: Final = 10
OWNER_GAP: Final = 5
STATE_GAP: Final = 12
EVENT_GAP: Final = 25

# Words by kind and languages; `-` stands for any letters, so that prefixes and endings count.
_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "currency": {"any": "r -$ -usd -zwg -zig zar rtgs rand rands"},
    # Words before a number to call or to send something to.
    "to": {"any": "to sms dial call text reply na ku kwa kwi ho go"},
    "code word": {
        "en af": "code codes otp pin passcode password -kode -kodes wagwoord",
        "sn nd xh zu": "-kodhi- -kodi pini -pasiwedhi -khodi- -khowudi- -phasiwedi- -otp ipin",
        "nso st tn": "-khoutu- -khouto- -phasewete- -phasewoto-",
    },
    # What a code is for that is used later.
    "kept": {
        "en af": "parcel- package- locker- collect- voucher- coupon- pakkie- -kluis -haal koopbewys- koepon-",
        "sn nd xh zu": "-pasuru -vhaucha -phasela -phasile -pasela -vawusha",
        "nso st tn": "-phasele -vautshara -vaotjhara -phuthelwana",
    },
    "use": {
        "en af sn": "use enter type gebruik tik voer shandis- isai nyorai",
        "nd xh zu nso st tn": "sebenzis- faka ngenisa sebedis- diris- somis- kenya tsenya",
    },
    "login": {
        "en af sn": "sign log login verify confirm authori-e complete -meld bevestig magtig -pinda -simbis-",
        "nd xh zu nso st tn": "-ngena -ngene -qinisekis- kena tsena netefats- tiisets- tlhomamis-",
    },
    # In the last two rows the endings of the perfect and the passive stand for all verbs.
    "moved": {
        "en": "paid received credited debited deposited deduct- withdr- transferred refund- sent payment due",
        "af": "-betaal- betaling ontvang onttrek- oorge- gestort -iteer afgetrek aankoop",
        "sn": "-swa -irwa -tambir- -bhadhar- -erwa -pinda -tumira -tenga -burits- -torwa -kundikana",
        "nd xh zu": "-iwe -lwe -shwe -kwe -nswe -tswe -thwe -hwe -ile -ele -ene",
        "nso st tn": "-tswe -ilwe -uwe -uwa -iwa -elwa -tse -ile",
    },
    "balance": {
        "en af": "balance bal saldo balans beskikba-",
        "sn nd xh zu": "-sara -bharanzi -bhalanzi -sele -seleyo -salayo -salele -bhalansi -balansi",
        "nso st tn": "setse -setseng -tshetseng -salang -masale- -balanse -palanse -setsego",
    },
    "account": {
        "en": "account acc acct card ref reference txn transaction receipt invoice trace",
        "af": "-rekening rek -kaart verwysing verw kwitansie faktuur",
        "sn nd xh zu": "-akaundi -akaunti -account -kadhi -akhawunti- -khadi -inkomba- -referensi -risi-i",
        "nso st tn": "-akhaont- -karete- -karata- -referense -tshupiso -rasiti -resiti",
    },
    "parcel": {
        "en": "parcel- package order delivery shipment waybill consignment card",
        "af": "-pakkie bestelling -lewering besending vragbrief -kaart",
        "sn": "-pasuru -odha -odhari -pakeji -kadhi",
        "nd xh zu": "-asela -phasile -pasile oda ioda -odolo -phakheji -khadi",
        "nso st tn": "-asela -phasele odara otara oda -sephuthelwana -karete -karata",
    },
    "state": {
        "en": "deliver delivered shipped dispatched arriv- ready collect- out way transit delayed returned",
        "af": "-lewer gestuur versend aangekom gereed oppad pad onderweg vertraag reg haal afhaal wag terug",
        "sn": "-svik- -svitswa -tumirwa -endeswa -nzira -gadzir- -dzoserwa -nonoka -dzoka -tor- -mirira",
        "nd xh zu": "-ile -iwe -swe -lwe -fika -lwa -leth- -ndleleni -land- -thath- -zis- -lind- -buya",
        "nso st tn": "-ile -tswe -fihla -goroga -tseleng -siame -tse -tsw- -dieg- -dieh- -lat- -diwa -tlisa",
    },
    "place": {"any": "branch counter depot locker office store tak poskantoor -posvo -posini -posong"},
    "your": {"any": "your ur jou u -enyu -akho hao gago"},
    "visit": {
        "en af": "-appointment- appt consultation booking session interview -afspraak ondersoek onderhoud",
        "sn nd xh zu": "-apoint- -aponti- -aphoyint- -apoyint- -dinga -bhukhelwe -bhukhiwe",
        "nso st tn": "-peelano -apoente- -peo -kopano",
    },
    "doctor": {
        "en af": "doctor dr clinic dentist hospital surgery vaccination dokter kliniek tandarts hospitaal",
        "sn": "-chiremba -kiriniki -chipatara -mukoti -dhokotera",
        "nd xh zu": "-dokotela -dokodela -gqirha -kliniki -tholampilo -sibhedlela -nesi -gonyw-",
        "nso st tn": "-ngaka -tleliniki- -kliniki- -bookelo- -sepetlele- -kokelo- -entwa",
    },
    "utility": {
        "en": "electricity power water network system- service- ussd app atm- line internet fibre -shedding",
        "af": "elektrisiteit -krag water- -netwerk- -stelsel- diens -dienste -lyn vesel",
        "sn nd xh zu": "-magetsi -mvura -netiweki -sisitimu -gesi -manzi -mbane -neth-wekhi -sistimu -nkonzo",
        "nso st tn": "-motlakase -mohlagase -metsi -meetse -ne-weke -s-teme ditirelo ditshebeletso",
    },
    "off": {
        "en": "off outage- interrupt- maintenance -shedding restore- fault unavailable down upgrad- repair-",
        "af": "af -onderbr- -onderhoud beurtkrag herstel- onbeskikbaar afge- fout foute gebars",
        "sn": "-dzim- -gadzir- hakuna hapana -enda -vharwa -dzoka -dzoke -dzorerwa -shaiwa -dimu-",
        "nd xh zu": "-cish- -citsh- -cim- -ciny- -lungis- -khand- -val- -nqan- -nqam- -phazam- -buy- -kho",
        "nso st tn": "-tim- -tingwa -kgao- -lokis- -paakan- -tswal- -kwal- -kwetswe -tswetswe -kgutl- bo-",
    },
    "area": {"any": "area- suburb buurt gebied -nharaunda -ndawo -ndaweni -tulong -tikolo-ong -lefelong"},
    "day": {
        "en af": "-day mon tue wed thu fri sat sun tonight tomorrow -dag vanaand vannag oormore",
        "sn": "-muvhuro -chipiri -chitatu -china -chishanu -mugovera -svondo nhasi mangwana",
        "nd xh zu": "-mvulo -msombuluko -lwesi- -mgqibelo -sonto -cawe namuhla lamuhla namhlanje",
        "nso st tn": "-mantaha -osupologo -labo- -moqebelo -matlhatso -mokibelo -sontaha -latshipi -lamorena",
        "any": "kusasa ngomso kajeno gompieno lehono hosane kamoso gosasa",
    },
    # Parts of a day stand for the hour where it is written as a single figure.
    "time": {
        "en af sn": "morning afternoon evening oggend middag aand mangwanani masikati manheru",
        "nd xh zu nso st tn": "ekuseni emini kusihlwa ntambama hoseng mesong mosong motsheare mantsiboya",
    },
    # Beside an amount these make a price.
    "only": {"any": "only just net kuphela chete fela feela"},
    "offer": {
        "en": "discount- promo- specials sale deal- win bet bets odds jackpot borrow cashback qualify half",
        "af": "afslag aanbod gratis verniet wen uitverkoping spaar kry ekstra",
        "sn": "-dzikiswa -derera mahara -hwina kwereta- tengai muwane munowana wedzerai",
        "nd xh zu": "-saphulelo -ehlisiwe mahhala simahla mahala -wina -boleka thenga thola uthola engeza",
        "nso st tn": "-theolelo -phokotso fenya hapa adima halofo rekisa",
    },
}
_OFFER: Final = re.compile(
    r"\d ?%? off\b|\bup to \d+ ?%|\bsave \d|\bget (?:\d|r\d|usd|\$|double|extra)|(?<!toll[ -])\bfree\b"
    r"|\b(?:up to|tot|from|vanaf) (?:r|usd|us\$|\$|zig|zwg) ?\d"
    r"|\b(?:shop|buy|play|apply|claim|order|book|bet|join|register|upgrade) now\b"
    r"|\b(?:claim|order|book|redeem) (?:your|yours|an?)\b"
)
# A code that is good for hours or days.
_LASTING: Final = re.compile(
    r"\b(?:valid|expires?|within|geldig|verval|binne)\b\D{0,16}\d+ ?"
    r"(?:h|hrs?|hours?|days?|weeks?|uur|ure|dae|weke)\b"
)
_MONTH: Final = r"(?:jan|feb|mar|apr|may|mei|jun|jul|aug|sep|oct|okt|nov|dec|des)[a-z]{0,6}"
# It looks behind its first digit, because a search for a digit is faster.
_CODE: Final = re.compile(
    r"\d(?<![a-z\d]\d)(?<!\d[- ]\d)(?:\d\d[- ]\d{3,4}|\d{3,7})(?![\da-z*#])(?!(?:[- ]|[.,:]\d)\d)"
)
# A word of letters first, because most are; figures that are none of the other kinds last.
_TOKEN: Final = re.compile(
    r"(?P<word>[a-z$]+)"
    r"|(?<![*x])\*\d[\d*]{0,20}#"
    r"|(?P<time>\d{1,2}(?:[:h]\d{2}(?!\d)| ?[ap]m\b))"
    rf"|(?P<date>\d{{1,2}}(?:/\d{{2}}(?![\d/])|[a-z]{{0,2}} ?{_MONTH})|\d{{1,4}}[/-]\d{{1,2}}[/-]\d{{2,4}})"
    rf"|(?P<code>{_CODE.pattern})"
    r"|(?P<number>\d{3,}(?:[.,]\d+)?)"
    r"|(?P<small>\d[\d.,]*)"
)
_Places = Mapping[str, Sequence[int]]


def has_service_form(text: str) -> bool:
    """Return whether a normalised text has one of the forms, and no plain offer."""
    places = _find_places(text)
    return any(form(places) for form in _FORMS) and not _is_offer(text, places)


def has_passcode_form(text: str) -> bool:
    """Return whether a normalised text has the form of a passcode for use at once, and no plain offer."""
    # Most texts have no such figures, and most others no such word.
    if not _CODE.search(text) or not any(map(text.__contains__, _PASSCODE_LETTERS)):
        return False
    places = _find_places(text)
    if not _is_passcode(places) or places["kept"]:
        return False
    return not _is_offer(text, places) and not _LASTING.search(text)


def _find_places(text: str) -> _Places:
    """Return where words and figures of each kind stand."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    currency = False
    for place, match in enumerate(_TOKEN.finditer(text)):
        kind = match.lastgroup or "small"
        kinds = _kinds(match[0]) if kind == "word" else (kind,)
        # An amount is figures beside a currency.
        if currency and kind != "word":
            kinds = ("amount",)
        for one in kinds:
            places[one].append(place)
        currency = "currency" in kinds
    return places


def _is_offer(text: str, places: _Places) -> bool:
    """Tell whether a text is a plain offer."""
    if places["offer"] or _near(places["amount"], places["only"], NEXT_GAP):
        return True
    return _OFFER.search(text) is not None


def _is_passcode(places: _Places) -> bool:
    figures = _not_to(places, places["code"])
    if _near(figures, places["code word"], CODE_GAP):
        return True
    used = _beside(figures, places["use"], NEXT_GAP)
    return _near(used, places["login"], CODE_GAP)


def _is_money_alert(places: _Places) -> bool:
    amounts, references = places["amount"], _references(places)
    if _near(amounts, places["balance"], BALANCE_GAP) or _near(amounts, references, MONEY_GAP):
        return True
    moved = _beside(amounts, places["moved"], MONEY_GAP)
    return _near(moved, [*references, *places["date"]], EVENT_GAP)


def _is_delivery(places: _Places) -> bool:
    numbers = _figures(places)
    parcels = _beside(places["parcel"], places["state"], STATE_GAP)
    # What has a number, belongs to the reader and has arrived is a parcel even if it is misspelt.
    owned = _beside(numbers, places["your"], NEXT_GAP)
    if _near(parcels, numbers, OWNER_GAP) or _near(owned, places["state"], NEXT_GAP):
        return True
    mine = _beside(parcels, places["your"], OWNER_GAP)
    return _near(mine, [*_days(places), *places["place"], *_references(places)], EVENT_GAP)


def _is_appointment(places: _Places) -> bool:
    if _near(places["visit"], _days(places), EVENT_GAP):
        return True
    timed = _beside(places["doctor"], places["time"], EVENT_GAP)
    return _near(timed, [*places["date"], *places["day"]], EVENT_GAP)


def _is_outage(places: _Places) -> bool:
    cut = _beside(places["utility"], places["off"], STATE_GAP)
    return _near(cut, [*_days(places), *places["area"]], EVENT_GAP)


_FORMS: Final = (_is_passcode, _is_money_alert, _is_delivery, _is_appointment, _is_outage)


def _figures(places: _Places) -> Sequence[int]:
    return _not_to(places, [*places["code"], *places["number"]])


def _references(places: _Places) -> Sequence[int]:
    """Return the words for an account or a reference that have its number beside them."""
    return _beside(places["account"], _figures(places), OWNER_GAP)


def _not_to(places: _Places, figures: Sequence[int]) -> Sequence[int]:
    """Leave out figures to which something is sent."""
    after = {place + 1 for place in places["to"]}
    return [place for place in figures if place not in after]


def _days(places: _Places) -> Sequence[int]:
    return [*places["time"], *places["date"], *places["day"]]


def _near(some: Sequence[int], others: Sequence[int], gap: int) -> bool:
    return bool(_beside(some, others, gap))


def _beside(some: Sequence[int], others: Sequence[int], gap: int) -> Sequence[int]:
    """Return those places that have one of the others within the gap."""
    if not some or not others:
        return ()
    ordered = sorted(others)
    firsts = ((place, bisect_left(ordered, place - gap)) for place in some)
    return [place for place, first in firsts if first < len(ordered) and ordered[first] <= place + gap]


@lru_cache(CACHED_WORDS)
def _kinds(word: str) -> Sequence[str]:
    return [kind for kind, pattern in _PATTERNS.items() if len(word) <= WORD_MAX and pattern.fullmatch(word)]


def _pattern(rows: Mapping[str, str]) -> re.Pattern[str]:
    stems = {re.escape(stem).replace(r"\-", "[a-z]*") for row in rows.values() for stem in row.split()}
    return re.compile("|".join(sorted(stems)))


def _letters(kind: str) -> Sequence[str]:
    """Return letters of which each word of a kind contains some."""
    stems = {max(stem.split("-"), key=len) for row in _TABLES[kind].values() for stem in row.split()}
    return sorted(stem for stem in stems if not any(other in stem for other in stems - {stem}))


_PASSCODE_LETTERS: Final = (*_letters("code word"), *_letters("login"))
_PATTERNS: Final = {kind: _pattern(rows) for kind, rows in _TABLES.items()}
