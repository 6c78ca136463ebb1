"""Requests from templates: a value fills its leaf and nothing else."""

import json
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.carriers.http.templates import BodyTree, HeaderTable, Leaf, LeafTable, RequestTemplate, UrlPath

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(TEXTS, TEXTS)
def test_json_holds_the_values_as_they_are(text: str, sender: str) -> None:
    body = BodyTree([{"text": "{text}", "more": {"from": "{sender}", "both": "{sender}: {text}"}}])
    template = RequestTemplate(path=UrlPath("/send"), body=body)
    request = template.fill("https://sms.example.com", {"text": text, "sender": sender}, {})
    assert json.loads(request.body) == [{"text": text, "more": {"from": sender, "both": f"{sender}: {text}"}}]


@given(TEXTS, TEXTS)
def test_forms_queries_and_paths_hold_the_values_as_they_are(text: str, number: str) -> None:
    template = RequestTemplate(
        path=UrlPath("/messages/{carrier_ref}.json"),
        query=LeafTable({"filter": "id={carrier_ref}"}),
        format="form",
        body=BodyTree({"Body": "{text}", "Fixed": "1"}),
    )
    request = template.fill("https://sms.example.com", {"text": text, "carrier_ref": number}, {})
    parts = urlsplit(request.url)
    assert parts.netloc == "sms.example.com"
    assert unquote(parts.path) == f"/messages/{number}.json"
    assert parts.path.count("/") == 2
    assert parse_qs(parts.query, keep_blank_values=True) == {"filter": [f"id={number}"]}
    fields = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=2)
    assert fields == [("Body", text), ("Fixed", "1")]


def test_a_placeholder_alone_keeps_its_type_and_an_empty_one_is_left_out() -> None:
    tree = BodyTree(
        {
            "number": "{sequence}",
            "text": "n{sequence}",
            "sender": "{sender}",
            "hooks": {"url": "{callback_url}"},
            "blank": "",
            "list": ["{sender}", "{sequence}"],
            "flag": True,
            "empty": {},
        }
    )
    filled: Any = tree.fill({"sequence": 7, "sender": "", "callback_url": ""})
    assert filled == {"number": 7, "text": "n7", "blank": "", "list": [7], "flag": True, "empty": {}}
    form = RequestTemplate(path=UrlPath(""), format="form", body=BodyTree({"flag": True, "n": "{sequence}"}))
    assert form.fill("https://sms.example.com", {"sequence": 7}, {}).body == b"flag=true&n=7"


@pytest.mark.parametrize("value", [".", "..", "../../elsewhere", "a/b?c#d%2F"])
def test_a_value_cannot_leave_its_place_in_a_path(value: str) -> None:
    filled = UrlPath("/messages/{carrier_ref}").fill({"carrier_ref": value})
    assert unquote(filled.removeprefix("/messages/")) == value
    assert filled.count("/") == 2
    assert filled.removeprefix("/messages/") not in {".", ".."}


def test_headers_of_the_profile_come_first_and_the_body_names_its_type() -> None:
    template = RequestTemplate(
        path=UrlPath("/x"), body=BodyTree({}), headers=HeaderTable({"X-Own": "{secret.key}"})
    )
    request = template.fill("https://sms.example.com", {"secret.key": "k"}, {"Authorization": "App k"})
    assert dict(request.headers) == {
        "Accept": "application/json",
        "Authorization": "App k",
        "X-Own": "k",
        "Content-Type": "application/json",
    }
    assert "secret" not in repr(request)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Leaf("{text"), "brace"),
        (lambda: Leaf("{Text}"), "brace"),
        (lambda: Leaf("x" * 501), "at most 500"),
        (lambda: Leaf(5), "write a text"),
        (lambda: UrlPath("messages"), "begin with a slash"),
        (lambda: UrlPath("/messages?x=1"), "query"),
        (lambda: LeafTable({"a": 1}), "a: write a text"),
        (lambda: HeaderTable({"X Own": "1"}), "no name of a header"),
        (lambda: RequestTemplate(path=UrlPath("/"), headers=HeaderTable({"X": "{text}"})), "headers may not"),
        (lambda: BodyTree("text"), "write a table or a list"),
        (lambda: BodyTree({"a": {"b": 1.5}}), "body.a.b"),
        (lambda: BodyTree([[[[[[[[["deep"]]]]]]]]]), "nested too deeply"),
        (lambda: BodyTree(["x"] * 101), "at most 100"),
        (lambda: RequestTemplate(method="GET", path=UrlPath("/"), body=BodyTree({})), "GET has no body"),
        (lambda: RequestTemplate(path=UrlPath("/"), format="form", body=BodyTree([])), "form has no"),
    ],
)
def test_templates_that_cannot_be(build: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        build()
