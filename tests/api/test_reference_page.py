"""The reference page."""

import json
import re
from html.parser import HTMLParser
from typing import Final

import httpx
import pytest

from tests.support.processes.service import NO_TLS, Service
from tumira.api.docs.openapi import document
from tumira.api.docs.operations import guide, sections
from tumira.api.docs.page import STYLESHEET_PATH, highlight, reference_page, stylesheet
from tumira.core.errors import all_refusals

VOID: Final = frozenset(["link", "meta"])


class Page(HTMLParser):
    """Reads a page strictly: what is opened is closed, in order, and no id stands twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[tuple[str, str]] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "srcset", "action", "data", "poster"}:
                self.addresses.append((tag, value or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(reference_page())


def test_it_is_served_with_its_stylesheet_and_nothing_else_is_allowed(service: Service) -> None:
    with httpx.Client(base_url=service.base, trust_env=False, verify=NO_TLS) as client:
        answer = client.get("/docs")
        style = client.get(STYLESHEET_PATH)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.text == reference_page()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "style-src 'self'" in policy
    assert "unsafe" not in policy
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert style.content == stylesheet()


def test_it_asks_for_nothing_from_another_host_and_keeps_to_its_own_policy(page: Page) -> None:
    assert [address for tag, address in page.addresses if tag == "link"] == [STYLESHEET_PATH]
    for _, address in page.addresses:
        assert address.startswith("#") or re.match(r"/[a-z]", address), address
    assert "url(" not in stylesheet().decode()
    assert "@import" not in stylesheet().decode()
    assert not {"script", "style", "iframe", "img", "form"} & set(page.tags)
    assert not {name for name in page.attributes if name == "style" or name.startswith("on")}


def test_every_link_on_it_leads_somewhere(page: Page) -> None:
    assert len(set(page.ids)) == len(page.ids)
    assert {address[1:] for _, address in page.addresses if address.startswith("#")} <= set(page.ids)


def test_every_operation_field_example_code_and_section_is_on_it(page: Page) -> None:
    root = json.loads(document())
    for path, methods in root["paths"].items():
        for operation in methods.values():
            assert operation["operationId"] in page.ids
            assert root["servers"][0]["url"] + path in page.text
            assert operation["x-codeSamples"][0]["source"] in page.text
            for status, response in operation["responses"].items():
                for example in response["content"]["application/json"]["examples"].values():
                    if int(status) < 300:
                        assert json.dumps(example["value"], indent=2, ensure_ascii=False) in page.text
    for schema in root["components"]["schemas"].values():
        for name in schema.get("properties", {}):
            assert re.search(rf"\b{name}\b", page.text)
    for refusal in all_refusals():
        assert refusal.code in page.ids
    titles = {section.slug for section in sections(guide())}
    assert {"authentication", "limits", "idempotency", "segments", "statuses", "errors"} <= titles
    assert titles <= set(page.ids)


def test_what_stands_in_json_cannot_become_markup() -> None:
    assert highlight({"a": '</code><script>"'}) == (
        '{\n  <span class="name">&#34;a&#34;</span>: '
        '<span class="text">&#34;&lt;/code&gt;&lt;script&gt;\\&#34;&#34;</span>\n}'
    )
