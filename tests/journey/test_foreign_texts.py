"""A third-party SMSC gets every text whole, in the fields that carriers ask for."""

from collections.abc import Sequence
from typing import Final

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.peers.smsc import ForeignSmsc, digits, fields, payload, run_foreign_smsc

TWO_SEGMENTS: Final = "Your order 88213 is on its way. " * 8


async def check_once(smsc: ForeignSmsc, texts: int) -> None:
    await smsc.catch_up()
    assert len(smsc.copies()) == texts
    assert set(smsc.copies().values()) == {1}


def joined(smsc: ForeignSmsc, recipient: str, segments: int) -> tuple[Sequence[bytes], str]:
    own = [one for one in smsc.taken if one["to"] == digits(recipient)]
    own.sort(key=lambda one: one["segment"])
    octets = [payload(one["pdu"]) for one in own]
    (reference,) = {piece[3] for piece in octets}
    for number, piece in enumerate(octets, 1):
        assert piece[:6] == bytes((5, 0, 3, reference, segments, number))
    assert [one["esm_class"] for one in own] == [0x40] * segments
    return [piece[6:] for piece in octets], "".join(one["text"] for one in own)


async def test_the_fields_of_a_submit_are_those_that_carriers_ask_for(engine: Engine) -> None:
    recipient, far = "+263771200001", "+27821230001"
    async with run_foreign_smsc() as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [recipient, far], "Your code is 493817.")
        await engine.until_all("delivered")
        await check_once(smsc, 2)
        assert {one["to"] for one in smsc.taken} == {digits(recipient), digits(far)}
        for one in smsc.taken:
            read = fields(one["pdu"])
            assert read[:4] == [b"", b"\x05", b"\x00", b"Tumira"]
            assert read[4:7] == [b"\x01", b"\x01", one["to"].encode()]
            assert read[7:11] == [b"\x00", b"\x00", b"\x00", b""]
            # Nearly a day is left, counted from now: the R says so.
            validity = read[11].decode()
            assert validity[:6] + validity[12:] == "000000000R"
            assert "235000" < validity[6:12] < "240000"
            assert read[12:16] == [b"\x01", b"\x00", b"\x00", b"\x00"]
            assert read[16] == b"Your code is 493817."
            assert (one["source"], one["from"]) == ([5, 0], "Tumira")
            assert (one["destination"], one["registered_delivery"]) == ([1, 1], 1)


async def test_a_long_gsm_7_text_arrives_whole_and_no_escape_is_cut(engine: Engine) -> None:
    # The 153rd septet of the first segment would be an escape, and so would others by and by.
    service = ("Your verification code is 482913 and " * 5)[:152]
    text = service + "€" + "[{x}]~^|\\_@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà" * 6 + "\n" + "€" * 104
    (recipient,) = numbers(1)
    async with run_foreign_smsc() as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [recipient], text)
        await engine.until_all("delivered")
        await check_once(smsc, 5)
        pieces, read = joined(smsc, recipient, 5)
        assert read == text
        assert len(pieces[0]) == 152
        assert all(151 < len(piece) <= 153 for piece in pieces[:-1])
        assert all(piece[-1] != 0x1B for piece in pieces)
        assert {one["data_coding"] for one in smsc.taken} == {0}
        assert (await engine.message(recipient))["segments"] == 5


async def test_a_long_ucs_2_text_arrives_whole_and_no_emoji_is_cut(engine: Engine) -> None:
    # The 67th unit of the first segment would be the first half of an emoji.
    text = "я" * 66 + "😀" * 40 + "漢字" * 20 + "👩\u200d👩\u200d👧" * 5
    (recipient,) = numbers(1)
    async with run_foreign_smsc() as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [recipient], text)
        await engine.until_all("delivered")
        segments = (await engine.message(recipient))["segments"]
        await check_once(smsc, segments)
        pieces, read = joined(smsc, recipient, segments)
        # Each segment can be read by itself, so no pair of surrogates was cut.
        assert [piece.decode("utf-16-be") for piece in pieces] == [
            one["text"] for one in sorted(smsc.taken, key=lambda one: one["segment"])
        ]
        assert read == text
        assert len(pieces[0]) == 2 * 66
        assert all(2 * 66 <= len(piece) <= 2 * 67 for piece in pieces[:-1])
        assert {one["data_coding"] for one in smsc.taken} == {8}


async def test_texts_to_one_number_are_not_joined_with_each_other(engine: Engine) -> None:
    (recipient,) = numbers(1)
    async with run_foreign_smsc() as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        for _ in range(3):
            await engine.send(caller, [recipient], TWO_SEGMENTS)
        await engine.until_all("delivered")
        await smsc.catch_up()
        headers = sorted(payload(one["pdu"])[3:6] for one in smsc.taken)
        assert len(headers) == len(set(headers)) == 6
        assert len({header[0] for header in headers}) == 3
