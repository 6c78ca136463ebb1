"""Messages get through a third-party SMSC, whatever it answers and however its connections break."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.support.delivery.engine import QUICK, WAIT_S, Engine, numbers
from tests.support.delivery.peers.smsc import ForeignSmsc, digits, payload, run_foreign_smsc
from tumira.delivery.smpp.connection import SmppTimeouts

NOT_BOUND: Final = 0x04
SYSTEM_ERROR: Final = 0x08
BIND_FAILED: Final = 0x0D
THROTTLED: Final = 0x58
OF_ITS_OWN: Final = 0x0411

# Silence is found out in a second.
IMPATIENT: Final = SmppTimeouts(
    response_s=1.0, enquire_after_s=1.0, enquire_answer_s=1.0, bind_s=3.0, unbind_s=0.5
)

BALANCE: Final = "100"
TWO_SEGMENTS: Final = "Your order 88213 is on its way. " * 8


async def incidents(engine: Engine) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for row in await engine.rows(
        "SELECT messages.recipient, kind FROM incidents JOIN messages ON messages.id = message_id ORDER BY at"
    ):
        found.setdefault(digits(row["recipient"]), []).append(row["kind"])
    return found


async def check_once(engine: Engine, smsc: ForeignSmsc, texts: int) -> None:
    await smsc.catch_up()
    assert len(smsc.copies()) == texts
    assert set(smsc.copies().values()) == {1}
    assert "doubt" not in {kind for kinds in (await incidents(engine)).values() for kind in kinds}


async def check_doubts(engine: Engine, smsc: ForeignSmsc, texts: int) -> Mapping[str, Sequence[str]]:
    await smsc.catch_up()
    copies = smsc.copies()
    assert len(copies) == texts
    doubted = await incidents(engine)
    for (to, _), count in copies.items():
        assert count <= 1 + doubted.get(to, []).count("resend"), (to, count)
    for to, kinds in doubted.items():
        assert kinds.count("resend") <= kinds.count("doubt"), (to, kinds)
    assert await engine.audit() == []
    return doubted


async def send_through(
    engine: Engine,
    smsc: ForeignSmsc,
    to: Sequence[str],
    body: str = "Your code is 493817.",
    *,
    timing: SmppTimeouts = QUICK,
    ends: Sequence[str] = ("delivered",),
    wait_s: float = WAIT_S,
    **options: Any,
) -> None:
    await engine.add_carrier("foreign", smsc.port, **options)
    engine.start_worker(timing)
    await engine.send(await engine.open_account(BALANCE), to, body)
    await engine.until_all(*ends, wait_s=wait_s)


async def spent(engine: Engine) -> Decimal:
    (row,) = await engine.rows("SELECT balance FROM accounts WHERE phone <> 'system'")
    assert isinstance(row["balance"], Decimal)
    return Decimal(BALANCE) - row["balance"]


# What it answers.


async def test_a_carrier_that_throttles_now_and_then_gets_everything_once(engine: Engine) -> None:
    async with run_foreign_smsc({"every": 7, "status": THROTTLED}) as smsc:
        await send_through(engine, smsc, numbers(40))
        await check_once(engine, smsc, 40)
        assert len(smsc.told("submit")) > 40
        assert await incidents(engine) == {}


async def test_a_segment_taken_after_its_sibling_was_throttled_twice_is_followed_by_it(
    engine: Engine,
) -> None:
    # The second throttling makes the link give back what it holds, while segment 2 still awaits its answer.
    async with run_foreign_smsc(
        {"segment": 1, "times": 2, "status": THROTTLED},
        {"segment": 2, "delay_ms": 1500},
    ) as smsc:
        await send_through(engine, smsc, numbers(1), TWO_SEGMENTS)
        await check_once(engine, smsc, 2)


async def test_errors_that_pass_are_waited_out_and_those_that_stay_are_paid_back(engine: Engine) -> None:
    broken, strange, hopeless, half = numbers(4)
    async with run_foreign_smsc(
        {"to": digits(broken), "times": 1, "status": SYSTEM_ERROR},
        {"to": digits(strange), "times": 1, "status": OF_ITS_OWN},
        {"to": digits(hopeless), "status": OF_ITS_OWN},
        {"to": digits(half), "segment": 2, "times": 1, "status": SYSTEM_ERROR},
    ) as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account(BALANCE)
        await engine.send(caller, [broken, strange, hopeless])
        await engine.send(caller, [half], TWO_SEGMENTS)
        await engine.until_all("delivered", "failed")
        assert (await engine.message(hopeless))["failure_reason"] == "CARRIER_REJECTED"
        await check_once(engine, smsc, 4)
        assert await incidents(engine) == {
            digits(recipient): ["retry"] for recipient in (broken, strange, hopeless, half)
        }
        details = {row["detail"] for row in await engine.rows("SELECT detail FROM incidents")}
        assert details == {"RSYSERR (0x08)", "status 0x411"}
        # Segment 1 is not sent again, and segment 2 joins it by the same reference.
        headers = [payload(one["pdu"])[:6] for one in smsc.told("submit") if one["to"] == digits(half)]
        assert sorted(header[4:].hex() for header in headers) == ["0201", "0202", "0202"]
        assert len({header[3] for header in headers}) == 1
        (row,) = await engine.rows("SELECT sum(cost) AS paid FROM messages WHERE status = 'delivered'")
        assert await spent(engine) == row["paid"]


async def test_an_answer_that_blames_the_line_makes_us_bind_again(engine: Engine) -> None:
    async with run_foreign_smsc({"after": 5, "times": 1, "status": NOT_BOUND}) as smsc:
        await send_through(engine, smsc, numbers(7), countries=["ZW"], window=1)
        await check_once(engine, smsc, 7)
        assert len(smsc.told("bind")) == 2


# What its lines do.


async def test_what_a_broken_line_left_unanswered_is_sent_again_and_nothing_else(engine: Engine) -> None:
    # It has taken six texts without a word of it, and no receipt tells of them either.
    async with run_foreign_smsc(
        {"after": 15, "times": 1, "silent": True, "receipts": [], "then": "destroy"},
        {"after": 10, "times": 5, "silent": True, "receipts": []},
    ) as smsc:
        await send_through(engine, smsc, numbers(30), doubt_wait=1)
        happened = await check_doubts(engine, smsc, 30)
        again = {to for (to, _), count in smsc.copies().items() if count > 1}
        # Answers that were under way when the line broke are lost too.
        assert len(again) >= 6
        assert again <= happened.keys()
        assert all(happened[to] == ["doubt", "resend"] for to in again)
        # The receipt of one whose answer alone was lost may come before it is sent again.
        assert all(happened[to] in (["doubt"], ["doubt", "resend"]) for to in happened.keys() - again)
        details = {
            row["detail"] for row in await engine.rows("SELECT detail FROM incidents WHERE kind = 'doubt'")
        }
        assert all(detail.startswith("the line fell: ") for detail in details)


async def test_silence_puts_in_doubt_what_it_is_about_and_leaves_the_line(engine: Engine) -> None:
    silent, lost, late, proved, *others = numbers(10)
    nothing: Mapping[str, Any] = {"times": 1, "receipts": []}
    async with run_foreign_smsc(
        {"to": digits(silent), "silent": True, **nothing},
        {"to": digits(lost), "lost": True, **nothing},
        {"to": digits(late), "delay_ms": 1700, "times": 1},
        {"to": digits(proved), "silent": True, "times": 1},
    ) as smsc:
        await send_through(
            engine, smsc, [silent, lost, late, proved, *others], timing=IMPATIENT, doubt_wait=3
        )
        assert await check_doubts(engine, smsc, 10) == {
            digits(silent): ["doubt", "resend"],
            digits(lost): ["doubt", "resend"],
            digits(late): ["doubt"],
            digits(proved): ["doubt"],
        }
        assert [to for (to, _), count in smsc.copies().items() if count > 1] == [digits(silent)]
        assert len(smsc.told("bind")) == 1


async def test_a_pair_of_binds_sends_on_one_line_and_hears_on_the_other(engine: Engine) -> None:
    async with run_foreign_smsc() as smsc:
        await send_through(engine, smsc, numbers(30), bind="pair")
        await check_once(engine, smsc, 30)
        line = {one["kind"]: one["line"] for one in smsc.told("bind")}
        assert line.keys() == {"receiver", "transmitter"}
        assert {one["line"] for one in smsc.told("submit")} == {line["transmitter"]}
        assert {one["line"] for one in smsc.told("acknowledged")} == {line["receiver"]}


@pytest.mark.parametrize(
    "fall", [{"then": "destroy_receivers", "delay_ms": 200}, {"then": "destroy_all", "silent": True}], ids=str
)
async def test_a_pair_that_loses_a_half_binds_both_anew(engine: Engine, fall: Mapping[str, Any]) -> None:
    async with run_foreign_smsc({"bind": "transmitter", "times": 1, **fall}) as smsc:
        await send_through(engine, smsc, numbers(5), bind="pair")
        await check_doubts(engine, smsc, 5)


@pytest.mark.parametrize("options", [{"window": 1}, {"window": 2}, {"tps": 7}], ids=str)
async def test_a_carrier_with_little_room_serves_each_country_and_lane(
    engine: Engine, options: Mapping[str, Any]
) -> None:
    bulk = 0 if "tps" in options else 11
    async with run_foreign_smsc() as smsc:
        await send_through(engine, smsc, ["+263771200001", "+27821230001"], **options)
        caller = await engine.open_account()
        for country in ("263771200", "27821230"):
            await engine.send(caller, [f"+{country}{number:03}" for number in range(100, 103)])
            if bulk:
                await engine.send(caller, [f"+{country}{number:03}" for number in range(200, 200 + bulk)])
        await engine.until_all("delivered")
        await check_once(engine, smsc, 2 + 6 + 2 * bulk)


async def test_a_bind_that_is_refused_is_tried_again_and_the_reason_is_shown(engine: Engine) -> None:
    async with run_foreign_smsc({"bind": "transceiver", "status": BIND_FAILED}) as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()

        async def is_shown() -> bool:
            return [tuple(row) for row in await engine.rows("SELECT state, problem FROM binds")] == [
                ("down", "the carrier refused the bind: RBINDFAIL (0x0D)")
            ]

        await engine.until(is_shown, "the refusal is not shown")
        (bind,) = smsc.told("bind")
        assert (bind["system_id"], bind["password"], bind["version"]) == ("tester", "secret", 0x34)
