"""The browser harness notices errors, foreign requests, overflow, layout shift and axe violations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import (
    PHONE,
    Opener,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
    take_faults,
    wire_bytes,
)

GOOD: Final = """<!doctype html><html lang="en"><head><title>Good</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width"><script src="/script"></script></head>
<body><main><h1>Good</h1><noscript><p>No scripts</p></noscript></main></body></html>"""


class Answers(ThreadingHTTPServer):
    """A server of pages in which something is wrong."""

    daemon_threads = True

    def __init__(self, pages: dict[str, str | int]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.pages = pages
        self.base = f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path, "")
        status, body = (page, b"-") if isinstance(page, int) else (HTTPStatus.OK, page.encode())
        script = self.path.startswith("/script")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/javascript" if script else "text/html; charset=utf-8")
        self.send_header("Cache-Control", "max-age=3600" if script else "no-store")
        if not script:
            self.send_header("Content-Security-Policy", "script-src 'self'")
        if status == HTTPStatus.SEE_OTHER:
            self.send_header("Location", "/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(**pages: str | int) -> Iterator[Answers]:
    known: dict[str, str | int] = {"": GOOD, "script": ""}
    with Answers({f"/{name}": page for name, page in (known | pages).items()}) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("page", "script", "noticed"),
    [
        ("", "throw new Error('thrown')", ["an error that no script caught: thrown"]),
        ("", "console.error('said')", ["on the console: said"]),
        ("<script>1</script>", "", ["on the console: Executing inline script violates"]),
        (
            "<img alt='' src='http://198.51.100.1/x.png'>",
            "",
            ["a request to another host: http://198.51.100.1/x.png", "on the console: "],
        ),
        ("<img alt='' src='/missing'>", "", ["404 from GET "]),
        ("<img alt='' src='/broken'>", "", ["503 from GET "]),
    ],
    ids=["thrown", "console", "policy", "foreign", "missing", "broken"],
)
def test_what_goes_wrong_on_a_page_is_noticed(
    open_page: Opener, page: str, script: str, noticed: Sequence[str]
) -> None:
    with serving(page=GOOD + page, script=script, missing=404, broken=503) as server:
        opened = open_page(server.base)
        opened.goto("/page")
        faults = take_faults(opened)
    assert len(faults) == len(noticed), faults
    assert all(fault.startswith(start) for fault, start in zip(faults, noticed, strict=True)), faults


def test_what_was_noticed_fails_the_test_at_its_end(open_page: Opener) -> None:
    with serving(broken=500) as server:
        open_page(server.base).goto("/broken")
        with pytest.raises(pytest.fail.Exception, match="500 from GET http://"):
            open_page.close()


def test_a_refused_form_is_a_page_like_others(open_page: Opener) -> None:
    with serving(refused=422) as server:
        page = open_page(server.base)
        page.goto("/refused")
        page.wait_for_load_state("networkidle")
        assert take_faults(page) == ()


def test_without_scripts_none_runs_before_or_after_axe(open_page: Opener) -> None:
    with serving(script="document.title = 'ran'") as server:
        page = open_page(server.base, javascript=False)
        for _ in range(2):
            page.goto("/")
            expect(page.locator("noscript p")).to_be_visible()
            check_accessibility(page)
            expect(page).to_have_title("Good")


def test_axe_names_the_rule_and_the_element(open_page: Opener) -> None:
    with serving(page=GOOD + "<main><img src='data:,'></main>") as server:
        page = open_page(server.base)
        page.goto("/page")
        with pytest.raises(pytest.fail.Exception, match=r"(?s)image-alt: .*<img src=\"data:,\">"):
            check_accessibility(page)


def test_a_second_visit_counts_only_what_is_not_kept(open_page: Opener) -> None:
    with serving(script="//" + "x" * 5_000, moved=303) as server:
        page = open_page(server.base)
        page.goto("/")
        first = wire_bytes(page)
        page.goto("/")
        second = wire_bytes(page)
        page.goto("/moved")
        redirected = wire_bytes(page)
    assert first - second > 5_000
    assert len(GOOD) < second < len(GOOD) + 500
    assert second + 100 < redirected < second + 500


def test_what_is_too_wide_is_named(open_page: Opener) -> None:
    wide = "<p id='wide' style='width: 3000px'>wide</p>"
    inside = "<div style='overflow-x: auto'><p id='inside' style='width: 4000px'>inside</p></div>"
    with serving(wide=GOOD + inside + wide, inside=GOOD + inside) as server:
        page = open_page(server.base, viewport=PHONE)
        page.goto("/inside")
        assert overflows(page) == []
        page.goto("/wide")
        first, widest = overflows(page)
    assert first.startswith("the document is 30")
    assert 'id="wide"' in widest


def test_a_page_that_jumps_is_measured(open_page: Opener) -> None:
    script = """setTimeout(() => {
      const late = document.createElement("div");
      late.style.height = "300px";
      document.body.prepend(late);
      document.title = "jumped";
    }, 100);"""
    with serving(page=GOOD + "<p>below</p>" * 20, script=script) as server:
        page = open_page(server.base, viewport=PHONE)
        page.goto("/page")
        expect(page).to_have_title("jumped")
        assert layout_shift(page) > 0.1


def test_pictures_are_taken_where_they_are_wanted(
    open_page: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        page = open_page(server.base, viewport=PHONE, dark=True)
        page.goto("/")
        monkeypatch.delenv("TUMIRA_SCREENSHOTS", raising=False)
        screenshot(page, "unwanted")
        monkeypatch.setenv("TUMIRA_SCREENSHOTS", str(tmp_path))
        screenshot(page, "wanted")
    assert [file.name for file in tmp_path.iterdir()] == ["wanted-360-dark.png"]
