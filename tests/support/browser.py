"""A real Chromium for tests, which records errors of pages."""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    ConsoleMessage,
    Page,
    Request,
    Response,
    WebError,
    expect,
    sync_playwright,
)

from tests.support.identity.people import SESSION
from tests.support.npm import node_with

# The first has no window at all, and opens a page with a fifth of the work.
PROGRAMS: Final = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
ANSWER_S: Final = 20
WAIT_MS: Final = 30_000
QUIET_TRIES: Final = 1_500
QUIET_MS: Final = 20
WIDEST_MAX: Final = 5
SERVER_ERROR: Final = 500
CLIENT_ERROR: Final = 400

# As a phone has it at the edge of a 3G network.
SLOW_LINE: Final = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 50_000,
    "uploadThroughput": 50_000,
}

# So little at a time that a page is seen to come in.
PIECE_OCTETS: Final = 256
PIECE_S: Final = 0.02

AXE_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURS: Final = "cat.color"
SHIFT_MAX: Final = 0.01

_AXE: Final = Path(__file__).parent / "axe"
# Answers are judged as such: one of 422 to a form is a page like others, although Chromium complains of it.
_ANSWERED: Final = "Failed to load resource: the server responded with a status of "


@dataclass(frozen=True, slots=True)
class Viewport:
    width: int
    height: int
    scale: int = 1
    touch: bool = False


NARROW: Final = Viewport(320, 640, scale=2, touch=True)
PHONE: Final = Viewport(360, 740, scale=2, touch=True)
DESKTOP: Final = Viewport(1280, 800)
WIDE: Final = Viewport(1920, 1080)


@cache
def _chromium() -> str | None:
    """Return a Chromium that starts: on some systems the name only says how to install one."""
    for program in filter(None, map(shutil.which, PROGRAMS)):
        try:
            subprocess.run([program, "--version"], capture_output=True, check=True, timeout=ANSWER_S)
        except (OSError, subprocess.SubprocessError):
            continue
        return program
    return None


@contextmanager
def run_browser() -> Iterator[Browser]:
    """Run Chromium without a window; skip the test where there is none.

    While it runs, this thread has a running event loop. `postgres.complete`, and with it `Service`, can live
    with that; an asynchronous test or fixture cannot, so a file with browser tests has none.
    """
    program = _chromium()
    if program is None:
        pytest.skip(
            "not tried in a browser: install Chromium (`chromium-headless-shell` or `chromium` in PATH)"
        )
    # Whatever a page or the browser itself asks for: nothing leaves this machine.
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root.
        browser = playwright.chromium.launch(
            executable_path=program, args=arguments, chromium_sandbox=os.geteuid() != 0
        )
        try:
            yield browser
        finally:
            browser.close()


class _Wire:
    """Counts what comes over the wire for the document that a page shows, and for all that it asks for."""

    def __init__(self, devtools: CDPSession) -> None:
        self._devtools = devtools
        self._sizes: dict[str, int] = {}
        self._loader = ""
        self._waiting: dict[str, str] = {}
        self._frame = devtools.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        devtools.on("Network.requestWillBeSent", self._asked)
        devtools.on("Network.loadingFinished", self._finished)
        devtools.on("Network.loadingFailed", self._failed)
        devtools.send("Network.enable")

    def _asked(self, event: dict[str, Any]) -> None:
        request = event["requestId"]
        redirected = event.get("redirectResponse")
        if redirected is not None:
            self._sizes[request] = self._sizes.get(request, 0) + int(redirected["encodedDataLength"])
        elif request == event["loaderId"] and event["frameId"] == self._frame:
            self._loader = request
            self._sizes.clear()
            self._waiting.clear()
        # The page before may still ask for something while it is left; no end of that is told.
        if event["loaderId"] != self._loader:
            return
        self._sizes.setdefault(request, 0)
        # A stream of events has no end to wait for, and of a page's icon that is in the cache none is told.
        if event.get("type") not in {"EventSource", "Other"}:
            self._waiting[request] = event["request"]["url"]

    def _finished(self, event: dict[str, Any]) -> None:
        self._waiting.pop(event["requestId"], None)
        # What the page before had asked for is not known any more.
        if event["requestId"] in self._sizes:
            self._sizes[event["requestId"]] += int(event["encodedDataLength"])

    def _failed(self, event: dict[str, Any]) -> None:
        self._waiting.pop(event["requestId"], None)

    def total(self, page: Page) -> int:
        """Wait until all that was asked for has come, and return the bytes."""
        page.wait_for_load_state()
        for _ in range(QUIET_TRIES):
            # Its answer comes after the events before it.
            self._devtools.send("Network.enable")
            if not self._waiting:
                return sum(self._sizes.values())
            page.wait_for_timeout(QUIET_MS)
        raise AssertionError(f"these did not come to an end: {sorted(self._waiting.values())}")


