"""Texts, disguises and phrases for the tests of the content check."""

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

CORPUS: Final = Path(__file__).parents[3] / "corpus"
LANGUAGES: Final = ("en", "sn", "nd", "zu", "xh", "st", "tn", "nso", "af")

PROMOTIONAL: Final[Mapping[str, Sequence[str]]] = {
    "en": (
        "OK Mart weekend special: 30% off all groceries on Saturday and Sunday. Hurry while stocks last!",
        "Get double data when you buy any bundle today! Dial *143# and enjoy. Offer ends midnight.",
        "Need school fees? Borrow up to USD 500 with QuickCash. Low interest, no collateral. Apply now!",
        "Black Friday is here! Save up to 60% on TVs and fridges at our Menlyn store. Shop now, T&Cs apply.",
        "Bet now on the Soweto derby and get a R50 free bet when you deposit. Best odds guaranteed!",
    ),
    "sn": (
        "Tengai mbatya itsva nemutengo wakaderera! 40% yadzikiswa pazvinhu zvese svondo rino chete.",
        "Wana data yakapetwa kaviri nhasi! Tenga bundle re$1 uwane 2GB mahara. Dhayara *143#.",
        "Munoda mari yefizi? Kweretai kusvika USD 500 nemubereko wakaderera. Taurai nesu nhasi!",
    ),
    "nd": (
        "Thengani izigqoko ezitsha ngentengo ephansi! 40% yehlisiwe esitolo sethu kule mpelaviki. Wozani!",
        "Thola i-data ephindwe kabili lamuhla! Thenga i-bundle ye-$1 uthole i-2GB mahala. Cindezela *143#.",
        "Udinga imali yesikolo? Boleka kuze kufike ku-USD 500 ngenzalo ephansi. Faka isicelo lamuhla!",
    ),
    "zu": (
        "Isipesheli sempelasonto! Thola u-30% wesaphulelo kuzo zonke izicathulo esitolo sethu. Shesha!",
        "Thenga i-1GB uthole enye i-1GB mahhala namuhla! Shayela *135# manje. Kusebenza imigomo nemibandela.",
        "Udinga imali ngokushesha? Boleka kuze kufike ku-R5 000 namuhla, inzalo ephansi. Faka isicelo manje!",
    ),
    "xh": (
        "Isaphulelo sempelaveki! Fumana i-30% kuzo zonke izihlangu kwivenkile yethu eMthatha. Khawuleza!",
        "Thenga i-1GB ufumane enye i-1GB simahla namhlanje! Cofa *135# ngoku. Kusebenza imiqathango.",
        "Ufuna imali ngokukhawuleza? Boleka ukuya kuthi ga kwi-R5 000, inzala ephantsi. Faka isicelo ngoku!",
    ),
    "st": (
        "Theolelo ya mafelo a beke! Fumana 30% ho dieta tsohle lebenkeleng la rona. Potlaka pele di fela!",
        "Reka 1GB o fumane e nngwe ya 1GB mahala kajeno! Letsetsa *135# hona joale. Ho sebetsa dipehelo.",
        "O hloka tjhelete ka potlako? Adima ho fihla ho R5 000 kajeno, tswala e tlase. Etsa kopo hona joale!",
    ),
    "tn": (
        "Theolelo ya mafelo a beke! Bona 30% mo ditlhakong tsotlhe kwa lebenkeleng la rona. Itlhaganele!",
        "Reka 1GB o bone e nngwe ya 1GB mahala gompieno! Leletsa *135# jaanong. Go dirisiwa melawana.",
        "A o tlhoka madi ka bonako? Adima go fitlha go R5 000 gompieno, morokotso o kwa tlase. Dira kopo!",
    ),
    "nso": (
        "Theolelo ya mafelelo a beke! Hwetša 30% go dieta ka moka lebenkeleng la rena Polokwane. Akgofa!",
        "Reka 1GB o hwetše ye nngwe ya 1GB mahala lehono! Leletša *135# bjale. Melawana e a šoma.",
        "O nyaka tšhelete ka pela? Adima go fihla go R5 000 lehono, tswala ya fase. Dira kgopelo bjale!",
    ),
    "af": (
        "Naweek-spesiale aanbod! Kry 30% afslag op alle skoene by ons winkel. Net solank voorraad hou!",
        "Koop 1GB en kry nog 1GB gratis vandag! Skakel *135# nou. Bepalings en voorwaardes geld.",
        "Kontant nodig? Kry 'n lening tot R5 000 vandag nog teen 'n lae rente. Doen nou aansoek!",
    ),
}

