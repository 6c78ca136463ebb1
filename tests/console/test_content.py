"""Refused texts, reviews and templates in the console."""

import html
import re
from typing import Final

import httpx

from tests.support.console.operators import ACTOR, changes_of, walk
from tests.support.identity.people import alert, goes_to
from tests.support.processes.service import Caller, Service, run_web
from tumira.audit_log import Actor
from tumira.console.pages.content import suggest
from tumira.content.review import ask_review
from tumira.content.store import digest_of
from tumira.core.ids import TEMPLATE, write_id
from tumira.identity import manage_accounts

CONTENT: Final = "/operator/content"
TEMPLATES: Final = CONTENT + "/templates"
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
NOBODY: Final = "acc_" + "0" * 26


def refused(service: Service, text: str = ADVERT, *, business: str = "Shoe Shop") -> Caller:
    caller = service.open_account()
    service.sql("UPDATE accounts SET business = $2 WHERE id = $1", caller.id, business)
    assert service.send(caller, body=text).status_code == 422
    return caller


def ask(service: Service, caller: Caller, text: str = ADVERT, note: str = "We do this weekly.") -> None:
    asked = service.run(
        ask_review, caller.id, digest_of(text), text, note, actor=Actor("owner", "198.18.0.1")
    )
    assert asked


def path_of(caller: Caller, text: str = ADVERT) -> str:
    return f"{CONTENT}/refusals/{caller.account_id}/{digest_of(text).hex()}"


def owner_sees(service: Service, caller: Caller) -> list[tuple[str, str, str]]:
    rows = service.sql(
        "SELECT actor, what, detail FROM changes WHERE account_id = $1 AND what <> 'key created' ORDER BY id",
        caller.id,
    )
    return [tuple(row) for row in rows]


def test_a_text_is_shown_only_where_its_owner_lets_us(service: Service, admin: httpx.Client) -> None:
    quiet = refused(service, business="Quiet Shop")
    open_one = service.open_account()
    service.run(manage_accounts.review, open_one.id, consent=True)
    assert service.send(open_one, body=ADVERT).status_code == 422

    def page_of(caller: Caller) -> str:
        return html.unescape(admin.get(path_of(caller)).text)

    page = page_of(quiet)
    assert ADVERT not in page
    assert "does not let us keep" in page
    (reasons,) = service.sql("SELECT reasons FROM content_refusals WHERE account_id = $1", quiet.id)
    words = re.findall(r'"words": "([^"]+)"', reasons["reasons"])
    assert words
    assert all(word in page for word in words)
    assert ADVERT in page_of(open_one)
    assert "Keep it refused" not in page_of(open_one)

    ask(service, quiet)
    assert ADVERT in page_of(quiet)
    assert "We do this weekly." in page_of(quiet)
    service.run(manage_accounts.review, open_one.id, consent=False)
    assert ADVERT not in page_of(open_one)


def test_who_asked_comes_first_and_who_asked_first_before_them(service: Service, admin: httpx.Client) -> None:
    callers = [refused(service, business=name) for name in ("First Asker", "Second Asker", "No Asker")]
    for caller in callers[:2]:
        ask(service, caller)
    page = admin.get(CONTENT).text
    asked, latest = page.split('id="latest"')
    assert asked.index("First Asker") < asked.index("Second Asker")
    assert "No Asker" not in asked
    assert "No Asker" in latest


