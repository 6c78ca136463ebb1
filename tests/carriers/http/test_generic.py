"""Profiles that an operator writes from docs/carriers.md alone."""

import itertools
import re
import shlex
from datetime import UTC, datetime
from decimal import Decimal
from typing import ClassVar, Final

import pytest

from tests.support.carriers.example import DOCS, ExampleServer, documented_profile
from tests.support.carriers.receiver import answered, run_receiver
from tests.support.carriers.server import Answer, Call, CarrierServer, Misbehaviour, SentText, run_carrier
from tests.support.carriers.smsportal import TOKEN_PROFILE, TokenServer
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.checks import CallbackCheck
from tumira.carriers.http.profile import (
    LOOK_PLACEHOLDERS,
    SEND_PLACEHOLDERS,
    Alphabet,
    AnswerPaths,
    BalanceSection,
    CallbackSection,
    LookSection,
    Profile,
    ProfileError,
    ProfileSetting,
    SendSection,
    TimePattern,
    TokenSection,
    ValidityRange,
    load_profile,
    parse_profile,
    profile_names,
)
from tumira.carriers.http.reports import STATES, PartPaths, ReplyPaths, ReportPaths
from tumira.carriers.http.rules import AnswerRule
from tumira.carriers.http.templates import BasicAuth, RequestTemplate
from tumira.carriers.http.values import (
    AccessToken,
    Balance,
    CallbackContent,
    LookFailure,
    OutgoingMessage,
    SubmitAnswer,
    SubmitVerdict,
)

V: Final = SubmitVerdict
_numbers: Final = itertools.count(1)


def message(callback_url: str = "") -> OutgoingMessage:
    number = next(_numbers)
    return OutgoingMessage(
        recipient="+27821230001",
        text="Code 4711",
        sender="Tumira",
        reference=f"g{number:019}",
        sequence=number,
        unicode=False,
        validity_s=600,
        callback_url=callback_url,
        at=datetime(2026, 11, 15, 10, tzinfo=UTC),
    )


def submit(carrier: HttpCarrier, one: OutgoingMessage, token: str = "") -> SubmitAnswer:
    return carrier.read_submit(answered(carrier.submit_request(one, token)), one)


def test_the_documented_profile_does_all_that_a_profile_can() -> None:
    with run_carrier(ExampleServer()) as provider, run_receiver() as receiver:
        provider.tells = False
        carrier = HttpCarrier(
            parse_profile(documented_profile()), provider.url, provider.settings, provider.secrets
        )
        receiver.carrier = carrier
        provider.callback_url = receiver.url
        one = message(receiver.url)
        taken = submit(carrier, one)
        [sent] = provider.sent
        assert taken == SubmitAnswer(V.TAKEN, sent.id, cost=Decimal("0.02"))
        assert (sent.recipient, sent.text, sent.validity) == ("27821230001", "Code 4711", 600)
        for behaviour, verdict, reason, stop in (
            (Misbehaviour.NO_CREDIT, V.STOPPED, None, "credit"),
            (Misbehaviour.BAD_CREDENTIALS, V.STOPPED, None, "credentials"),
            (Misbehaviour.REFUSED_NUMBER, V.REFUSED, "UNKNOWN_SUBSCRIBER", None),
            (Misbehaviour.ERROR_5XX, V.TEMPORARY, "CARRIER_REJECTED", None),
            (Misbehaviour.HTML_5XX_AFTER_TAKING, V.DOUBT, None, None),
        ):
            provider.misbehave(behaviour, times=1)
            found = submit(carrier, message())
            assert (found.verdict, found.reason, found.stop) == (verdict, reason, stop)
        assert provider.tell(sent, "undelivered") == 200
        content = receiver.read[-1]
        assert isinstance(content, CallbackContent)
        assert [(one.state, one.error, one.reference) for one in content.reports] == [
            ("UNDELIV", "ABSENT_SUBSCRIBER", one.reference)
        ]
        assert provider.tell(sent, "delivered", forged=True) == 403
        assert provider.tell_reply("+27821230009", "32100", "STOP") == 200
        content = receiver.read[-1]
        assert isinstance(content, CallbackContent)
        assert [(one.sender, one.text) for one in content.replies] == [("+27821230009", "STOP")]
        looked = carrier.read_look(answered(carrier.look_request(None, one.reference)), None, one.reference)
        assert isinstance(looked, tuple)
        assert [report.state for report in looked] == ["ENROUTE"]
        missing = answered(carrier.look_request(None, "0" * 20))
        assert carrier.read_look(missing, None, "0" * 20) is LookFailure.NOT_FOUND
        assert carrier.read_balance(answered(carrier.balance_request())) == Balance(Decimal("12.5"), "USD")


