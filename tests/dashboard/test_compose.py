"""A message composed, priced, confirmed and sent from the dashboard, once."""

import html
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import asyncpg
import httpx
import pytest

from tests.support.identity.customers import ONE, Customer, open_session, words
from tests.support.processes.service import Service
from tumira.audit_log import OPERATOR
from tumira.carriers.manage import add_carrier, remove_carrier
from tumira.content.review import OPEN_MAX, add_template
from tumira.content.templates import TemplateVerdict
from tumira.identity import manage_accounts
from tumira.pricing.actions import add_destination, set_price
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff
from tumira.pricing.phone_numbers import Entry, read_recipients

COMPOSE: Final = "/dashboard/compose"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
OFFER: Final = "Get 20% off your next order with the code SAVE20!"
PRESSES: Final = 10

TARIFF: Final = Tariff(
    1,
    [
        Destination("ZW", "263", "Zimbabwe", (9,)),
        Destination("ZA", "27", "South Africa", (9,)),
        Destination("ZM", "260", "Zambia", (9,)),
    ],
    [
        Price("sms", "ZW", Decimal("0.04"), PriceStatus.ACTIVE),
        Price("sms", "ZA", Decimal("0.02"), PriceStatus.ACTIVE),
        Price("sms", "ZM", Decimal("0.03"), PriceStatus.COMING_SOON),
    ],
)


@dataclass(frozen=True, slots=True)
class Writer(Customer):
    """A customer who composes messages."""

    def compose(self, recipients: str = ONE, message: str = ORDER, reference: str = "") -> httpx.Response:
        return self.post(COMPOSE, recipients=recipients, message=message, reference=reference)

    def confirm(self, page: httpx.Response, **changes: str) -> httpx.Response:
        return self.post(COMPOSE + "/confirm", **{**hidden(page), **changes})

    def batches(self) -> Sequence[asyncpg.Record]:
        return self.service.sql(
            "SELECT body, reference, recipients, total_cost FROM batches WHERE account_id = $1 ORDER BY id",
            self.caller.id,
        )

    def spent(self) -> Decimal:
        debits = self.service.sql(
            "SELECT coalesce(sum(amount), 0) FROM transfers WHERE account_id = $1 AND to_book = 'revenue'",
            self.caller.id,
        )
        return Decimal(debits[0][0])


def sign_in(service: Service, balance: str = "100") -> Writer:
    caller = service.open_account(balance)
    return Writer(service, caller, open_session(service, caller))


def hidden(page: httpx.Response) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in found}


def typed(page: httpx.Response) -> tuple[str, ...]:
    areas = re.findall(
        r'<textarea id="(?:recipients|message)" [^>]*>\n(.*?)</textarea>', page.text, re.DOTALL
    )
    (reference,) = re.findall(r'<input id="reference" [^>]*value="([^"]*)"', page.text)
    return tuple(html.unescape(text) for text in (*areas, reference))


def alert(page: httpx.Response) -> str:
    (found,) = re.findall(r'role="alert">(.*?)</(?:div|p)>\s*<(?:form|div)', page.text, re.DOTALL)
    return words(found)


def is_confirmation(page: httpx.Response) -> bool:
    return "<h1>Send this message?</h1>" in page.text