def test_the_list_goes_on_without_gap_or_repetition(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    service.sql(
        "INSERT INTO content_refusals"
        " (account_id, digest, first_at, last_at, count, category, score, reasons)"
        " SELECT $1, sha256(n::text::bytea), now(), now() - (n / 7) * interval '1 hour', 1, 'offer', 0.9,"
        " '[]' FROM generate_series(1, 70) n",
        caller.id,
    )
    seen = walk(admin, CONTENT, "Older refusals", r'href="(/operator/content/refusals/[^"]+)"')
    asked = service.sql("SELECT FROM content_refusals WHERE review_asked_at IS NOT NULL")
    # Those for which a review is asked stand on the first page twice.
    assert len(seen) - len(asked) == len(set(seen)) == len(service.sql("SELECT FROM content_refusals"))
    for odd in ("x", "1", "1-acc_0-ff", "99999999999999999-" + NOBODY + "-" + "0" * 64, "-1-x-y"):
        assert admin.get(CONTENT, params={"before": odd}).status_code == 200


def test_a_text_is_allowed_or_refused_for_its_account_alone_and_who_asked_is_answered(
    service: Service, admin: httpx.Client
) -> None:
    caller = refused(service)
    ask(service, caller)
    page = admin.get(path_of(caller)).text
    assert "Get {number}% off all shoes" in html.unescape(page)
    form = {"text": ADVERT.replace("50", "{percent}"), "verdict": "allow", "note": "A cobbler, by contract"}
    assert goes_to(admin.post(path_of(caller) + "/template", data=form)) == CONTENT + "?done=allowed"
    assert service.send(caller, body=ADVERT.replace("50", "60")).status_code == 202
    assert service.send(service.open_account(), body=ADVERT).status_code == 422

    (template,) = service.sql("SELECT id, created_by FROM templates WHERE account_id = $1", caller.id)
    assert template["created_by"] == ACTOR
    (row,) = service.sql(
        "SELECT text, review_asked_at, review_note FROM content_refusals WHERE account_id = $1", caller.id
    )
    assert tuple(row) == (None, None, None)
    told = f"{write_id(TEMPLATE, template['id'])}, A cobbler, by contract"
    noted = (ACTOR, "texts of a template allowed", told)
    assert owner_sees(service, caller)[-1] == noted
    assert changes_of(service, caller.id) == [noted]

    removed = admin.post(f"{TEMPLATES}/{write_id(TEMPLATE, template['id'])}/remove")
    assert goes_to(removed) == TEMPLATES + "?done=removed"
    assert service.send(caller, body=ADVERT).status_code == 422
    assert admin.post(f"{TEMPLATES}/{write_id(TEMPLATE, template['id'])}/remove").status_code == 404
    assert owner_sees(service, caller)[-1][1] == "template removed"
    # And refused for good, whatever the classifier says.
    form = {"text": "Your parcel waits at the counter of our shop.", "verdict": "block", "note": ""}
    assert goes_to(admin.post(path_of(caller) + "/template", data=form)) == CONTENT + "?done=refused"
    assert service.send(caller, body=form["text"]).status_code == 422


def test_a_template_counts_with_the_next_call_on_every_node(service: Service, admin: httpx.Client) -> None:
    caller = refused(service)
    with run_web(service.url) as other:
        nodes = (service, other)
        # Both have the policy before in memory.
        assert [node.send(caller, body=ADVERT).status_code for node in nodes] == [422, 422]
        for verdict, status in (("allow", 202), ("block", 422)):
            text = "Your bag is here. " if verdict == "block" else ADVERT
            form = {"text": text, "verdict": verdict, "note": ""}
            assert goes_to(admin.post(path_of(caller) + "/template", data=form)) is not None
            sent = [node.send(caller, body=text.strip()).status_code for node in reversed(nodes)]
            assert sent == [status, status]


def test_a_request_is_dismissed_with_an_answer_and_what_was_given_for_it_is_erased(
    service: Service, admin: httpx.Client
) -> None:
    caller = refused(service)
    ask(service, caller)
    answer = {"answer": "It advertises a sale."}
    done = admin.post(path_of(caller) + "/dismiss", data=answer)
    assert goes_to(done) == CONTENT + "?done=dismissed"
    (row,) = service.sql(
        "SELECT text, review_asked_at, count FROM content_refusals WHERE account_id = $1", caller.id
    )
    assert tuple(row) == (None, None, 1)
    assert owner_sees(service, caller)[-1] == (
        ACTOR,
        "review of a refused text: it stays refused",
        "It advertises a sale.",
    )
    again = admin.post(path_of(caller) + "/dismiss", data=answer)
    assert (again.status_code, "already answered" in alert(again)) == (422, True)
    # A text that may be kept outlives its review.
    service.run(manage_accounts.review, caller.id, consent=True)
    assert service.send(caller, body=ADVERT).status_code == 422
    ask(service, caller)
    admin.post(path_of(caller) + "/dismiss", data={"answer": ""})
    assert ADVERT in html.unescape(admin.get(path_of(caller)).text)


def test_what_cannot_be_a_template_is_refused_and_nothing_is_lost(
    service: Service, admin: httpx.Client
) -> None:
    caller = refused(service)
    ask(service, caller)
    for field, value in (
        ("text", "short"),
        ("text", "{a}{b} and some more letters"),
        ("text", "x" * 5_000),
        ("verdict", "perhaps"),
        ("note", "x" * 250),
    ):
        form = {"text": ADVERT, "verdict": "allow", "note": "", field: value}
        assert admin.post(path_of(caller) + "/template", data=form).status_code == 422, field
    assert not service.sql("SELECT FROM templates WHERE account_id = $1", caller.id)
    assert service.sql("SELECT review_asked_at FROM content_refusals WHERE account_id = $1", caller.id)[0][0]
    assert len(owner_sees(service, caller)) == 1


def test_a_template_is_added_for_everybody_or_for_one(service: Service, admin: httpx.Client) -> None:
    text = "Winter clearance for {name}: everything must go, ends {day}!"
    sample = "Winter clearance for Rudo: everything must go, ends Friday!"
    caller = service.open_account()
    for account in (caller.account_id, ""):
        form = {"text": text, "verdict": "allow", "note": "n", "account": account}
        assert goes_to(admin.post(TEMPLATES, data=form)) == TEMPLATES + "?done=added"
        again = admin.post(TEMPLATES, data=form)
        assert (again.status_code, "already" in alert(again)) == (422, True)
    assert service.send(service.open_account(), body=sample).status_code == 202
    for odd in ("x", NOBODY, "acc_"):
        form = {"text": text, "verdict": "allow", "note": "", "account": odd}
        assert admin.post(TEMPLATES, data=form).status_code == 422
    page = html.unescape(admin.get(TEMPLATES).text)
    assert text in page
    assert "All accounts" in page
    oldest = html.unescape(admin.get(TEMPLATES, params={"before": "tpl_" + "0" * 26}).text)
    assert "No older templates" in oldest
    for row in service.sql("SELECT id FROM templates WHERE account_id IS NULL"):
        admin.post(f"{TEMPLATES}/{write_id(TEMPLATE, row['id'])}/remove")
    for path in (f"{NOBODY}/{'0' * 64}", f"x/{'0' * 64}", f"{caller.account_id}/zz"):
        assert admin.get(f"{CONTENT}/refusals/{path}").status_code == 404, path
    assert admin.post(f"{CONTENT}/refusals/x/{'0' * 64}/template", data=form).status_code == 404
    assert admin.post(f"{TEMPLATES}/x/remove").status_code == 404


def test_a_template_is_suggested_where_one_can_be_made() -> None:
    assert (
        suggest("Please pay 12.50 USD by 3/4/2030, 14:30.")
        == "Please pay {number} USD by {number}, {number}."
    )
    assert suggest("Dear Rudo, order 12 is here.") == "Dear {name}, order {number} is here."
    assert suggest("Too {odd to be} one 5") == "Too {odd to be} one 5"
    assert suggest("12") == "12"