TRANSACTIONAL: Final[Mapping[str, Sequence[str]]] = {
    "en": (
        "CABS: USD 45.00 was withdrawn from account 3321 at ATM Avondale on 12 May. Balance USD 210.15.",
        "Your parcel 88213 is out for delivery today. Please keep your phone on; the driver will call you.",
        "Reminder: Tendai has an appointment at the clinic on Tuesday at 09:00. Please bring the card.",
        "Eskom: electricity in your area is off from 10:00 to 12:00 today because of repairs to the line.",
        "St Mary's Primary: school closes at 11:00 on Friday because of a staff meeting. Please be on time.",
    ),
    "sn": (
        "USD 45.00 yabviswa muaccount yenyu inoperera na3321 musi wa12 Chivabvu. Kwasara USD 210.15.",
        "Pasuru yenyu 88213 yasvika paposvo yeAvondale. Uyai neID kuzoitora isati yasvika 5pm.",
        "Tinokuyeuchidzai kuti Tendai anoona chiremba neChipiri na9 mangwanani kukiriniki. Uyai nekadhi.",
    ),
    "nd": (
        "I-USD 45.00 ikhutshiwe ku-akhawunti yakho ephela ngo-3321 mhla ka-12 May. Osekusele yi-USD 210.15.",
        "Iphasela lakho 88213 selifikile eposini. Woza le-ID uzolithatha ngaphambi kuka-5pm.",
        "Sikukhumbuza ukuthi uSipho uzabona udokotela ngoLwesibili ngo-9 ekuseni ekliniki. Woza lekhadi.",
    ),
    "zu": (
        "U-R450.00 ukhishwe ku-akhawunti yakho ephela ngo-3321 ngo-12 May. Imali esele ngu-R2 110.15.",
        "Iphasela lakho 88213 lifikile eposini. Woza nomazisi uzolilanda ngaphambi kuka-17:00.",
        "Sikukhumbuza ukuthi uSipho uzobona udokotela ngoLwesibili ngo-09:00 emtholampilo. Woza nekhadi.",
    ),
    "xh": (
        "I-R450.00 ikhutshiwe kwi-akhawunti yakho ephela ngo-3321 nge-12 May. Imali eseleyo yi-R2 110.15.",
        "Ipasile yakho 88213 ifikile eposini. Yiza nesazisi uze kuyithatha phambi kwe-17:00.",
        "Sikukhumbuza ukuba uSipho uza kubona ugqirha ngoLwesibini ngo-09:00 ekliniki. Yiza nekhadi.",
    ),
    "st": (
        "R450.00 e ntshitswe akhaonteng ya hao e fellang ka 3321 ka la 12 Motsheanong. Ho setse R2 110.15.",
        "Phasela ya hao 88213 e fihlile posong. Tloo le ID o e late pele ho 17:00.",
        "Re o hopotsa hore Thabo o tla bona ngaka ka Labobedi ka 09:00 tleliniking. Tloo le karete.",
    ),
    "tn": (
        "R450.00 e ntshitswe mo akhaonteng ya gago e e felelang ka 3321 ka 12 Mei. Go setse R2 110.15.",
        "Phasela ya gago 88213 e gorogile kwa posong. Tlaya le ID o tle go e tsaya pele ga 17:00.",
        "Re go gopotsa gore Thabo o tla bona ngaka ka Labobedi ka 09:00 kwa kliniking. Tlaya le karata.",
    ),
    "nso": (
        "R450.00 e ntšhitšwe akhaonteng ya gago yeo e felelago ka 3321 ka la 12 Mei. Go šetše R2 110.15.",
        "Phasela ya gago 88213 e fihlile posong. Etla le ID o e tšee pele ga 17:00.",
        "Re go gopotša gore Thabo o tlo bona ngaka ka Labobedi ka 09:00 kliniking. Etla le karata.",
    ),
    "af": (
        "R450.00 is op 12 Mei van jou rekening wat op 3321 eindig onttrek. Beskikbare saldo R2 110.15.",
        "Jou pakkie 88213 lê by die poskantoor. Bring asb jou ID en haal dit voor 17:00 af.",
        "Onthou: Pieter se afspraak by die kliniek is Dinsdag om 09:00. Bring asb die kaart saam.",
    ),
}


class Mixed(Struct, frozen=True):
    """A service sentence, and the advert that follows it."""

    service: str
    advert: str

    @property
    def text(self) -> str:
        return f"{self.service} {self.advert}"