@dataclass(frozen=True, slots=True)
class _View:
    """What is known of a page that a test opened."""

    viewport: Viewport
    javascript: bool
    dark: bool
    devtools: CDPSession
    wire: _Wire
    faults: list[str]

    def allow_scripts(self, *, allowed: bool) -> None:
        self.devtools.send("Emulation.setScriptExecutionDisabled", {"value": not allowed})


_views: Final[WeakKeyDictionary[Page, _View]] = WeakKeyDictionary()


class _Watch:
    """Notes what goes wrong in a context, on whichever of its pages."""

    def __init__(self, hosts: frozenset[str]) -> None:
        self._hosts = hosts
        self.faults: list[str] = []

    def follow(self, context: BrowserContext) -> None:
        context.on("weberror", self._error)
        context.on("console", self._console)
        context.on("request", self._request)
        context.on("response", self._response)

    def _error(self, error: WebError) -> None:
        self.faults.append(f"an error that no script caught: {error.error}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_ANSWERED):
            self.faults.append(f"on the console: {message.text}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.netloc and address.netloc not in self._hosts:
            self.faults.append(f"a request to another host: {request.url}")

    def _response(self, response: Response) -> None:
        bad = SERVER_ERROR if response.request.is_navigation_request() else CLIENT_ERROR
        if response.status >= bad:
            self.faults.append(f"{response.status} from {response.request.method} {response.url}")

    def second_page(self, page: Page) -> None:
        self.faults.append(f"a second page, whose scripts would run: {page.url}")


class Opener:
    """Opens the pages of one test, each as a customer with a browser of their own."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._opened: list[tuple[Page, _Watch]] = []

    def __call__(
        self,
        base: str,
        *,
        viewport: Viewport = DESKTOP,
        javascript: bool = True,
        dark: bool = False,
        also: Sequence[str] = (),
    ) -> Page:
        """Open an empty page on `base`; it may ask nobody but that host and those of `also`."""
        context = self._browser.new_context(
            base_url=base,
            viewport={"width": viewport.width, "height": viewport.height},
            device_scale_factor=viewport.scale,
            is_mobile=viewport.touch,
            has_touch=viewport.touch,
            color_scheme="dark" if dark else "light",
            # A page must not look different where the machine of the test stands elsewhere.
            locale="en-GB",
            timezone_id="Africa/Harare",
        )
        context.set_default_timeout(WAIT_MS)
        watch = _Watch(frozenset(urlsplit(address).netloc for address in (base, *also)))
        watch.follow(context)
        page = context.new_page()
        self._opened.append((page, watch))
        devtools = context.new_cdp_session(page)
        view = _View(viewport, javascript, dark, devtools, _Wire(devtools), watch.faults)
        _views[page] = view
        if not javascript:
            # Not by the context, where it is for good: axe runs as a script, after the page's own could not.
            view.allow_scripts(allowed=False)
            context.on("page", watch.second_page)
        return page

    def close(self) -> None:
        """Close all, and fail the test if something went wrong on one of them."""
        faults: list[str] = []
        for page, watch in self._opened:
            if not page.is_closed():
                # Its answer comes after the events before it.
                page.evaluate("0")
            page.context.close()
            faults.extend(watch.faults)
        self._opened.clear()
        if faults:
            pytest.fail("The browser noticed:\n" + "\n".join(faults), pytrace=False)


def take_faults(page: Page) -> Sequence[str]:
    """Return what went wrong so far, for a test that provokes it; it fails the test no more."""
    page.evaluate("0")
    faults = _views[page].faults
    taken = tuple(faults)
    faults.clear()
    return taken


def bring_session(page: Page, base: str, token: str) -> None:
    """Let the page be that of a customer who is signed in."""
    page.context.add_cookies([{"name": SESSION, "value": token, "url": base, "sameSite": "Lax"}])


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def show_as(page: Page, viewport: Viewport, *, dark: bool) -> None:
    """Show the page on another screen, without loading it again."""
    page.set_viewport_size({"width": viewport.width, "height": viewport.height})
    page.emulate_media(color_scheme="dark" if dark else "light")
    _views[page] = replace(_views[page], viewport=viewport, dark=dark)


def slow_down(page: Page) -> None:
    """Give the page a slow line from now on, on which what comes late is seen to come late."""
    _views[page].devtools.send("Network.emulateNetworkConditions", SLOW_LINE)


def load_afresh(page: Page) -> None:
    """Let each page that is shown be the first that is visited: nothing comes from the cache."""
    _views[page].devtools.send("Network.setCacheDisabled", {"cacheDisabled": True})


class _Trickle:
    """Passes connections on to a service, whose answers it lets through piece by piece."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.ready = threading.Event()
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self._ended.wait()
        server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far_writer, 0))
                both.create_task(self._copy(far_reader, writer, PIECE_S))
        except* (OSError, asyncio.CancelledError):
            # One of the two has gone; so does the other.
            pass
        finally:
            far_writer.transport.abort()
            writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause_s: float) -> None:
        while data := await reader.read(PIECE_OCTETS):
            writer.write(data)
            await asyncio.sleep(pause_s)
        raise ConnectionError


