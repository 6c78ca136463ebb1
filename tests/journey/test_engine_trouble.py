"""Messages get through once, whatever their carrier answers and however its connections break."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.support.delivery.engine import QUICK, Engine, numbers
from tests.support.delivery.scripted import ANSWER, CUT, DROP, LATE, LOSE, SWALLOW, Scripted
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.pdu import BindRequest, Command
from tumira.simulator.connection import SmscConnection
from tumira.simulator.misbehaviours import Misbehaviour, RefuseBind, ThrottleEvery
from tumira.simulator.smsc import Smsc, run_smsc

OF_ITS_OWN: Final = 0x0411
# Silence is found out in a second.
IMPATIENT: Final = SmppTimeouts(response_s=1.0, enquire_after_s=1.0, enquire_answer_s=1.0, bind_s=3.0)
TWO_SEGMENTS: Final = "Your order 88213 is on its way. " * 8


async def incidents(engine: Engine) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for row in await engine.rows(
        "SELECT messages.recipient, kind FROM incidents JOIN messages ON messages.id = message_id ORDER BY at"
    ):
        found.setdefault(row["recipient"], []).append(row["kind"])
    return found


async def send_through(
    engine: Engine,
    smsc: Smsc,
    to: Sequence[str],
    body: str = "Your code is 493817.",
    *,
    timing: SmppTimeouts = QUICK,
    **options: Any,
) -> None:
    await engine.add_carrier("one", smsc.port, **options)
    engine.start_worker(timing)
    await engine.send(await engine.open_account(), to, body)
    await engine.until_all("delivered", "failed")


def check_once(smsc: Smsc, texts: int) -> None:
    assert len(smsc.texts.counts) == texts
    assert set(smsc.texts.counts.values()) == {1}


@pytest.mark.long
async def test_a_carrier_that_throttles_now_and_then_gets_everything_once(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[ThrottleEvery(7)]) as smsc:
        await send_through(engine, smsc, numbers(20))
        check_once(smsc, 20)
        assert smsc.submits.throttled > 0
        assert await incidents(engine) == {}


@pytest.mark.long
async def test_a_segment_taken_after_its_sibling_was_throttled_twice_is_followed_by_it(
    engine: Engine,
) -> None:
    # The second throttling makes the sender give back what it holds, while segment 2 still awaits its answer.
    throttled = CommandStatus.RTHROTTLED
    async with run_smsc(misbehaviours=[Scripted(throttled, LATE, throttled, late_s=1.5)]) as smsc:
        await send_through(engine, smsc, numbers(1), TWO_SEGMENTS)
        check_once(smsc, 1)
        assert smsc.submits.taken == 2


async def test_errors_that_pass_are_waited_out_and_those_that_stay_are_paid_back(engine: Engine) -> None:
    broken, strange, hopeless = numbers(3)
    script = Scripted(CommandStatus.RSYSERR, OF_ITS_OWN, ANSWER, ANSWER, OF_ITS_OWN, OF_ITS_OWN)
    async with run_smsc(misbehaviours=[script]) as smsc:
        await send_through(engine, smsc, [broken, strange])
        await engine.send(await engine.open_account(), [hopeless])
        await engine.until_status(hopeless, "failed")
        check_once(smsc, 2)
    message = await engine.message(hopeless)
    assert message["failure_reason"] == "CARRIER_REJECTED"
    (batch,) = await engine.rows("SELECT * FROM batches WHERE id = $1", message["batch_id"])
    assert batch["refunded"] == batch["total_cost"] == message["cost"] > 0
    assert await incidents(engine) == {broken: ["retry"], strange: ["retry"], hopeless: ["retry"]}
    details = {row["detail"] for row in await engine.rows("SELECT detail FROM incidents")}
    assert details == {"RSYSERR (0x08)", "status 0x411"}


@pytest.mark.long
async def test_an_answer_that_blames_the_line_makes_us_bind_again(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[Scripted(*[ANSWER] * 5, CommandStatus.RINVBNDSTS)]) as smsc:
        await send_through(engine, smsc, numbers(7), window=1)
        check_once(smsc, 7)
    assert await incidents(engine) == {}


@pytest.mark.long
async def test_what_a_broken_line_left_unanswered_is_sent_again_and_nothing_else(engine: Engine) -> None:
    # It has taken six texts without a word of it, and no receipt tells of them either.
    script = Scripted(*[ANSWER] * 10, *[SWALLOW] * 5, CUT)
    async with run_smsc(misbehaviours=[script]) as smsc:
        await send_through(engine, smsc, numbers(30), doubt_wait=1)
        counts = smsc.texts.counts
    assert len(counts) == 30
    again = {to for (to, _), count in counts.items() if count > 1}
    happened = await incidents(engine)
    # Answers that were under way when the line broke are lost too.
    assert len(again) >= 6
    assert set(counts.values()) == {1, 2}
    assert all(happened[to] == ["doubt", "resend"] for to in again)
    # The receipt of one whose answer alone was lost may come before it is sent again.
    assert all(happened[to] in (["doubt"], ["doubt", "resend"]) for to in happened.keys() - again)
    doubts = await engine.rows("SELECT detail FROM incidents WHERE kind = 'doubt'")
    assert all(row["detail"].startswith("the line fell: ") for row in doubts)


@pytest.mark.long
async def test_silence_puts_in_doubt_what_it_is_about_and_leaves_the_line(engine: Engine) -> None:
    silent, lost, late, proved, *_ = to = numbers(10)
    async with run_smsc(misbehaviours=[Scripted(SWALLOW, DROP, LATE, LOSE, late_s=1.7)]) as smsc:
        await send_through(engine, smsc, to, timing=IMPATIENT, doubt_wait=3)
        counts = smsc.texts.counts
        assert len(smsc.lines) == 1
    assert await incidents(engine) == {
        silent: ["doubt", "resend"],
        lost: ["doubt", "resend"],
        late: ["doubt"],
        proved: ["doubt"],
    }
    assert len(counts) == 10
    assert [to for (to, _), count in counts.items() if count > 1] == [silent]


@pytest.mark.long
async def test_a_pair_of_binds_sends_on_one_line_hears_on_the_other_and_falls_together(
    engine: Engine,
) -> None:
    async with run_smsc() as smsc:
        await send_through(engine, smsc, numbers(10), bind="pair")
        check_once(smsc, 10)
        pair = set(smsc.lines)
        assert {line.bound_as for line in pair} == {Command.BIND_TRANSMITTER, Command.BIND_RECEIVER}
        # Both halves are bound anew.
        next(line for line in pair if line.bound_as == Command.BIND_RECEIVER).drop()

        async def is_bound_anew() -> bool:
            return len(smsc.lines - pair) == 2

        await engine.until(is_bound_anew, "not bound anew")
        await engine.send(await engine.open_account(), numbers(5, start=20))
        await engine.until_all("delivered")
        check_once(smsc, 15)


class FallsOnce(Misbehaviour):
    """At the second bind, that of a transmitter, both lines fall."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[SmscConnection] = []

    def binding(self, line: SmscConnection, bind: BindRequest) -> int | None:
        self._lines.append(line)
        if len(self._lines) != 2:
            return super().binding(line, bind)
        for one in self._lines:
            one.drop()
        return None


