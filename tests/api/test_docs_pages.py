"""The guide and the reference of the API."""

import json
import re
from html.parser import HTMLParser
from typing import Any, Final

import httpx
import pytest
from starlette.applications import Starlette

from tests.support.processes.service import NO_TLS, Service
from tumira.api.docs.markdown import highlight
from tumira.api.docs.openapi import document
from tumira.api.docs.operations import guide, sections
from tumira.api.docs.pages import GUIDE, REFERENCE, DocsPages, SimulatedNumber, read_samples
from tumira.carriers.manage import keep_simulator, remove_carrier
from tumira.core.errors import all_refusals
from tumira.postgres.pool import Database

VOID: Final = frozenset(["link", "meta"])
BASE: Final = "https://sms.example"


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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def render(template: str, **values: Any) -> Page:
    numbers = [SimulatedNumber("9901", "The number is not in use.", "undelivered")]
    pages = DocsPages(Database("postgresql://nowhere"), BASE, numbers)
    return Page(pages._render_page(f"{template}.html.jinja", **values).plain.decode())


@pytest.fixture(scope="module")
def guide_page() -> Page:
    return render("guide")


@pytest.fixture(scope="module")
def reference_page() -> Page:
    return render("reference")


def get(service: Service, path: str, **headers: str) -> httpx.Response:
    with httpx.Client(base_url=service.base, trust_env=False, verify=NO_TLS) as client:
        return client.get(path, headers=headers)


@pytest.mark.parametrize("path", [GUIDE, REFERENCE])
def test_a_page_is_served_compressed_and_from_the_cache_of_the_browser(service: Service, path: str) -> None:
    answer = get(service, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["content-encoding"] == "gzip"
    assert get(service, path, **{"accept-encoding": "identity"}).text == answer.text
    unchanged = get(service, path, **{"if-none-match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # The service's own address, whatever the request says.
    assert f"{service.base}/api/v1" in answer.text
    assert get(service, path, host="evil.example").text == answer.text


@pytest.mark.parametrize("language", ["python", "javascript", "php"])
def test_the_guide_shows_the_client_for_each_language(guide_page: Page, language: str) -> None:
    assert read_samples()["client"][language].replace("http://127.0.0.1:8080", BASE) in guide_page.text


def test_a_page_asks_for_nothing_from_another_host(guide_page: Page, reference_page: Page) -> None:
    for page in (guide_page, reference_page):
        for _, address in page.addresses:
            assert address.startswith("#") or re.match(r"/[a-z]?", address), address
        assert not {"style", "iframe", "img", "form"} & set(page.tags)
        assert not {name for name in page.attributes if name == "style" or name.startswith("on")}


def test_every_link_leads_somewhere(guide_page: Page, reference_page: Page) -> None:
    for page in (guide_page, reference_page):
        assert len(set(page.ids)) == len(page.ids)
    for page in (guide_page, reference_page):
        for _, address in page.addresses:
            path, _, anchor = address.partition("#")
            target = {"": page, GUIDE: guide_page, REFERENCE: reference_page}.get(path)
            if anchor and target is not None:
                assert anchor in target.ids, address
    ways = {address for _, address in guide_page.addresses}
    assert {"/", "/dashboard", "/dashboard/keys", "/dashboard/webhooks", REFERENCE, "/content-policy"} <= ways
    assert GUIDE in {address for _, address in reference_page.addresses}


def test_nothing_points_into_the_repository(guide_page: Page, reference_page: Page) -> None:
    for page in (guide_page, reference_page):
        assert not re.search(r"repositor|\bdocs/\w+\.md|github", page.text, re.IGNORECASE)
        assert "127.0.0.1" not in page.text
        assert "$BASE_URL" not in page.text


def test_every_operation_field_example_code_and_section_is_shown(
    guide_page: Page, reference_page: Page
) -> None:
    root = json.loads(document())
    for path, methods in root["paths"].items():
        for operation in methods.values():
            assert operation["operationId"] in reference_page.ids
            assert root["servers"][0]["url"] + path in reference_page.text
            for status, response in operation["responses"].items():
                for example in response["content"]["application/json"]["examples"].values():
                    if int(status) < 300:
                        written = json.dumps(example["value"], indent=2, ensure_ascii=False)
                        assert written in reference_page.text
    assert f'curl "{BASE}/api/v1/balance"' in reference_page.text
    for schema in root["components"]["schemas"].values():
        for name in schema.get("properties", {}):
            assert re.search(rf"\b{name}\b", reference_page.text)
    for refusal in all_refusals():
        assert refusal.code in reference_page.ids
    titles = {section.slug for section in sections(guide())}
    assert {"authentication", "limits", "idempotency", "segments", "statuses", "errors"} <= titles
    assert titles <= set(guide_page.ids)


def test_numbers_for_tests_are_shown_while_the_simulator_is_a_carrier(service: Service) -> None:
    assert "Test numbers" not in get(service, GUIDE).text
    service.run(keep_simulator, 2775)
    page = get(service, GUIDE).text
    assert "<code>+263771209901</code>" in page
    assert "<code>+27821239901</code>" in page
    service.run(remove_carrier, "simulator")
    assert "Test numbers" not in get(service, GUIDE).text


async def test_the_guide_is_served_while_the_database_is_away() -> None:
    pages = DocsPages(Database("postgresql://nobody@127.0.0.1:1/nothing"), BASE, [])
    transport = httpx.ASGITransport(Starlette(routes=pages.routes()))
    async with httpx.AsyncClient(transport=transport, base_url=BASE, verify=NO_TLS) as client:
        answer = await client.get(GUIDE)
    assert (answer.status_code, "Quickstart" in answer.text) == (200, True)


def test_what_stands_in_json_cannot_become_markup() -> None:
    assert highlight({"a": '</code><script>"'}) == (
        '{\n  <span class="name">&#34;a&#34;</span>: '
        '<span class="string">&#34;&lt;/code&gt;&lt;script&gt;\\&#34;&#34;</span>\n}'
    )