@contextmanager
def trickling(base: str) -> Iterator[str]:
    """Give an address at which the answers of a service come piece by piece."""
    port = urlsplit(base).port
    assert port is not None
    line = _Trickle(port)
    thread = threading.Thread(target=line.run)
    thread.start()
    assert line.ready.wait(ANSWER_S)
    try:
        yield f"http://127.0.0.1:{line.port}"
    finally:
        line.end()
        thread.join()


def wire_bytes(page: Page) -> int:
    """Return the bytes that came over the wire since the last navigation began, redirects included."""
    return _views[page].wire.total(page)


def page_height(page: Page) -> int:
    """Return how tall the whole page is, in CSS pixels."""
    return int(_evaluate(page, "document.documentElement.scrollHeight"))


def screenshot(page: Page, name: str) -> None:
    """Write the whole page as a picture into the directory `TUMIRA_SCREENSHOTS`, if that is set."""
    directory = os.environ.get("TUMIRA_SCREENSHOTS")
    if directory:
        view = _views[page]
        file = f"{name}-{view.viewport.width}-{'dark' if view.dark else 'light'}.png"
        page.screenshot(path=Path(directory) / file, full_page=True, animations="disabled")


def _evaluate(page: Page, *scripts: str, argument: Any = None) -> Any:
    """Run scripts of the test, also on a page whose own are not run; return what the last one gives."""
    view = _views[page]
    if not view.javascript:
        view.allow_scripts(allowed=True)
    try:
        return [page.evaluate(script, argument) for script in scripts][-1]
    finally:
        if not view.javascript:
            view.allow_scripts(allowed=False)