def test_a_token_is_fetched_first_and_again_once_it_is_refused() -> None:
    with run_carrier(TokenServer()) as provider:
        provider.tells = False
        carrier = HttpCarrier(parse_profile(TOKEN_PROFILE), provider.url, provider.settings, provider.secrets)
        assert carrier.has_token
        found = carrier.read_token(answered(carrier.token_request()))
        assert found == AccessToken(provider.tokens[-1], 86_400)
        assert submit(carrier, message(), found.token).verdict is V.TAKEN
        provider.misbehave(Misbehaviour.EXPIRED_TOKEN, times=1)
        expired = submit(carrier, message(), found.token)
        assert (expired.verdict, expired.stop) == (V.STOPPED, "credentials")
        found = carrier.read_token(answered(carrier.token_request()))
        assert found is not None
        assert submit(carrier, message(), found.token).verdict is V.TAKEN
        wrong = HttpCarrier(parse_profile(TOKEN_PROFILE), provider.url, {}, {"key": "d3Jvbmc="})
        assert wrong.read_token(answered(wrong.token_request())) is None


TEXT_PROFILE: Final = """
name = "plain_text"
title = "Answers in plain text"

[settings]
user = { title = "User" }
password = { title = "Password", secret = true }

[basic]
user = "{setting.user}"
password = "{secret.password}"

[send]
method = "GET"
path = "/Remote/SendMessage"
query = { Recipients = "{to}", Body = "{text}", sending_number = "{sender}" }
answer = { format = "text", separator = ":", id = "1", detail = "1" }
rules = [
    { http = 200, when = { 0 = "SUCCESS" }, verdict = "taken" },
    { when = { 0 = "ERROR", 1 = { contains = "credit" } }, verdict = "stopped", stop = "credit" },
    { when = { 0 = "ERROR" }, verdict = "refused" },
]
"""


class PlainTextServer(CarrierServer):
    settings: ClassVar = {"user": "u"}
    secrets: ClassVar = {"password": "pass-word"}

    def answer(self, call: Call) -> Answer:
        assert call.user == "u:pass-word"
        return self.submit(SentText(recipient=call.query["Recipients"], text=call.query["Body"]))

    def accepted(self, text: SentText) -> Answer:
        return Answer(200, f"SUCCESS: {text.id}\r\n".encode(), "text/plain")

    def refused_number(self, text: SentText) -> Answer:
        return Answer(
            200, f"ERROR: no number {text.recipient}, pass-word, {text.text}".encode(), "text/plain"
        )

    def no_credit(self) -> Answer:
        return Answer(200, b"ERROR: Not enough credit", "text/plain")


