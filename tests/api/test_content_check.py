"""Promotional texts are refused at no cost, and templates change that."""

from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import assert_refused, assert_shape
from tests.support.processes.service import Caller, Service
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template, remove_template
from tumira.content.templates import TemplateVerdict
from tumira.core import errors
from tumira.core.ids import AccountId, TemplateId

ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
MIXED: Final = f"{ORDER} Get 20% off your next order with the code SAVE20!"
KEY: Final = {"Idempotency-Key": "order-1042"}
THOUSAND: Final = tuple(f"+2637712{number:05}" for number in range(1000))
REASON: Final = {"words": str, "start": int, "end": int, "category": str}
DETAIL: Final = {
    "field": str,
    "code": str,
    "message": str,
    "category": str,
    "score": float,
    "reasons": list,
    "drop": list,
}


def rejected(answer: httpx.Response) -> dict[str, Any]:
    error = assert_refused(answer, errors.ContentRejected)
    (detail,) = error["details"]
    assert_shape(detail, DETAIL)
    assert (detail["field"], detail["code"]) == ("body", "CONTENT_REJECTED")
    assert 0.5 <= detail["score"] <= 1
    assert detail["score"] == round(detail["score"], 2)
    assert error["message"].count(".") >= 1
    return {**detail, "said": error["message"]}


def add(service: Service, text: str, account_id: AccountId | None, *, block: bool = False) -> TemplateId:
    verdict = TemplateVerdict.BLOCK if block else TemplateVerdict.ALLOW
    return service.run(add_template, text, account_id, verdict, note="", actor=OPERATOR).id


def traces(service: Service, caller: Caller) -> tuple[int, ...]:
    counts = service.sql(
        "SELECT (SELECT count(*) FROM batches WHERE account_id = $1),"
        " (SELECT count(*) FROM messages WHERE account_id = $1),"
        " (SELECT count(*) FROM idempotency_keys WHERE account_id = $1),"
        " (SELECT count(*) FROM transfers WHERE account_id = $1 AND to_book = 'revenue')",
        caller.id,
    )
    return tuple(counts[0])


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("text", [ADVERT, MIXED, f"🙂🙂 Mhoro é! {ADVERT}"])
def test_marketing_is_refused_with_the_words_that_weighed(
    service: Service, text: str, *, dry_run: bool
) -> None:
    caller = service.open_account()
    rejected(service.send(caller, to="+15550100", body=text, dry_run=dry_run))
    detail = rejected(service.send(caller, body=text, dry_run=dry_run))
    assert 1 <= len(detail["reasons"]) <= 10
    for reason in detail["reasons"]:
        assert_shape(reason, REASON)
        assert text[reason["start"] : reason["end"]] == reason["words"]
    assert service.balance(caller) == 100
    assert traces(service, caller) == (0, 0, 0, 0)


def test_what_remains_without_the_sentences_to_drop_is_sent(service: Service) -> None:
    caller = service.open_account()
    detail = rejected(service.send(caller, body=MIXED))
    assert detail["drop"]
    rest = MIXED
    for sentence in detail["drop"]:
        assert sentence in rest
        rest = rest.replace(sentence, "")
    assert detail["drop"][0][:50] in detail["said"]
    assert service.send(caller, body=rest.strip()).status_code == 202


def test_a_refused_send_leaves_its_key_free_for_the_corrected_one(service: Service) -> None:
    caller = service.open_account()
    for _ in range(2):
        rejected(service.send(caller, KEY, body=MIXED))
    corrected = service.send(caller, KEY, body=ORDER)
    assert (corrected.status_code, "Idempotency-Replayed" in corrected.headers) == (202, False)
    assert service.send(caller, KEY, body=ORDER).content == corrected.content
    assert_refused(service.send(caller, KEY, body=MIXED), errors.IdempotencyConflict)
    assert service.balance(caller) == Decimal("99.96")


def test_a_thousand_recipients_are_refused_as_one_is(service: Service) -> None:
    caller = service.open_account()
    rejected(service.send(caller, KEY, to=THOUSAND, body=ADVERT))
    assert service.balance(caller) == 100
    assert traces(service, caller) == (0, 0, 0, 0)
    assert service.send(caller, KEY, to=THOUSAND, body=ORDER).status_code == 202
    assert service.balance(caller) == 60


def test_an_allowed_template_lets_texts_pass_from_the_next_call_on_and_for_its_account_alone(
    service: Service,
) -> None:
    caller, other = service.open_account(), service.open_account()
    text = ADVERT.replace("50%", "60%")
    for account in (caller, other):
        rejected(service.send(account, body=text))
    template_id = add(service, ADVERT.replace("50", "{percent}"), caller.id)
    assert service.send(caller, body=text, dry_run=True).status_code == 200
    assert service.send(caller, body=text).status_code == 202
    assert service.send(caller, to=THOUSAND[:60], body=text).status_code == 202
    rejected(service.send(other, body=text))
    rejected(service.send(caller, body=text + " Hurry!"))
    service.run(remove_template, template_id, OPERATOR)
    rejected(service.send(caller, body=text))


def test_a_blocked_template_refuses_what_the_judge_lets_pass(service: Service) -> None:
    caller, other = service.open_account(), service.open_account()
    assert service.send(caller, body=ORDER).status_code == 202
    add(service, "Your order {number} has been shipped and will arrive on {day}.", caller.id, block=True)
    for dry_run in (False, True):
        detail = rejected(service.send(caller, body=ORDER, dry_run=dry_run))
        assert (detail["category"], detail["reasons"], detail["drop"]) == ("blocked_template", [], [])
        assert "blocked" in detail["said"]
    assert service.send(other, body=ORDER).status_code == 202


def test_a_blocked_template_wins_over_an_allowed_one(service: Service) -> None:
    caller = service.open_account()
    text = ADVERT.replace("bags", "belts")
    # Allowed for every account.
    add(service, text, None)
    assert service.send(caller, body=text).status_code == 202
    template_id = add(service, text.replace("50", "{percent}"), None, block=True)
    assert rejected(service.send(caller, body=text))["category"] == "blocked_template"
    service.run(remove_template, template_id, OPERATOR)
    assert service.send(caller, body=text).status_code == 202


def test_an_answer_that_was_given_is_replayed_although_such_texts_are_blocked_since(service: Service) -> None:
    caller, text = service.open_account(), "Your invoice 7 is ready for you to collect."
    for to in (THOUSAND[:1], THOUSAND[:60]):
        headers = {"Idempotency-Key": f"invoice-{len(to)}"}
        first = service.send(caller, headers, to=to, body=text)
        template_id = add(service, text, caller.id, block=True)
        again = service.send(caller, headers, to=to, body=text)
        assert (again.content, again.headers["Idempotency-Replayed"]) == (first.content, "true")
        rejected(service.send(caller, to=to, body=text))
        service.run(remove_template, template_id, OPERATOR)
