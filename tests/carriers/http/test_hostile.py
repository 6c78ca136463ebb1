"""Whatever a provider or a stranger sends is read without an error, and believed only as far as it goes."""

import json
from typing import Any, Final
from zipfile import ZipFile

import pytest
from flit_core.buildapi import build_wheel
from hypothesis import given
from hypothesis import strategies as st

from tests.carriers.http.test_profiles import message
from tests.support.carriers.catalogue import SERVERS
from tests.support.carriers.example import DOCS
from tumira.carriers.http.carrier import DETAIL_MAX, HttpCarrier
from tumira.carriers.http.profile import load_profile, profile_names
from tumira.carriers.http.values import (
    CallbackContent,
    CallbackMode,
    CallbackRefused,
    CallbackRequest,
    HttpAnswer,
    SubmitVerdict,
)
from tumira.delivery.receipt_rules import receipt_result

CARRIERS: Final = [
    HttpCarrier(load_profile(name), "https://sms.example.com", server.settings, server.secrets)
    for name, server in SERVERS.items()
]
HOOK: Final = "https://sms.example.com/hooks/carriers/AbC"
# Names and words of all profiles, so that what is made up gets far.
WORDS: Final = st.sampled_from(
    [
        *(
            "messages",
            "results",
            "event",
            "messageStatusUpdate",
            "SMSMessageData",
            "Recipients",
            "status",
            "id",
        ),
        *(
            "type",
            "to",
            "statusCode",
            "messageId",
            "groupId",
            "code",
            "error",
            "remarks",
            "message_id",
            "eventId",
        ),
        *(
            "MessageStatus",
            "MessageSid",
            "DLRStatus",
            "Status",
            "EventId",
            "phoneNumber",
            "sid",
            "text",
            "sig",
        ),
        *(
            "DELIVERED",
            "FAILED",
            "delivered",
            "0",
            "S",
            "F",
            "Success",
            "RECEIVED",
            "PENDING",
            "\ud800",
            "\0",
        ),
    ]
)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=25,
)
BODIES: Final = st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode())
STATUSES: Final = st.sampled_from([200, 201, 202, 207, 302, 400, 401, 403, 404, 429, 500, 503])


@given(st.sampled_from(CARRIERS), STATUSES, BODIES)
def test_any_answer_can_be_read(carrier: HttpCarrier, status: int, body: bytes) -> None:
    answer = HttpAnswer(status, {}, body)
    found = carrier.read_submit(answer, message())
    assert (found.carrier_ref != "") is (found.verdict is SubmitVerdict.TAKEN)
    assert len(found.detail) <= DETAIL_MAX + 50
    assert found.detail.isprintable()
    if carrier.profile.look is not None:
        carrier.read_look(answer, "1", "2")
    if carrier.has_balance:
        carrier.read_balance(answer)


@given(st.sampled_from(CARRIERS), st.sampled_from(["GET", "POST"]), BODIES, st.text(max_size=40))
def test_any_callback_can_be_read(carrier: HttpCarrier, method: str, body: bytes, query: str) -> None:
    request = CallbackRequest(method, HOOK, query, {"x-twilio-signature": "\xff"}, body, "192.0.2.1")
    found = carrier.read_callback(request)
    if carrier.callback_mode is not CallbackMode.OPEN:
        assert isinstance(found, CallbackRefused)
        return
    if isinstance(found, CallbackContent):
        for report in found.reports:
            # It can be stored.
            texts: list[Any] = [
                report.carrier_ref,
                report.reference,
                report.recipient,
                report.word,
                report.network,
            ]
            assert all(text is None or (text.encode() and text.isprintable()) for text in texts)
            receipt_result(report.state, report.error)
        for reply in found.replies:
            assert "\0" not in reply.text
            assert reply.text.encode() or not reply.text


def test_half_a_pair_in_a_signed_callback_is_refused() -> None:
    [vonage] = [one for one in CARRIERS if one.profile.name == "vonage"]
    body = b'{"messageId": "1", "status": "\\ud800", "sig": "\\ud800"}'
    request = CallbackRequest("POST", HOOK, "", {}, body, "192.0.2.1")
    assert vonage.read_callback(request) == CallbackRefused(403, "the check vonage failed")


def test_the_wheel_has_every_profile(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS.parents[1])
    with ZipFile(tmp_path / build_wheel(str(tmp_path))) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("tumira/carriers/http/profiles/")}
    assert packed == {f"tumira/carriers/http/profiles/{name}.toml" for name in profile_names()}
