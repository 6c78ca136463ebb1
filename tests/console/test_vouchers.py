"""Operators issue vouchers once, see their codes once, and void them."""

import csv
import io
import re
from decimal import Decimal
from typing import Final

import httpx

from tests.support.console.operators import ACTOR, hidden, last_change, walk
from tests.support.identity.customers import link, words
from tests.support.identity.people import alert, at_once, count, goes_to
from tests.support.processes.service import Service
from tumira.topups.voucher_pins import Issuer, hash_code, read_pin

VOUCHERS: Final = "/operator/vouchers"
FORM: Final = {"amount": "12.5", "count": "3", "note": "For the shop in Gweru", "expires": "2099-12-31"}
CODE: Final = re.compile(r"TMR(?:-[0-9A-Z]{4}){4}")


def codes_of(page: httpx.Response) -> list[str]:
    return re.findall(rf"<li>({CODE.pattern})</li>", page.text)


def test_vouchers_are_issued_once_and_their_codes_shown_once(service: Service, admin: httpx.Client) -> None:
    asked = admin.post(f"{VOUCHERS}/confirm", data=FORM)
    said = words(asked.text)
    for part in ("Issue 3 vouchers?", "US$12.50", "Total US$37.50", "2099-12-31", FORM["note"]):
        assert part in said, part
    assert count(service, "SELECT count(*) FROM vouchers") == 0
    fields = hidden(asked)
    answers = at_once([lambda: admin.post(VOUCHERS, data=fields)] * 4)
    (shown,) = [one for one in answers if one.status_code == 200]
    assert {goes_to(one) for one in answers if one is not shown} == {f"{VOUCHERS}?done=again"}
    assert shown.headers["cache-control"] == "no-store"
    codes = codes_of(shown)
    rows = service.sql("SELECT code_sha256, amount, note, issued_by FROM vouchers ORDER BY id")
    pins = [read_pin(Issuer.OWN, code) for code in codes]
    assert [row["code_sha256"] for row in rows] == [hash_code(pin) for pin in pins if pin is not None]
    assert {tuple(row)[1:] for row in rows} == {(Decimal("12.5"), FORM["note"], ACTOR)}
    change = last_change(service)
    assert (change["what"], change["detail"]) == ("vouchers issued", f"3 of 12.5000 USD: {FORM['note']}")
    assert change["address"] is not None

    again = admin.get(f"{VOUCHERS}?done=again").text
    assert "already issued" in words(again)
    assert not CODE.search(again)
    # What the page shows can be downloaded from it, and nothing else.
    form = {"codes": " ".join([*codes, "TMR-0000-0000-0000-0000", "=1+1"])}
    file = admin.post(f"{VOUCHERS}/download", data=form)
    assert file.headers["content-disposition"].startswith("attachment; ")
    table = list(csv.DictReader(io.StringIO(file.text)))
    assert [row["code"] for row in table] == codes
    assert {(row["amount_usd"], row["valid_until"]) for row in table} == {("12.5000", "2099-12-31")}


def test_what_cannot_be_is_refused_beside_its_field(service: Service, admin: httpx.Client) -> None:
    before = count(service, "SELECT count(*) FROM vouchers")
    for name, values in {
        "amount": ["", "4.99", "10001", "5.001", "x"],
        "count": ["", "0", "1001", "1e2"],
        "note": ["", "x" * 201],
        "expires": ["2020-01-01", "tomorrow"],
    }.items():
        for value in values:
            for path in (f"{VOUCHERS}/confirm", VOUCHERS):
                refused = admin.post(path, data=FORM | {"press": "prs_" + "0" * 26, name: value})
                assert refused.status_code == 422, (name, value)
                assert f'href="#{name}"' in refused.text, (name, value)
    assert "open for too long" in alert(admin.post(VOUCHERS, data=FORM | {"press": "prs_" + "0" * 26}))
    assert count(service, "SELECT count(*) FROM vouchers") == before


def test_an_unused_voucher_is_voided_with_a_reason(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    form = FORM | {"count": "1", "expires": "", "note": "One too many"}
    admin.post(VOUCHERS, data=hidden(admin.post(f"{VOUCHERS}/confirm", data=form)))
    (row,) = service.sql("SELECT tail FROM vouchers WHERE note = 'One too many'")
    path = link(admin.get(VOUCHERS).text, f"…{row['tail']}")
    assert path is not None
    assert "no end" in words(admin.get(path).text)
    assert "Void voucher" not in viewer.get(path).text
    assert 'href="#note"' in admin.post(f"{path}/void", data={"note": ""}).text
    assert goes_to(admin.post(f"{path}/void", data={"note": "Lost"})) == f"{path}?done=void"
    change = last_change(service)
    assert (change["actor"], change["what"]) == (ACTOR, "voucher voided")
    page = words(admin.get(f"{path}?done=void").text)
    assert "The voucher is void." in page
    assert "Lost" in page
    assert "This voucher is already void" in alert(admin.post(f"{path}/void", data={"note": "Lost"}))
    for name in ("vch_" + "0" * 26, "nothing"):
        assert admin.get(f"{VOUCHERS}/{name}").status_code == 404


def test_a_long_list_is_turned_page_by_page(service: Service, admin: httpx.Client) -> None:
    form = FORM | {"count": "120", "note": "Paged"}
    admin.post(VOUCHERS, data=hidden(admin.post(f"{VOUCHERS}/confirm", data=form)))
    seen = walk(admin, VOUCHERS, "Older", r"/operator/vouchers/(vch_\w+)\"")
    assert len(seen) == len(set(seen)) == count(service, "SELECT count(*) FROM vouchers")
