"""Each profile against a server that was written from the provider's documentation."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import pytest
from msgspec import structs

from tests.support.carriers.catalogue import SERVERS
from tests.support.carriers.receiver import Receiver, answered, call, run_receiver
from tests.support.carriers.server import (
    TAKEN_UNTOLD,
    Answer,
    CarrierServer,
    Misbehaviour,
    SentText,
    run_carrier,
)
from tests.support.carriers.smsportal import SmsPortalServer
from tests.support.carriers.vonage import VonageServer
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.profile import load_profile, profile_names
from tumira.carriers.http.values import (
    CallbackContent,
    CallbackMode,
    CallbackRefused,
    LookFailure,
    OutgoingMessage,
    SubmitAnswer,
    SubmitVerdict,
)
from tumira.delivery.receipt_rules import receipt_result

TEXT: Final = 'Your balance is $5 & <more> is "due"; {sender} pays 100% é'
_numbers: Final = itertools.count(1)

# What each provider's refusals mean: a wrong number, no credit, and an error in its own words.
REFUSALS: Final = {
    "africastalking": ("UNKNOWN_SUBSCRIBER", "credit", SubmitVerdict.TEMPORARY),
    "bluedot": ("UNKNOWN_SUBSCRIBER", "credit", SubmitVerdict.UNKNOWN),
    "bulksms": ("CARRIER_REJECTED", "credit", SubmitVerdict.DOUBT),
    "clickatell": ("UNKNOWN_SUBSCRIBER", "credit", SubmitVerdict.TEMPORARY),
    "esolutions": ("CARRIER_REJECTED", "credit", SubmitVerdict.DOUBT),
    "infobip": ("UNKNOWN_SUBSCRIBER", "credit", SubmitVerdict.DOUBT),
    "smsportal": ("UNKNOWN_SUBSCRIBER", "account", SubmitVerdict.DOUBT),
    "twilio": ("UNKNOWN_SUBSCRIBER", "account", SubmitVerdict.DOUBT),
    "vonage": ("UNKNOWN_SUBSCRIBER", "credit", SubmitVerdict.TEMPORARY),
}
# Where their words mean something else, or say more, than their neighbours'.
ENDINGS: Final = {
    ("africastalking", "undelivered"): ("undelivered", "UNKNOWN_SUBSCRIBER"),
    ("africastalking", "expired"): ("undelivered", "CARRIER_CONTENT_BLOCKED"),
    ("africastalking", "rejected"): ("undelivered", "RECIPIENT_BLOCKED"),
    ("bluedot", "rejected"): ("undelivered", "RECIPIENT_BLOCKED"),
    ("bulksms", "undelivered"): ("undelivered", "HANDSET_ERROR"),
    ("bulksms", "rejected"): ("undelivered", "RECIPIENT_BLOCKED"),
    ("infobip", "undelivered"): ("undelivered", "ABSENT_SUBSCRIBER"),
    ("infobip", "rejected"): ("undelivered", "RECIPIENT_BLOCKED"),
    ("smsportal", "rejected"): ("undelivered", "RECIPIENT_BLOCKED"),
    ("twilio", "undelivered"): ("undelivered", "ABSENT_SUBSCRIBER"),
    ("twilio", "expired"): ("undelivered", "UNKNOWN"),
    ("twilio", "rejected"): ("undelivered", "CARRIER_CONTENT_BLOCKED"),
    ("vonage", "undelivered"): ("undelivered", "ABSENT_SUBSCRIBER"),
    ("vonage", "rejected"): ("undelivered", "CARRIER_CONTENT_BLOCKED"),
    ("esolutions", "expired"): ("undelivered", "UNKNOWN"),
    ("esolutions", "rejected"): ("undelivered", "UNKNOWN"),
}
COMMON_ENDINGS: Final = {
    "delivered": ("delivered", None),
    "undelivered": ("undelivered", "UNKNOWN"),
    "expired": ("expired", "VALIDITY_EXPIRED"),
    "rejected": ("undelivered", "CARRIER_REJECTED"),
    "enroute": (None, None),
    "mystery": (None, None),
}
CHECKED: Final = ("infobip", "smsportal", "twilio", "vonage")
WITH_CALLBACKS: Final = [name for name in SERVERS if name != "esolutions"]
WITH_REPLIES: Final = [name for name in WITH_CALLBACKS if name != "bluedot"]
LOOKING: Final = ("bluedot", "bulksms", "esolutions", "infobip", "twilio")


@pytest.fixture(scope="module", params=sorted(SERVERS))
def provider(request: pytest.FixtureRequest) -> Iterator[CarrierServer]:
    with run_carrier(SERVERS[request.param]()) as running:
        running.tells = False
        yield running


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with run_receiver() as running:
        yield running


def open_carrier(provider: CarrierServer, **settings: str) -> HttpCarrier:
    return HttpCarrier(
        load_profile(provider.profile), provider.url, {**provider.settings, **settings}, provider.secrets
    )


def message(*, text: str = TEXT, unicode: bool = False, callback_url: str = "") -> OutgoingMessage:
    number = next(_numbers)
    return OutgoingMessage(
        recipient="+263771200001",
        text=text,
        sender="Tumira",
        reference=f"r{number:019}",
        sequence=number,
        unicode=unicode,
        validity_s=86_400,
        callback_url=callback_url,
        at=datetime(2026, 11, 15, 10, tzinfo=UTC),
    )


def submit(carrier: HttpCarrier, one: OutgoingMessage) -> SubmitAnswer:
    return carrier.read_submit(answered(carrier.submit_request(one)), one)


def test_every_profile_has_a_server() -> None:
    assert set(profile_names()) == set(SERVERS)


def test_a_text_arrives_as_it_was_written(provider: CarrierServer) -> None:
    carrier, one = open_carrier(provider), message()
    found = submit(carrier, one)
    sent = provider.sent[-1]
    assert found.verdict is SubmitVerdict.TAKEN
    assert not found.alarm
    assert sent.recipient == "263771200001"
    assert sent.sender == "Tumira"
    # Bluedot has no é in the alphabet that it was told.
    assert sent.text == (TEXT.replace("é", "?") if provider.profile == "bluedot" else TEXT)
    if provider.profile not in {"africastalking", "twilio"}:
        assert sent.reference == one.reference
    assert found.carrier_ref.startswith(sent.id)
    assert provider.find(id=sent.id) is sent


def test_other_letters_and_no_sender(provider: CarrierServer) -> None:
    text = "Mhoro, mari yenyu yasvika 🎉 €5"
    one = message(text=text, unicode=True)
    carrier = open_carrier(provider)
    assert submit(carrier, structs.replace(one, sender="")).verdict is SubmitVerdict.TAKEN
    assert provider.sent[-1].text == text
    assert provider.sent[-1].sender == ""


def test_validity_is_written_in_the_providers_unit(provider: CarrierServer) -> None:
    submit(open_carrier(provider), message())
    expected = {"bluedot": 86_400, "infobip": 86_400, "smsportal": 24, "twilio": 36_000, "vonage": 86_400_000}
    assert provider.sent[-1].validity == expected.get(provider.profile)


def test_refusals_stop_the_account_or_end_the_message(provider: CarrierServer) -> None:
    carrier = open_carrier(provider)
    reason, stop, failed = REFUSALS[provider.profile]
    taken = len(provider.sent)

    def after(behaviour: Misbehaviour) -> SubmitAnswer:
        provider.misbehave(behaviour, times=1)
        return submit(carrier, message())

    number = after(Misbehaviour.REFUSED_NUMBER)
    is_unexplained = provider.profile == "esolutions"
    assert number.verdict is (SubmitVerdict.UNKNOWN if is_unexplained else SubmitVerdict.REFUSED)
    assert number.reason == reason
    assert "263771200001" not in number.detail
    credit = after(Misbehaviour.NO_CREDIT)
    assert (credit.verdict, credit.stop, credit.alarm) == (SubmitVerdict.STOPPED, stop, True)
    bad = after(Misbehaviour.BAD_CREDENTIALS)
    assert (bad.verdict, bad.stop, bad.alarm) == (SubmitVerdict.STOPPED, "credentials", True)
    moved = after(Misbehaviour.REDIRECT)
    assert (moved.verdict, moved.stop, moved.alarm) == (SubmitVerdict.STOPPED, "redirect", True)
    assert after(Misbehaviour.THROTTLED).verdict is SubmitVerdict.THROTTLED
    assert after(Misbehaviour.ERROR_5XX).verdict is failed
    assert len(provider.sent) == taken


def test_what_was_taken_without_a_readable_answer_is_in_doubt(provider: CarrierServer) -> None:
    carrier = open_carrier(provider)
    for behaviour in TAKEN_UNTOLD:
        taken = len(provider.sent)
        provider.misbehave(behaviour, times=1)
        one = message()
        answer = call(carrier.submit_request(one))
        if behaviour in {Misbehaviour.ANSWER_LOST, Misbehaviour.ANSWER_CUT}:
            assert answer is None
        else:
            assert answer is not None
            assert carrier.read_submit(answer, one).verdict is SubmitVerdict.DOUBT
        assert len(provider.sent) == taken + 1


def test_a_wrong_password_is_told_from_a_wrong_message(provider: CarrierServer) -> None:
    wrong = {name: f"{value}-wrong" for name, value in provider.secrets.items()}
    carrier = HttpCarrier(load_profile(provider.profile), provider.url, provider.settings, wrong)
    found = submit(carrier, message())
    assert (found.verdict, found.stop) == (SubmitVerdict.STOPPED, "credentials")
    assert not any(secret in found.detail for secret in wrong.values())


def test_a_repeated_call_sends_nothing_where_that_is_promised(provider: CarrierServer) -> None:
    carrier, one = open_carrier(provider), message()
    provider.misbehave(Misbehaviour.ANSWER_LOST, times=1)
    assert call(carrier.submit_request(one)) is None
    if carrier.safe_repeat:
        assert submit(carrier, one).verdict is SubmitVerdict.TAKEN
        assert provider.texts[one.reference] == 1
    assert carrier.safe_repeat is (provider.profile in {"bulksms", "infobip"})


@pytest.mark.parametrize("provider", WITH_CALLBACKS, indirect=True)
@pytest.mark.parametrize("state", [*COMMON_ENDINGS])
def test_reports_by_callback(provider: CarrierServer, receiver: Receiver, state: str) -> None:
    carrier = open_carrier(provider)
    receiver.carrier = carrier
    provider.callback_url = receiver.url
    one = message(callback_url=receiver.url)
    taken = submit(carrier, one)
    sent = provider.sent[-1]
    assert provider.tell(sent, state) == 200
    content = receiver.read[-1]
    assert isinstance(content, CallbackContent)
    [report] = content.reports
    assert report.carrier_ref == taken.carrier_ref
    assert report.reference == (None if provider.profile == "africastalking" else one.reference)
    assert report.recipient == (None if provider.profile == "clickatell" else "263771200001")
    result = receipt_result(report.state, report.error)
    assert (result.status, result.reason) == ENDINGS.get((provider.profile, state), COMMON_ENDINGS[state])
    assert report.is_known is (state != "mystery")
    assert content.replies == ()


@pytest.mark.parametrize("provider", WITH_CALLBACKS, indirect=True)
def test_a_forged_callback_is_refused_or_names_nobody(provider: CarrierServer, receiver: Receiver) -> None:
    carrier = open_carrier(provider)
    receiver.carrier = carrier
    provider.callback_url = receiver.url
    one = message(callback_url=receiver.url)
    taken = submit(carrier, one)
    status = provider.tell(provider.sent[-1], "undelivered", forged=True)
    if provider.profile in CHECKED:
        assert carrier.callback_mode is CallbackMode.CHECKED
        assert status == 403
        assert isinstance(receiver.read[-1], CallbackRefused)
    else:
        assert carrier.callback_mode is CallbackMode.OPEN
        content = receiver.read[-1]
        assert isinstance(content, CallbackContent)
        assert all(report.carrier_ref != taken.carrier_ref for report in content.reports)
        assert all(report.reference != one.reference for report in content.reports)


@pytest.mark.parametrize("provider", WITH_REPLIES, indirect=True)
def test_replies(provider: CarrierServer, receiver: Receiver) -> None:
    receiver.carrier = open_carrier(provider)
    provider.callback_url = receiver.url
    assert provider.tell_reply("+263771200009", "32100", "STOP é") == 200
    content = receiver.read[-1]
    assert isinstance(content, CallbackContent)
    assert content.reports == ()
    [reply] = content.replies
    assert (reply.sender, reply.text) == ("+263771200009", "STOP é")
    assert reply.recipient == ("" if provider.profile == "smsportal" else "32100")
    assert reply.carrier_ref


@pytest.mark.parametrize("provider", WITH_CALLBACKS, indirect=True)
def test_nothing_is_read_from_a_callback_of_another_address(
    provider: CarrierServer, receiver: Receiver
) -> None:
    provider.callback_url = receiver.url
    receiver.carrier = open_carrier(provider, callback_addresses="192.0.2.0/24, 2001:db8::/32")
    one = message(callback_url=receiver.url)
    submit(receiver.carrier, one)
    assert provider.tell(provider.sent[-1], "delivered") == 403
    receiver.carrier = open_carrier(provider, callback_addresses="127.0.0.1")
    assert provider.tell(provider.sent[-1], "delivered") == 200


@pytest.mark.parametrize("provider", LOOKING, indirect=True)
def test_looking_for_a_message(provider: CarrierServer) -> None:
    carrier, one = open_carrier(provider), message()
    taken = submit(carrier, one)
    provider.sent[-1].state = "delivered"
    ways = [
        taken.carrier_ref if carrier.looks_by_id else None,
        *([None] if carrier.looks_by_reference else []),
    ]
    for carrier_ref in ways:
        answer = answered(carrier.look_request(carrier_ref, one.reference))
        found = carrier.read_look(answer, carrier_ref, one.reference)
        assert isinstance(found, tuple)
        assert [report.state for report in found] == ["DELIVRD"]
        # A report about another message is none about this one.
        assert carrier.read_look(answer, "another", "another") is LookFailure.UNREADABLE
    unknown = "0" * 20
    answer = answered(carrier.look_request("0" if carrier.looks_by_id else None, unknown))
    can_tell = provider.profile in {"bulksms", "infobip", "twilio"}
    expected = LookFailure.NOT_FOUND if can_tell else LookFailure.UNREADABLE
    assert carrier.read_look(answer, None, unknown) is expected


def test_balances(provider: CarrierServer) -> None:
    carrier = open_carrier(provider)
    expected = {
        "africastalking": (Decimal("1785.50"), "KES"),
        "bluedot": (Decimal("41.5"), "USD"),
        "bulksms": (Decimal("1234.5"), "credits"),
        "clickatell": (Decimal("56.25"), "ZAR"),
    }
    assert carrier.has_balance is (provider.profile in expected)
    if carrier.has_balance:
        found = carrier.read_balance(answered(carrier.balance_request()))
        assert found is not None
        assert (found.amount, found.currency) == expected[provider.profile]


def test_costs_and_segments_that_an_answer_tells(provider: CarrierServer) -> None:
    found = submit(open_carrier(provider), message())
    costs = {"africastalking": "0.8", "esolutions": "0.02", "smsportal": "0.24", "vonage": "0.0333"}
    balances = {"smsportal": "812.76", "vonage": "3.14159"}
    assert found.cost == (Decimal(costs[provider.profile]) if provider.profile in costs else None)
    assert found.balance == (Decimal(balances[provider.profile]) if provider.profile in balances else None)
    named = {"africastalking": "KES"}
    assert found.currency == named.get(provider.profile, "")
    if provider.profile in {"esolutions", "smsportal", "vonage"}:
        found = submit(open_carrier(provider, cost_currency="usd"), message())
        assert (str(found.cost.normalize() if found.cost else ""), found.currency) == (
            costs[provider.profile],
            "USD",
        )
    tells = provider.profile in {"infobip", "smsportal", "twilio", "vonage"}
    assert found.segments == (1 if tells else None)


def test_receipts_are_polled_where_nobody_calls_or_the_operator_says_so() -> None:
    for name, server in SERVERS.items():
        with run_carrier(server()) as provider:
            carrier = open_carrier(provider)
            assert (
                bool(carrier.polls) is (carrier.callback_mode is CallbackMode.NONE) is (name == "esolutions")
            )
            if name in LOOKING:
                assert open_carrier(provider, receipts="poll").polls == (60, 300, 900, 3600, 21600, 86400)
            else:
                with pytest.raises(ValueError, match="cannot poll receipts"):
                    open_carrier(provider, receipts="poll")


def test_vonage_answers_for_each_part() -> None:
    with run_carrier(VonageServer()) as provider:
        provider.tells = False
        carrier, one = open_carrier(provider), message(text="x" * 400)
        found = submit(carrier, one)
        assert (found.verdict, found.segments, found.cost) == (SubmitVerdict.TAKEN, 3, Decimal("0.0999"))
        assert found.carrier_ref == f"{provider.sent[-1].id}00"


def test_parts_of_a_long_reply_say_that_they_belong_together(receiver: Receiver) -> None:
    with run_carrier(VonageServer()) as provider:
        receiver.carrier = open_carrier(provider)
        provider.callback_url = receiver.url
        assert provider.tell_long_reply("263771200009", "32100", "one ", "two ", "three") == [200] * 3
        read = [one for one in receiver.read[-3:] if isinstance(one, CallbackContent)]
        replies = [reply for content in read for reply in content.replies]
        assert [(one.part, one.total, one.text) for one in replies] == [
            (3, 3, "three"),
            (2, 3, "two "),
            (1, 3, "one "),
        ]
        assert len({one.group for one in replies}) == 1
        assert len({one.carrier_ref for one in replies}) == 3


def test_a_provider_that_throttles_may_say_for_how_long(provider: CarrierServer) -> None:
    provider.misbehave(Misbehaviour.THROTTLED, times=1)
    found = submit(open_carrier(provider), message())
    with_time = {"africastalking": 1, "bulksms": 1, "esolutions": 1, "smsportal": 1, "infobip": 2}
    assert found.retry_after_s == with_time.get(provider.profile)


def test_smsportal_in_its_third_version_answers_one_level_deeper() -> None:
    class ThirdVersion(SmsPortalServer):
        def accepted(self, text: SentText) -> Answer:
            inner = super().accepted(text).body
            return Answer(200, b'{"statusCode": 200, "sendResponse": ' + inner + b"}")

    with run_carrier(ThirdVersion()) as provider:
        provider.tells = False
        found = submit(open_carrier(provider), message())
        assert (found.verdict, found.carrier_ref) == (SubmitVerdict.TAKEN, provider.sent[-1].id)
        assert found.balance == Decimal("812.76")
