"""A third-party SMSC gets every text whole, in the fields that carriers ask for."""

from typing import Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.peers.smsc import Event, digits, fields, payload, run_foreign_smsc


async def test_the_fields_of_a_submit_are_those_that_carriers_ask_for(engine: Engine) -> None:
    recipient, far = "+263771200001", "+27821230001"
    async with run_foreign_smsc() as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [recipient, far], "Your code is 493817.")
        await engine.until_all("delivered")
        await smsc.catch_up()
        assert set(smsc.copies().values()) == {1}
        assert {one["to"] for one in smsc.taken} == {digits(recipient), digits(far)}
        for one in smsc.taken:
            read = fields(one["pdu"])
            assert read[:4] == [b"", b"\x05", b"\x00", b"Tumira"]
            assert read[4:7] == [b"\x01", b"\x01", one["to"].encode()]
            assert read[7:11] == [b"\x00", b"\x00", b"\x00", b""]
            # Nearly ten minutes are left for a passcode, counted from now: the R says so.
            validity = read[11].decode()
            assert validity[:6] + validity[12:] == "000000000R"
            assert "000900" < validity[6:12] <= "001000"
            assert read[12:16] == [b"\x01", b"\x00", b"\x00", b"\x00"]
            assert read[16] == b"Your code is 493817."
            assert (one["source"], one["from"]) == ([5, 0], "Tumira")
            assert (one["destination"], one["registered_delivery"]) == ([1, 1], 1)


# The 153rd septet of the first segment would be an escape, and so would others by and by.
GSM_7: Final = (
    ("Your verification code is 482913 and " * 5)[:152]
    + "€"
    + "[{x}]~^|\\_@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà" * 6
    + "\n"
    + "€" * 104
)
# The 67th unit of the first segment would be the first half of an emoji.
UCS_2: Final = "я" * 66 + "😀" * 40 + "漢字" * 20 + "👩\u200d👩\u200d👧" * 5


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "coding", "first", "longest"),
    [(GSM_7, 0, 152, 153), (UCS_2, 8, 132, 134)],
    ids=["GSM-7", "UCS-2"],
)
async def test_long_texts_arrive_whole_uncut_and_apart_from_each_other(
    engine: Engine, text: str, coding: int, first: int, longest: int
) -> None:
    (recipient,) = numbers(1)
    async with run_foreign_smsc() as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        for _ in range(2):
            await engine.send(caller, [recipient], text)
        await engine.until_all("delivered")
        await smsc.catch_up()
    texts: dict[int, list[Event]] = {}
    for one in smsc.taken:
        texts.setdefault(payload(one["pdu"])[3], []).append(one)
    # A handset joins the segments of one reference.
    assert len(texts) == 2
    for reference, segments in texts.items():
        segments.sort(key=lambda one: one["segment"])
        pieces = [payload(one["pdu"]) for one in segments]
        for number, piece in enumerate(pieces, 1):
            assert piece[:6] == bytes((5, 0, 3, reference, len(pieces), number))
        assert {(one["esm_class"], one["data_coding"]) for one in segments} == {(0x40, coding)}
        # Each is read by itself, so neither an escape nor a pair of surrogates was cut.
        assert "".join(one["text"] for one in segments) == text
        assert len(pieces[0]) == 6 + first
        assert all(first <= len(piece) - 6 <= longest for piece in pieces[:-1])


SIGNS: Final = "Your invoice {1042} of [May] for me@shop_one ~ is ready."


@pytest.mark.long
@pytest.mark.parametrize("alphabet", ["latin1", pytest.param("ascii", marks=pytest.mark.long)])
async def test_a_carrier_whose_default_alphabet_is_another_gets_and_sends_the_same_text(
    engine: Engine, alphabet: str
) -> None:
    plain, lacking, long = numbers(3)
    accents = "£ ñ é" if alphabet == "latin1" else ""
    answers = {"to": digits(plain), "receipts": [{}, {"text": SIGNS, "esm_class": 0, "delay_ms": 300}]}
    async with run_foreign_smsc({"alphabet": "LATIN1"}, answers) as smsc:
        await engine.add_carrier("foreign", smsc.port, alphabet=alphabet)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [plain], f"{SIGNS} {accents}")
        await engine.send(caller, [lacking], f"{SIGNS} €")
        await engine.send(caller, [long], f"{SIGNS} € é " + "Thank you for your order. " * 2)
        await engine.until_all("delivered")

        async def is_told() -> bool:
            return [row["text"] for row in await engine.rows("SELECT text FROM replies")] == [SIGNS]

        await engine.until(is_told, "the reply did not arrive as it was written")
        await smsc.catch_up()
    texts = {one["to"]: (one["data_coding"], one["text"]) for one in smsc.taken}
    assert texts[digits(plain)] == (0, f"{SIGNS} {accents}")
    # The sign that it lacks makes a short text UCS-2. A long one would cost more segments than were paid.
    assert texts[digits(lacking)] == (8, f"{SIGNS} €")
    coding, text = texts[digits(long)]
    assert (coding, text[: len(SIGNS) + 4]) == (0, f"{SIGNS} ? {'é' if accents else 'e'}")