def test_plain_text_answers() -> None:
    with run_carrier(PlainTextServer()) as provider:
        provider.tells = False
        carrier = HttpCarrier(parse_profile(TEXT_PROFILE), provider.url, provider.settings, provider.secrets)
        taken = submit(carrier, message())
        assert (taken.verdict, taken.carrier_ref) == (V.TAKEN, provider.sent[-1].id)
        provider.misbehave(Misbehaviour.NO_CREDIT, times=1)
        assert submit(carrier, message()).stop == "credit"
        provider.misbehave(Misbehaviour.REFUSED_NUMBER, times=1)
        refused = submit(carrier, message())
        assert (refused.verdict, refused.detail) == (V.REFUSED, "HTTP 200 no number …, …, …")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "example"', "name = 5", "name: Expected `str`, got `int`."),
        ('name = "example"', 'name = "My own"', "profile: name must be small letters, digits and _."),
        ('name = "example"', "", "profile: Object missing required field `name`."),
        (
            'name = "example"',
            'name = "example"\ncolour = "red"',
            "profile: Object contains unknown field `colour`.",
        ),
        ('name = "example"', "name = ", "The profile is no TOML: Invalid value"),
        ('name = "example"', 'name = "example"\nin_doubt = "panic"', "in_doubt: Invalid enum value 'panic'."),
        ('name = "example"', 'name = "example"\nadapter = "nexmo"', "adapter: Invalid enum value 'nexmo'."),
        ('name = "example"', 'name = "example"\ndoubt_wait_s = 0', "doubt_wait_s must be from 1 to 86400."),
        (
            '{ title = "User name" }',
            '{ tittle = "User" }',
            "settings: user: Object contains unknown field `tittle`.",
        ),
        ("user = { title", "User = { title", "settings: 'User' is no name"),
        ('path = "/send"', 'path = "send"', "send.path: a path must begin with a slash"),
        ('path = "/send"', 'path = "/send"\nmethod = "PUT"', "send.method: Invalid enum value 'PUT'."),
        (
            '"{to}"',
            '"{recipient}"',
            "send: {recipient} is no placeholder here: known are alphabet, callback_url",
        ),
        ('"{to}"', '"{to"', "send.body: body.to: '{to' has a brace that belongs to no placeholder."),
        ('"{to}"', '"{alphabet}"', "send: the placeholder {alphabet} needs the table alphabet."),
        ('"{to}"', '"{token}"', "send: {token} is no placeholder here"),
        ('"{to}"', '"{secret.user}"', "send: {secret.user} is no placeholder here"),
        ('id = "result.id"', 'id = "result..id"', "send.answer.id: 'result..id' is no path"),
        (
            'id = "result.id"',
            "",
            "send.answer: write either id, the path of the provider's id, or id_is_reference",
        ),
        ('http = "2xx"', 'http = "9xx"', "send.rules[0].http: '9xx' is no HTTP status"),
        (
            'verdict = "taken"',
            'verdict = "accepted"',
            "send.rules[0].verdict: Invalid enum value 'accepted'.",
        ),
        ('verdict = "taken"', 'verdict = "unknown"', "send: no rule has the verdict taken."),
        ('stop = "credit"', "", "send.rules[1]: stop belongs to the verdict stopped, which needs it."),
        ('reason = "UNKNOWN_SUBSCRIBER"', 'reason = "BAD"', "send.rules[2]: 'BAD' is no failure reason"),
        ('{ prefix = "BUSY" }', '{ regex = "B.*" }', "send.rules[3].when: error.code: write one of contains"),
        ('value = "{secret.hook_key}"', 'value = "{setting.user}"', "callback.check: a check needs a secret"),
        ('kind = "header"', 'kind = "hmac"', "callback.check: the check hmac needs key."),
        ('kind = "header"', 'kind = "basic"', "callback.check: the check basic needs basic."),
        ('arrived = "delivered"', 'arrived = "ok"', "states: arrived: 'ok' is no state"),
        ('late = "expired"', 'late = "expired LATE"', "states: late: 'LATE' is no failure reason"),
        ('E1 = "UNKNOWN_SUBSCRIBER"', 'E1 = "GONE"', "reasons: E1: 'GONE' is no failure reason"),
        ("[states]", "[words]", "profile: Object contains unknown field `words`."),
    ],
)
def test_a_mistake_is_refused_with_its_key(old: str, new: str, words: str) -> None:
    text = documented_profile()
    assert old in text
    with pytest.raises(ProfileError) as raised:
        parse_profile(text.replace(old, new, 1))
    assert words in str(raised.value)