MIXED: Final[Mapping[str, Mixed]] = {
    "en": Mixed("Your order shipped.", "20 % off next time!"),
    "en, longer": Mixed(
        "Your order 4471 was shipped and arrives on Friday.", "Get 20% off your next order, shop now!"
    ),
    "af": Mixed(
        "Jou bestelling 4471 is gestuur en kom Vrydag aan.", "Kry 20% afslag op jou volgende aankoop!"
    ),
    "sn": Mixed(
        "Odha yenyu 4471 yatumirwa, ichasvika neChishanu.",
        "Tengai zvakare svondo rino muwane 20% discount pazvinhu zvese muchitoro chedu, musasarire!",
    ),
    "nd": Mixed(
        "I-oda yakho 4471 isithunyelwe, izafika ngoLwesihlanu.",
        "Thenga futhi kule viki uthole i-discount ka-20% kuzo zonke izimpahla esitolo sethu, ungasali!",
    ),
    "zu": Mixed(
        "I-oda yakho 4471 isithunyelwe, izofika ngoLwesihlanu.",
        "Thenga futhi kuleli sonto uthole isaphulelo esingu-20% kuzo zonke izimpahla esitolo sethu, shesha!",
    ),
    "xh": Mixed(
        "I-odolo yakho 4471 ithunyelwe, iza kufika ngoLwesihlanu.",
        "Thenga kwakhona kule veki ufumane isaphulelo se-20% kuzo zonke iimpahla kwivenkile yethu!",
    ),
    "st": Mixed(
        "Odara ya hao 4471 e rometswe, e tla fihla ka Labohlano.",
        "Reka hape bekeng ena o fumane theolelo ya 20% ho dintho tsohle lebenkeleng la rona, potlaka!",
    ),
    "tn": Mixed(
        "Oda ya gago 4471 e rometswe, e tla goroga ka Labotlhano.",
        "Reka gape mo bekeng eno o bone theolelo ya 20% mo dilong tsotlhe kwa lebenkeleng la rona!",
    ),
    "nso": Mixed(
        "Otara ya gago 4471 e rometšwe, e tla fihla ka Labohlano.",
        "Reka gape bekeng ye o hwetše theolelo ya 20% go dilo ka moka lebenkeleng la rena, akgofa!",
    ),
}

SERVICE_PHRASES: Final = (
    "Your parcel 88213 has arrived.",
    "Your verification code is 482913.",
    "Your account balance is USD 210.15.",
    "Your appointment is on Tuesday at 09:00.",
    "Do not share this code with anyone.",
    "Pasuru yenyu yasvika.",
    "Kodhi yenyu ndeye 482913.",
    "Iphasela lakho selifikile.",
    "Ikhodi yakho ngu-482913.",
    "Imali esele ku-akhawunti yakho ngu-R210.15.",
    "Ipasile yakho ifikile.",
    "Phasela ya hao e fihlile.",
    "Khoutu ya gago ke 482913.",
    "Jou pakkie het aangekom.",
    "Jou saldo is R210.15.",
)

BRANDS: Final = ("Tumira", "EcoCash", "Capitec", "Takealot")
CODES: Final = ("4821", "48213", "482137", "4821370", "48213705")
AUTOFILL: Final = "\n@example.com #{code}"


class Passcodes(Struct, frozen=True):
    wordings: Sequence[str]
    validity: str
    secrecy: str


