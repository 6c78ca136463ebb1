"""A person who uses pages with a mouse, by keyboard alone, or in a browser that runs no scripts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest
from playwright.sync_api import Download, FilePayload, Locator, Page, expect

from tests.support.browser import DESKTOP, PHONE, SHIFT_MAX, Opener, Viewport, inspect

TABS_MAX: Final = 250
CHOICES_MAX: Final = 20

# The key that leads from the focus towards an element. On a fresh page Tab goes to the first link, which
# skips to the content.
_NEXT_KEY: Final = """(element) => {
  const at = document.activeElement;
  if (at === element) return null;
  if (!at || at === document.body) return "Tab";
  if (at.matches(".skip") && document.querySelector("main").contains(element)) return "Enter";
  return at.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING ? "Shift+Tab" : "Tab";
}"""
# What is wrong with the focus: nobody sees it, or something covers it.
_FAULTS: Final = """(element) => {
  const faults = [];
  const style = getComputedStyle(element);
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) faults.push("no outline");
  const box = element.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + Math.min(box.height / 2, 20)];
  const on_top = document.elementFromPoint(x, y);
  if (!on_top) faults.push("outside of the screen");
  else if (!element.contains(on_top) && !on_top.contains(element) && ![...element.labels ?? []].some(
    (label) => label.contains(on_top))) faults.push("covered by " + on_top.cloneNode(false).outerHTML);
  return faults;
}"""


@dataclass(frozen=True, slots=True)
class Way:
    """A screen, and how it is used."""

    name: str
    viewport: Viewport
    javascript: bool = True
    keyboard: bool = False


WAYS: Final = tuple(
    Way(f"{screen} {how}", viewport, how != "without scripts", how == "by keyboard")
    for screen, viewport in (("phone", PHONE), ("desk", DESKTOP))
    for how in ("by mouse", "by keyboard", "without scripts")
)


def ways(*usual: str) -> pytest.MarkDecorator:
    """Run a journey in every way; those that are not named here run in the long suite."""
    assert set(usual) <= {way.name for way in WAYS}
    return pytest.mark.parametrize(
        "way",
        [pytest.param(way, id=way.name, marks=() if way.name in usual else pytest.mark.long) for way in WAYS],
    )


class Hand:
    """Presses, fills and chooses on a page in one way; by keyboard it has to get there with Tab."""

    def __init__(self, page: Page, way: Way) -> None:
        self.page = page
        self.way = way
        self.main = page.get_by_role("main")

    @classmethod
    def open(cls, open_page: Opener, base: str, way: Way, **options: Any) -> Self:
        page = open_page(base, viewport=way.viewport, javascript=way.javascript, **options)
        if way.javascript:
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        return cls(page, way)

    def reach(self, target: Locator) -> None:
        """Move the focus to an element, by Tab and Shift+Tab; it must be seen there."""
        expect(target).to_be_visible()
        for _ in range(TABS_MAX):
            key = target.evaluate(_NEXT_KEY)
            if key is None:
                break
            self.page.keyboard.press(key)
        else:
            pytest.fail(f"the keyboard does not reach {target}", pytrace=False)
        faults = target.evaluate(_FAULTS)
        assert not faults, f"{target}: {faults}"

    def press(self, target: Locator) -> None:
        if self.way.keyboard:
            self.reach(target)
            self.page.keyboard.press("Enter")
        else:
            target.click()

    def button(self, name: str, within: Locator | None = None) -> None:
        self.press((within or self.page).get_by_role("button", name=name, exact=True))

    def link(self, name: str, within: Locator | None = None) -> None:
        self.press((within or self.page).get_by_role("link", name=name, exact=True).first)

    def unfold(self, text: str, within: Locator | None = None) -> None:
        """Open what is folded under a line."""
        self.press((within or self.page).locator("summary", has_text=text).first)

    def field(self, label: str) -> Locator:
        return self.page.get_by_label(label, exact=True)

    def fill(self, label: str | Locator, text: str) -> None:
        target = self.field(label) if isinstance(label, str) else label
        if not self.way.keyboard:
            target.fill(text)
            return
        self.reach(target)
        if target.get_attribute("type") == "date":
            # The parts are typed one after the other, in the order in which Chromium shows them.
            year, month, day = text.split("-")
            self.page.keyboard.type(month + day + year)
        elif target.get_attribute("type") == "time":
            hours, minutes = text.split(":")
            self.page.keyboard.type(f"{int(hours) % 12 or 12:02}{minutes}{'AP'[int(hours) >= 12]}")
        else:
            self.page.keyboard.press("Control+a")
            self.page.keyboard.press("Delete")
            self.page.keyboard.type(text)
        expect(target).to_have_value(text)

    def submit(self, label: str, text: str) -> None:
        """Fill the last field of a form, and send it with Enter."""
        self.fill(label, text)
        self.page.keyboard.press("Enter")

    def select(self, label: str | Locator, option: str) -> None:
        target = self.field(label) if isinstance(label, str) else label
        if not self.way.keyboard:
            target.select_option(option)
            return
        self.reach(target)
        chosen = target.locator("option:checked")
        # A letter that is typed leads to the next option that begins with it.
        if chosen.inner_text() != option:
            self.page.keyboard.type(option)
        expect(chosen).to_have_text(option)

    def tick(self, target: Locator, *, checked: bool = True) -> None:
        if not self.way.keyboard:
            target.set_checked(checked)
            return
        if target.is_checked() != checked:
            self.reach(target)
            self.page.keyboard.press("Space")
        expect(target).to_be_checked(checked=checked)

    def choose(self, target: Locator) -> None:
        """Choose one of several; Tab gets to the group, arrows move within it."""
        if not self.way.keyboard:
            target.check()
            return
        group = self.page.locator(f"input[type=radio][name={target.get_attribute('name')}]")
        chosen = group.and_(self.page.locator(":checked"))
        self.reach(chosen if chosen.count() else group.first)
        self.page.keyboard.press("Space")
        for _ in range(CHOICES_MAX):
            if target.is_checked():
                return
            self.page.keyboard.press("ArrowDown")
        pytest.fail(f"the arrows do not reach {target}", pytrace=False)

    def choose_file(self, label: str, file: FilePayload) -> None:
        if self.way.keyboard:
            with self.page.expect_file_chooser() as choosing:
                self.press(self.field(label))
            choosing.value.set_files(file)
        else:
            self.field(label).set_input_files(file)

    def download(self, target: Locator) -> Path:
        with self.page.expect_download() as downloading:
            self.press(target)
        done: Download = downloading.value
        return Path(done.path())

    def _open_menu(self) -> Locator:
        """Open the navigation, which is behind a button on a phone."""
        menu = self.page.get_by_role("button", name="Menu")
        if menu.is_visible():
            self.press(menu)
        return self.page.locator("nav.side")

    def go_to(self, name: str) -> None:
        self.link(name, self._open_menu())
        self.expect_heading(name)

    def sign_out(self) -> None:
        self.button("Sign out", self._open_menu())

    def inspect(self, name: str, shift_max: float = SHIFT_MAX) -> None:
        """Inspect the page; by keyboard it looks as by mouse, so that is left out."""
        if not self.way.keyboard:
            inspect(self.page, name, shift_max)

    def expect_heading(self, text: str) -> None:
        expect(self.page.get_by_role("heading", level=1)).to_have_text(text)

    def expect_told(self, text: str) -> None:
        """Expect that the page says that something was done, where it is seen without scrolling."""
        expect(self.page.get_by_role("status").filter(has_text=text).first).to_be_in_viewport()

    def expect_refused(self, text: str) -> None:
        alert = self.page.get_by_role("alert")
        expect(alert).to_contain_text(text)
        expect(alert).to_be_in_viewport()