_SHIFT: Final = """() => new Promise((resolve) => {
  const entries = [];
  const observer = new PerformanceObserver((list) => entries.push(...list.getEntries()));
  observer.observe({ type: "layout-shift", buffered: true });
  observer.observe({ type: "first-input", buffered: true });
  // What was buffered is handed over in a task of its own, at the latest after the next frame.
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
    entries.push(...observer.takeRecords());
    observer.disconnect();
    // Chromium takes it for input, too, that a phone's screen is fitted to the page at first.
    const touched = entries.some((entry) => entry.entryType === "first-input");
    const shifts = entries.filter((entry) => entry.entryType === "layout-shift");
    const jumps = shifts.filter((shift) => !(touched && shift.hadRecentInput));
    resolve(jumps.reduce((total, shift) => total + shift.value, 0));
  })));
})"""


def layout_shift(page: Page) -> float:
    return float(_evaluate(page, _SHIFT))


_OVERFLOW: Final = """([width, most]) => {
  const root = document.documentElement;
  if (root.scrollWidth <= width) return [];
  const scrolls = (element) => {
    for (let at = element.parentElement; at && at !== document.body && at !== root; at = at.parentElement) {
      if (getComputedStyle(at).overflowX !== "visible") return true;
    }
    return false;
  };
  const edge = (element) => element.getBoundingClientRect().right + scrollX;
  return [`the document is ${root.scrollWidth} wide instead of ${width}`].concat(
    [...document.body.querySelectorAll("*")]
      .filter((element) => edge(element) > width && !scrolls(element))
      .sort((one, other) => edge(other) - edge(one))
      .slice(0, most)
      .map((element) => `${Math.round(edge(element))}: ${element.cloneNode(false).outerHTML.slice(0, 200)}`),
  );
}"""


def overflows(page: Page) -> Sequence[str]:
    """Return nothing if the page fits its screen in width, else by how much not, and the widest elements."""
    found: list[str] = _evaluate(page, _OVERFLOW, argument=[_views[page].viewport.width, WIDEST_MAX])
    return found


# All rules of the tags, also those which axe leaves out unless asked, such as the size of what is tapped.
_JUDGE: Final = """async ([tags, category]) => {
  for (const animation of document.getAnimations()) {
    // One without an end cannot be finished.
    try { animation.finish(); } catch {}
  }
  const left = ["experimental", "deprecated"];
  const rules = axe.getRules(tags).filter((rule) =>
    !left.some((tag) => rule.tags.includes(tag)) && (category === null || rule.tags.includes(category)));
  const judged = await axe.run(document, {
    runOnly: { type: "rule", values: rules.map((rule) => rule.ruleId) },
    resultTypes: ["violations"],
    // Stylesheets would be fetched and parsed for a rule that is experimental.
    preload: false,
  });
  return judged.violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${rule.help}\\n  ${node.html}\\n  ${node.failureSummary}`));
}"""


@cache
def _axe() -> str:
    return (node_with(_AXE).folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def check_accessibility(page: Page, category: str | None = None) -> None:
    """Fail if axe finds a violation; skip the test where axe is missing.

    A large page takes seconds; where only its colours are in question, `COLOURS` as the category is quicker.
    """
    # As a script of the test, not of the page, whose Content-Security-Policy would refuse it. It is large, so
    # a page that is judged twice gets it once.
    loads = () if _evaluate(page, "typeof axe === 'object'") else (_axe(),)
    found: list[str] = _evaluate(page, *loads, _JUDGE, argument=[AXE_TAGS, category])
    if found:
        pytest.fail(f"axe found {len(found)} on {page.url}:\n" + "\n".join(found), pytrace=False)


def inspect(page: Page, name: str, shift_max: float = SHIFT_MAX) -> None:
    """Hold a page in the middle of a journey to what `test_every_page.py` holds every route to."""
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert not overflows(page)
    assert layout_shift(page) <= shift_max
    check_accessibility(page)
    screenshot(page, name)