PASSCODES: Final[Mapping[str, Passcodes]] = {
    "en": Passcodes(
        (
            "Your {brand} verification code is {code}.",
            "{code} is your {brand} code.",
            "Use {code} to sign in to {brand}.",
        ),
        "It is valid for 10 minutes.",
        "Do not share it with anyone.",
    ),
    "sn": Passcodes(
        (
            "Kodhi yenyu ye{brand} ndeye {code}.",
            "{code} ndiyo kodhi yenyu ye{brand}.",
            "Shandisai {code} kupinda mu{brand}.",
        ),
        "Inoshanda kwemaminitsi 10.",
        "Musaudza munhu kodhi iyi.",
    ),
    "nd": Passcodes(
        (
            "Ikhodi yakho ye-{brand} ngu-{code}.",
            "{code} yikhodi yakho ye-{brand}.",
            "Sebenzisa u-{code} ukuze ungene ku-{brand}.",
        ),
        "Isebenza okwemizuzu engu-10.",
        "Ungatsheli muntu ikhodi le.",
    ),
    "zu": Passcodes(
        (
            "Ikhodi yakho yokuqinisekisa ye-{brand} ithi {code}.",
            "U-{code} uyikhodi yakho ye-{brand}.",
            "Sebenzisa u-{code} ukungena ku-{brand}.",
        ),
        "Isebenza imizuzu engu-10.",
        "Ungayitsheli noma ubani le khodi.",
    ),
    "xh": Passcodes(
        (
            "Ikhowudi yakho yokuqinisekisa ye-{brand} ngu-{code}.",
            "U-{code} yikhowudi yakho ye-{brand}.",
            "Sebenzisa u-{code} ukungena kwi-{brand}.",
        ),
        "Isebenza imizuzu eli-10.",
        "Musa ukuyixelela nabani na le khowudi.",
    ),
    "st": Passcodes(
        (
            "Khoutu ya hao ya netefatso ya {brand} ke {code}.",
            "{code} ke khoutu ya hao ya {brand}.",
            "Sebedisa {code} ho kena ho {brand}.",
        ),
        "E sebetsa metsotso e 10.",
        "O se ke wa e bolella motho.",
    ),
    "tn": Passcodes(
        (
            "Khoutu ya gago ya netefatso ya {brand} ke {code}.",
            "{code} ke khoutu ya gago ya {brand}.",
            "Dirisa {code} go tsena mo {brand}.",
        ),
        "E dira metsotso e 10.",
        "O se ka wa e bolelela ope.",
    ),
    "nso": Passcodes(
        (
            "Khoutu ya gago ya netefatšo ya {brand} ke {code}.",
            "{code} ke khoutu ya gago ya {brand}.",
            "Šomiša {code} go tsena go {brand}.",
        ),
        "E šoma metsotso ye 10.",
        "O se ke wa e botša motho.",
    ),
    "af": Passcodes(
        (
            "Jou {brand}-verifikasiekode is {code}.",
            "{code} is jou {brand}-kode.",
            "Gebruik {code} om by {brand} aan te meld.",
        ),
        "Dit is 10 minute geldig.",
        "Moenie dit met enigiemand deel nie.",
    ),
}


def passcode_messages(language: str) -> Iterator[str]:
    """Give every wording of a language with every brand, length of code and ending."""
    words = PASSCODES[language]
    endings = product(("", f" {words.validity}"), ("", f" {words.secrecy}"), ("", AUTOFILL))
    for wording, brand, code, ending in product(words.wordings, BRANDS, CODES, [*map("".join, endings)]):
        yield (wording + ending).format(brand=brand, code=code)


def corpus() -> Sequence[Mapping[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(CORPUS.glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]


def without(text: str, sentences: Sequence[str]) -> str:
    for sentence in sentences:
        assert sentence in text
        text = text.replace(sentence, "", 1)
    return text


def mathematical(one: str) -> str:
    """Write a letter or digit as its bold form."""
    for first, last, bold in (("a", "z", 0x1D41A), ("A", "Z", 0x1D400), ("0", "9", 0x1D7CE)):
        if first <= one <= last:
            return chr(ord(one) - ord(first) + bold)
    return one


def parted_by(gap: str) -> Callable[[str], str]:
    def part(text: str) -> str:
        return " ".join(_part(word, gap) for word in text.split(" "))

    return part


def _part(word: str, gap: str) -> str:
    core = word.rstrip(".,!?")
    if len(core) < 3 or not unicodedata.normalize("NFC", core).isalpha():
        return word
    return gap.join(core) + word[len(core) :]


def leet(text: str) -> str:
    """Write some letters of each word as the digits that look like them."""
    return " ".join(
        word.translate(str.maketrans("aeosAEOS", "43054305")) if word.rstrip(".,!?").isalpha() else word
        for word in text.split(" ")
    )


# Tricks that folding undoes without knowing any word.
DISGUISES: Final[Mapping[str, Callable[[str], str]]] = {
    "full width": lambda text: "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text),
    "mathematical": lambda text: "".join(map(mathematical, text)),
    "Cyrillic": lambda text: text.translate(str.maketrans("aceopxyiAEOPCTXKM", "асеорхуіАЕОРСТХКМ")),  # noqa: RUF001
    "Greek": lambda text: text.translate(str.maketrans("aoivAEIKOTX", "αοινΑΕΙΚΟΤΧ")),  # noqa: RUF001
    "zero width": lambda text: "".join(
        one + "\u200b\u200d\u2060"[place % 3] for place, one in enumerate(text)
    ),
    "soft hyphens": lambda text: "".join(one + "\u00ad" if one.isalpha() else one for one in text),
    "combining": lambda text: "".join(
        one + "\u0336\u0301"[place % 2] if one.isalpha() else one for place, one in enumerate(text)
    ),
    "boxed": lambda text: "".join(
        chr(ord(one) - ord("A") + 0x1F170) if "A" <= one <= "Z" else one for one in text.upper()
    ),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "spaced out": lambda text: "   ".join(" ".join(word) for word in text.split()),
    "dots": parted_by("."),
    "stars": parted_by("*"),
    "underscores": parted_by("_"),
    "hyphens": parted_by("-"),
}