def sent_to(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    location = answer.headers["location"]
    assert location.startswith("/dashboard/batches/bat_")
    return str(location)


def numbers(count: int) -> Sequence[str]:
    return [f"+2637712{number:05}" for number in range(count)]


def test_a_message_is_priced_by_country_before_it_is_sent(service: Service) -> None:
    customer = sign_in(service, "10")
    page = customer.compose(
        f"{ONE}, +263771200002 +27821230001 077 120 0001\n0242000000 +447700900123", "é" * 161
    )
    assert page.status_code == 200
    assert is_confirmation(page)
    said = words(page.text)
    assert "2 segments GSM-7" in said
    assert "Zimbabwe 2 US$0.04 2 US$0.16" in said
    assert "South Africa 1 US$0.02 2 US$0.04" in said
    assert "3 recipients · US$0.20 · 2 left out" in said
    assert "Balance now US$10.00 Balance after US$9.80" in said
    assert "1 repeated number: each recipient gets the message once." in said
    assert "2 numbers are left out" in said
    assert "0242000000 This is not a mobile number in Zimbabwe." in said
    assert "+447700900123 We do not send to this country." in said
    assert page.text.count("begins here.") == page.text.count("Segment 2 begins here.") == 1
    assert '<button aria-describedby="total">Confirm</button>' in page.text
    assert customer.batches() == []
    assert customer.spent() == 0


def test_confirming_sends_and_debits_and_leads_to_the_batch(service: Service) -> None:
    customer = sign_in(service)
    sent_to(customer.confirm(customer.compose(f"{ONE}; +27 82 123 0001", ORDER, "  order-1042 ")))
    (batch,) = customer.batches()
    assert tuple(batch.values()) == (ORDER, "order-1042", 2, Decimal("0.0600"))
    assert service.balance(customer.caller) == Decimal("99.94")
    found = service.sql(
        "SELECT recipient FROM messages WHERE account_id = $1 ORDER BY id", customer.caller.id
    )
    assert [row[0] for row in found] == [ONE, "+27821230001"]


def test_all_that_is_wrong_is_said_at_once_beside_its_field(service: Service) -> None:
    customer = sign_in(service)
    page = customer.compose(" ,; \n", " \n ", "r" * 65)
    assert page.status_code == 422
    assert typed(page) == (" ,; \n", " \n ", "r" * 65)
    for field, said in (
        ("recipients", "Enter at least one phone number."),
        ("message", "Enter a message."),
        ("reference", "Enter a reference of at most 64 characters."),
    ):
        assert f'id="{field}-fault"' in page.text
        assert f'<a href="#{field}">' in page.text
        assert said in alert(page)
    # A fault of the text does not hide behind one of the recipients.
    page = customer.compose("\n".join(numbers(1001)), ADVERT)
    assert page.status_code == 422
    assert "You entered more than 1,000 numbers. Send to the first 1,000 now" in alert(page)
    assert "This is marketing" in alert(page)
    for message, said in (
        ("a" * 766, "The text takes 6 segments (GSM-7). Shorten it to at most 5."),
        ("a\u200b\u2019" * 120, "6 segments (UCS-2). Shorten it to at most 5, or leave out the characters"),
        ("a\u200b\u2019" * 120, "zero-width space (U+200B) \u2019"),
        ("x" * 100_000, "segments (GSM-7)"),
    ):
        page = customer.compose(message=message)
        assert page.status_code == 422
        assert said in alert(page)
        assert typed(page) == (ONE, message, "")


def test_marketing_is_refused_with_the_words_and_what_to_leave_out(service: Service) -> None:
    customer = sign_in(service)
    page = customer.compose(message=f"{ORDER} {OFFER}", reference="order")
    assert page.status_code == 422
    assert "Part of this text is marketing" in alert(page)
    assert "<mark>" in page.text
    assert words(re.findall(r"<blockquote.*?</blockquote>", page.text)[0]).split() == (
        words(f"{ORDER} {OFFER}").split()
    )
    assert f"<li>“{OFFER}”</li>" in page.text
    assert '<a href="/content-policy">' in page.text
    assert typed(page) == (ONE, f"{ORDER} {OFFER}", "order")
    assert is_confirmation(customer.compose(message=ORDER))


def test_a_balance_that_is_or_became_too_small_is_told_with_what_is_missing(service: Service) -> None:
    two = " ".join(numbers(2))
    customer = sign_in(service, "0.08")
    asked = customer.compose(two, ORDER, "order")
    assert service.send(customer.caller).status_code == 202
    for answer in (customer.confirm(asked), customer.compose(two, ORDER, "order")):
        assert answer.status_code == 402
        assert "this costs US$0.08 and you have US$0.04. Nothing was sent. You need US$0.04 more" in alert(
            answer
        )
        assert typed(answer) == (two, ORDER, "order")
        assert "Your balance is US$0.04 too low. Top up" in words(answer.text)
        assert '<a id="top-up" href="/dashboard/top-up?amount=5">' in answer.text
    answer = customer.compose(" ".join(numbers(200)))
    assert '<a id="top-up" href="/dashboard/top-up?amount=7.96">' in answer.text
    assert customer.spent() == Decimal("0.04")


def test_a_limit_for_the_day_is_told(service: Service) -> None:
    customer = sign_in(service)
    service.run(
        manage_accounts.limit,
        customer.caller.id,
        rate_limit=None,
        daily_limit=Decimal("0.05"),
        change_daily=True,
    )
    page = customer.compose(" ".join(numbers(2)))
    assert page.status_code == 429
    assert "your limit is US$0.05 per day" in alert(page)
    assert typed(page) == (" ".join(numbers(2)), ORDER, "")


def test_what_is_blocked_or_suspended_is_not_sent_even_if_it_was_shown_before(service: Service) -> None:
    customer = sign_in(service)
    message = "Your parcel waits at the blocked counter."
    page = customer.compose(message=message)
    service.run(add_template, message, customer.caller.id, TemplateVerdict.BLOCK, note="", actor=OPERATOR)
    for answer in (customer.compose(message=message), customer.confirm(page)):
        assert answer.status_code == 422
        assert "We have blocked texts like this one." in alert(answer)
        assert typed(answer) == (ONE, message, "")
    page = customer.compose()
    service.run(manage_accounts.suspend, customer.caller.id, suspended=True)
    for answer in (customer.compose(), customer.confirm(page)):
        assert answer.status_code == 403
        assert "Your account is suspended" in alert(answer)
        assert typed(answer) == (ONE, ORDER, "")
    assert customer.batches() == []


def test_numbers_of_which_none_can_be_sent_to_are_listed_with_why(service: Service) -> None:
    given = "077120003, 123 +26377120005; +447700900123, <b>"
    page = sign_in(service).compose(given)
    assert page.status_code == 422
    assert "We cannot send to any of these numbers" in alert(page)
    said = words(page.text)
    assert "123 This number is too short." in said
    for short in ("077120003", "+26377120005"):
        assert f"{short} Numbers in Zimbabwe have 9 digits after +263. This one has 8." in said
    assert "<b>" not in page.text
    assert typed(page)[0] == given


def test_a_thousand_numbers_can_be_sent_to(service: Service) -> None:
    customer = sign_in(service)
    page = customer.compose("\r\n".join(numbers(1000)))
    assert "1,000 recipients · US$40.00" in words(page.text)
    sent_to(customer.confirm(page))
    assert customer.batches()[0]["recipients"] == 1000


@pytest.mark.parametrize("recipients", [1, 60])
def test_however_often_and_fast_confirm_is_pressed_it_is_sent_once(service: Service, recipients: int) -> None:
    cost = Decimal("0.04") * recipients
    # Not a cent more than it costs: who comes second must not be told that the balance is too small.
    customer = sign_in(service, str(cost))
    page = customer.compose("\n".join(numbers(recipients)))
    with ThreadPoolExecutor(PRESSES) as fingers:
        answers = list(fingers.map(lambda _: customer.confirm(page), range(PRESSES)))
    assert len({sent_to(answer) for answer in answers}) == 1
    assert len(customer.batches()) == 1
    assert customer.spent() == cost
    assert sent_to(customer.confirm(page)) == sent_to(answers[0])


def test_a_price_that_changed_is_shown_before_anything_is_sent(service: Service) -> None:
    customer = sign_in(service)
    number = "+260971200001"
    service.run(add_destination, Destination("ZM", "260", "Zambia", (9,)), OPERATOR)
    service.run(set_price, Price("sms", "ZM", Decimal("0.03"), PriceStatus.ACTIVE), OPERATOR)
    page = customer.compose(number)
    service.run(set_price, Price("sms", "ZM", Decimal("0.05"), PriceStatus.ACTIVE), OPERATOR)
    answer = customer.confirm(page)
    assert answer.status_code == 409
    assert is_confirmation(answer)
    assert "Nothing was sent" in alert(answer)
    assert "1 recipient · US$0.05" in words(answer.text)
    assert customer.batches() == []
    batch = sent_to(customer.confirm(answer))
    assert customer.spent() == Decimal("0.05")
    # Reloaded after yet another change, it leads to what was sent.
    service.run(set_price, Price("sms", "ZM", Decimal("0.06"), PriceStatus.ACTIVE), OPERATOR)
    assert sent_to(customer.confirm(answer)) == batch
    assert len(customer.batches()) == 1


def test_a_confirmation_is_good_for_what_was_shown_once_and_for_its_owner(service: Service) -> None:
    customer, other = sign_in(service), sign_in(service)
    for changes in ({"terms": ""}, {"terms": "0.0000"}, {"token": ""}, {"token": "\u00e9" * 32}):
        answer = customer.confirm(customer.compose(), **changes)
        assert answer.status_code == 409, changes
        assert is_confirmation(answer)
        assert customer.batches() == []
    batch = sent_to(customer.confirm(answer))
    another = customer.confirm(answer, message="Your order 1043 has been shipped.")
    assert another.status_code == 409
    assert is_confirmation(another)
    assert hidden(another)["token"] != hidden(answer)["token"]
    assert sent_to(other.confirm(answer)) != batch
    assert (len(customer.batches()), len(other.batches())) == (1, 1)
    # The same text once more is another send.
    assert sent_to(customer.confirm(customer.compose())) != batch
    assert len(customer.batches()) == 2


def test_a_confirmation_that_gets_no_answer_can_safely_be_pressed_again(service: Service) -> None:
    customer = sign_in(service)
    page = customer.compose()
    with service.holding("SELECT id FROM accounts WHERE id = $1 FOR UPDATE", customer.caller.id):
        answer = customer.confirm(page)
    assert answer.status_code == 503
    assert "Press Confirm again" in alert(answer)
    assert hidden(answer) == hidden(page)
    assert sent_to(customer.confirm(answer)) == sent_to(customer.confirm(page))
    assert len(customer.batches()) == 1


def test_a_country_whose_name_is_hostile_does_not_end_the_script(service: Service) -> None:
    service.run(add_destination, Destination("XX", "999", "</script><b>X", (9,)), OPERATOR)
    service.run(set_price, Price("sms", "XX", Decimal("0.03"), PriceStatus.ACTIVE), OPERATOR)
    page = sign_in(service).ask(COMPOSE)
    assert "<b>X" not in page.text
    assert page.text.count("</script>") == page.text.count("<script ")


def test_the_end_of_a_line_counts_as_one_character_as_in_the_browser(service: Service) -> None:
    customer = sign_in(service)
    page = customer.compose(message="a" * 79 + "\r\n" * 2 + "b" * 79)
    assert "1 segment GSM-7" in words(page.text)
    sent_to(customer.confirm(page, message=hidden(page)["message"].replace("\n", "\r\n")))
    assert customer.batches()[0]["body"] == "a" * 79 + "\n\n" + "b" * 79
    assert "2 segments GSM-7" in words(customer.compose(message="a" * 80 + "\r\n" * 2 + "b" * 79).text)


def check(customer: Writer, message: str = "", recipients: str = "", kind: str = "") -> str:
    answer = customer.post(COMPOSE + "/check", message=message, recipients=recipients, kind=kind)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    return answer.text


def test_what_was_typed_so_far_is_priced_and_judged(service: Service) -> None:
    customer = sign_in(service, "0.15")
    said = check(customer, ORDER, "077 120 0001, 0821230001 +263242000000 +27821230002 0771200001")
    assert "2 recipients: +263 77 120 0001, +27 82 123 0002" in words(said).replace("\xa0", " ")
    assert "0821230001 This is not a mobile number in Zimbabwe. Did you mean +27821230001" in (
        words(said).replace("\xa0", "")
    )
    assert "+263242000000 This is not a mobile number in Zimbabwe." in words(said)
    assert "2 recipients · US$0.06 · 2 left out" in words(said)
    assert 'data-units="600" data-balance="1500"' in said
    assert "Checked: this text can be sent." in words(said)
    for message in ("", "Short", "x" * 10_000):
        assert "No marketing." in words(check(customer, message))
    assert "We cannot send to any of these numbers." in words(check(customer, recipients="0242000000"))
    assert "More than 1,000 numbers. Send to at most 1,000 at once." in (
        words(check(customer, recipients=" ".join(numbers(1001))))
    )
    said = check(customer, "It\u2019s here")
    assert 'data-spelling="It&#39;s here"' in said
    said = check(customer, f"\U0001f600 {ORDER}\r\n{OFFER}")
    assert "This text is refused" in words(said)
    (quoted,) = re.findall(r'<blockquote class="text">(.*?)</blockquote>', said, re.DOTALL)
    assert html.unescape(re.sub("</?mark>", "", quoted)) == f"\U0001f600 {ORDER}\n{OFFER}"
    assert any("20% off" in marked for marked in re.findall("<mark>(.*?)</mark>", quoted))
    assert f"<li>“{OFFER}”</li>" in said
    assert "Send for review" in said
    assert 'formaction="/dashboard/upload/review"' in check(customer, OFFER, kind="upload")
    # Nobody is counted as refused for what they were still typing.
    refusals = service.sql("SELECT 1 FROM content_refusals WHERE account_id = $1", customer.caller.id)
    assert refusals == []


def test_so_many_texts_are_under_review_at_once(service: Service) -> None:
    customer = sign_in(service)
    offers = [f"{ADVERT} {'x' * number}" for number in range(OPEN_MAX + 1)]
    answers = [
        customer.post(COMPOSE + "/review", recipients=ONE, message=offer, note="Please.") for offer in offers
    ]
    assert [answer.status_code for answer in answers] == [200] * OPEN_MAX + [422]
    assert f"You have {OPEN_MAX} texts under review." in alert(answers[-1])
    assert "Please.</textarea>" in answers[-1].text


def test_the_sender_that_recipients_see_is_shown(service: Service) -> None:
    customer = sign_in(service)
    carriers = (("main", "Tumira", None), ("harare", "Shop", ["ZW"]), ("backup", "32100", ["ZA"]))
    for priority, (name, source, countries) in enumerate(carriers):
        url = f"smpp://tumira:secret@smpp.example.com?source={source}"
        service.run(add_carrier, name, url, countries, 10 - priority)
    for page in (customer.ask(COMPOSE), customer.compose()):
        assert "32100 (South Africa), Shop (Zimbabwe)" in words(page.text)
    for name in ("harare", "backup"):
        service.run(remove_carrier, name)
    assert "From Tumira Your message" in words(customer.ask(COMPOSE).text)
    service.run(remove_carrier, "main")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("+263771200001,+263771200002;+263771200003", [ONE, "+263771200002", "+263771200003"]),
        ("+263771200001 +263771200002\t+263771200003\r\n", [ONE, "+263771200002", "+263771200003"]),
        ("+263 77 120 0001", [ONE]),
        ("+263 77 120 0001 +27 82 123 0001", [ONE, "+27821230001"]),
        ("00263 77 120 0001 0027821230001", [ONE, "+27821230001"]),
        ("+263-77-120-0001, +263.77.120.0002", [ONE, "+263771200002"]),
        ("+263\xa077\u2009120\u202f0001", [ONE]),
        ("\ufeff+263771200001\u2028+263771200002\u200b", [ONE, "+263771200002"]),
        # A line's end parts them even where together they would be a number.
        ("+26377120000\n1", ["+26377120000", "1"]),
        # What is complete takes nothing more.
        ("+263771200001 2", [ONE, "2"]),
        # One digit is missing: one entry, not four.
        ("+263 77 120 000", ["+26377120000"]),
        ("Anna +263771200001", ["Anna", ONE]),
        ("1 2 3", ["123"]),
        # The account's country completes a number.
        ("077 120 0001 0771200002;77-120-0003", [ONE, "+263771200002", "+263771200003"]),
        ("(0)77 120 0001, +263 (0) 77 120 0002", [ONE, "+263771200002"]),
        ("27821230001 263 77 120 0001", ["+27821230001", ONE]),
        ("077 120 000", ["+26377120000"]),
    ],
)
def test_numbers_are_found_as_people_write_them(text: str, found: list[str]) -> None:
    assert [entry.number for entry in read_recipients(TARIFF, text, "ZW")] == found


def test_what_was_written_is_kept_for_showing() -> None:
    assert read_recipients(TARIFF, "\n +263  (77) 120-0001 ;x") == [
        Entry("+263 (77) 120-0001", ONE),
        Entry("x", "x"),
    ]