def test_the_documentation_names_every_key_placeholder_verdict_and_state() -> None:
    reference = DOCS.read_text(encoding="utf-8").partition("### Paths")[2]
    written = set(re.findall(r"[a-z0-9_]+", reference))
    sections = (
        *(Profile, ProfileSetting, RequestTemplate, SendSection, AnswerPaths, ValidityRange, Alphabet),
        *(
            TimePattern,
            AnswerRule,
            LookSection,
            ReportPaths,
            ReplyPaths,
            CallbackSection,
            CallbackCheck,
            PartPaths,
        ),
        *(TokenSection, BalanceSection, BasicAuth),
    )
    keys = {name for section in sections for name in section.__struct_fields__}
    # Code of our own, for a provider of our own.
    assert keys - written == {"adapter"}
    assert {*SEND_PLACEHOLDERS, *LOOK_PLACEHOLDERS, *map(str, SubmitVerdict), *STATES} <= written


def test_the_documented_commands_give_what_each_profile_needs() -> None:
    text = DOCS.read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [
        shlex.split(line)
        for line in re.findall(r"^\$ tumira carrier add (.*--profile.*)$", text, re.MULTILINE)
    ]
    shown: set[str] = set()
    for _name, url, *options in commands:
        pairs = list(itertools.pairwise(options))
        profile = load_profile(dict(pairs)["--profile"])
        shown.add(profile.name)
        given = dict(value.split("=", 1) for option, value in pairs if option == "--set")
        engine = {"source", "in_doubt"}
        secrets = {key: "secret" for key, one in profile.settings.settings.items() if one.secret}
        HttpCarrier(profile, url, {key: given[key] for key in given.keys() - engine}, secrets)
        section = text.partition(f"### {profile.title}\n")[2].partition("\n### ")[0]
        assert all(f"`{key}`" in section or f"`{key}=" in section for key in secrets), profile.name
    assert shown == set(profile_names())


def test_bounds_of_a_profile() -> None:
    text = documented_profile()
    with pytest.raises(ProfileError, match="at most 64 KiB"):
        parse_profile(text + "#" * 70_000)
    rule = '[[send.rules]]\nhttp = 200\nverdict = "taken"\n'
    with pytest.raises(ProfileError, match="write 1 to 100 rules"):
        parse_profile(text.replace("[look.by_reference]", rule * 100 + "[look.by_reference]", 1))
    with pytest.raises(ProfileError, match=r"There is no profile 'acme'\. Profiles: africastalking, bluedot"):
        load_profile("acme")


@pytest.mark.parametrize(
    ("url", "settings", "secrets", "words"),
    [
        ("http://sms.example.com", {}, {}, "must begin with https://"),
        ("https://u:p@sms.example.com", {}, {}, "no user, password, query or fragment"),
        ("https://sms.example.com?x=1", {}, {}, "no user, password, query or fragment"),
        ("https://", {}, {}, "name a host"),
        ("https://sms.example.com", {"key": "k"}, {}, "The secret key is missing: API key."),
        ("https://sms.example.com", {"colour": "red"}, {"key": "k"}, "has no setting colour. Known: user."),
        (
            "https://sms.example.com",
            {},
            {"key": "k", "user": "u"},
            "has no secret user. Known: key, hook_key.",
        ),
        ("https://sms.example.com", {}, {"key": "k\r\nX: y"}, "The secret key must have at most 1000 ASCII"),
        ("https://sms.example.com", {"receipts": "mail"}, {"key": "k"}, "receipts must be callback or poll"),
        (
            "https://sms.example.com",
            {"callback_addresses": "home"},
            {"key": "k"},
            "callback_addresses must list",
        ),
    ],
)
def test_settings_are_refused_without_their_values(
    url: str, settings: dict[str, str], secrets: dict[str, str], words: str
) -> None:
    profile = parse_profile(documented_profile())
    with pytest.raises(ValueError, match=words.replace("(", r"\(")) as raised:
        HttpCarrier(profile, url, {"user": "me", **settings}, secrets)
    assert "X: y" not in str(raised.value)