@pytest.mark.long
async def test_a_pair_is_bound_anew_when_both_lines_break_while_it_binds(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[FallsOnce()]) as smsc:
        await send_through(engine, smsc, numbers(5), bind="pair")
        check_once(smsc, 5)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"window": 1}, {"window": 2}, {"tps": 7}], ids=str)
async def test_a_carrier_with_little_room_serves_each_country_and_lane(
    engine: Engine, options: Mapping[str, Any]
) -> None:
    bulk = 0 if "tps" in options else 11
    async with run_smsc() as smsc:
        await send_through(engine, smsc, ["+263771200001", "+27821230001"], **options)
        caller = await engine.open_account()
        for country in ("263771200", "27821230"):
            await engine.send(caller, [f"+{country}{number:03}" for number in range(100, 103)])
            if bulk:
                await engine.send(caller, [f"+{country}{number:03}" for number in range(200, 200 + bulk)])
        await engine.until_all("delivered")
        check_once(smsc, 2 + 6 + 2 * bulk)


@pytest.mark.long
async def test_a_bind_that_is_refused_is_tried_again_and_the_reason_is_shown(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[RefuseBind()]) as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()

        async def is_shown() -> bool:
            return [tuple(row) for row in await engine.rows("SELECT state, problem FROM binds")] == [
                ("down", "the carrier refused the bind: RBINDFAIL (0x0D)")
            ]

        await engine.until(is_shown, "the refusal is not shown")
