"""The reaction to every response of a carrier."""

from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.responses import Action, ResponseRule, judge, name
from tumira.sending.lifecycle import FAILURE_REASONS

# By number, apart from the names in the code under test.
TAKEN = {0x00}
THROTTLED = {0x58, 0x14}
TEMPORARY = {0x08, 0x64, 0x45, 0x61}
LINK = {0x04, 0x05}
LINK_ALARM = {0x0D, 0x0E, 0x0F, 0x53}
RECIPIENT = {0x0B, 0x50, 0x51}
SENDER = {0x0A, 0x48, 0x49}
OURS = {0x01, 0x02, 0x03, 0x06, 0x07, 0x15, 0x43, 0x54, 0x62, 0x63, 0x65, 0x66, 0xC0, 0xC1, 0xC2, 0xC3, 0xC4}
TOLD = TAKEN | THROTTLED | TEMPORARY | LINK | LINK_ALARM | RECIPIENT | SENDER | OURS

TABLE = (
    [(number, ResponseRule(Action.TAKEN)) for number in TAKEN]
    + [(number, ResponseRule(Action.THROTTLED)) for number in THROTTLED]
    + [(number, ResponseRule(Action.TEMPORARY, "CARRIER_REJECTED")) for number in TEMPORARY]
    + [(number, ResponseRule(Action.LINK)) for number in LINK]
    + [(number, ResponseRule(Action.LINK, alarm=True)) for number in LINK_ALARM]
    + [(number, ResponseRule(Action.REFUSED, "UNKNOWN_SUBSCRIBER")) for number in RECIPIENT]
    + [(number, ResponseRule(Action.REFUSED, "SENDER_NOT_ALLOWED", alarm=True)) for number in SENDER]
    + [(number, ResponseRule(Action.REFUSED, "CARRIER_REJECTED", alarm=True)) for number in OURS]
)


def test_each_status_has_its_verdict() -> None:
    assert [(status, judge(status)) for status, _ in TABLE] == TABLE
    assert {status for status in TOLD if judge(status).alarm} == LINK_ALARM | SENDER | OURS


@given(st.one_of(st.integers(0x400, 0xFFFF_FFFF), st.sampled_from([*set(range(0x400)) - TOLD])))
def test_numbers_that_tell_nothing_are_tried_once_more(status: int) -> None:
    assert judge(status) == ResponseRule(Action.UNKNOWN, "CARRIER_REJECTED")


def test_a_verdict_names_a_reason_exactly_where_it_may_end_a_message() -> None:
    for verdict in map(judge, range(0x100)):
        may_end = verdict.action in {Action.REFUSED, Action.TEMPORARY, Action.UNKNOWN}
        assert (verdict.reason in FAILURE_REASONS) is may_end
        assert (verdict.reason is None) is not may_end


def test_a_status_is_named_as_people_look_it_up() -> None:
    assert name(0x58) == "RTHROTTLED (0x58)"
    assert name(0x4A1) == "status 0x4A1"
