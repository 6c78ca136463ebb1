"""Texts of pages are marked for translation, and can be listed."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from jinja2 import Environment, nodes

from scripts.catalogue import catalogue

PACKAGE: Final = Path(__file__).resolve().parents[2] / "tumira"
# The icons have no text, and the reference is written for developers in English.
TEMPLATES: Final = sorted(
    file
    for file in PACKAGE.rglob("*.html.jinja")
    if file.name != "icons.html.jinja" and "api" not in file.relative_to(PACKAGE).parts
)
READ_ALOUD: Final = frozenset({"title", "alt", "placeholder", "aria-label"})
# Names and signs that are the same in every language.
NAMES: Final = re.compile(r"Tumira|API|CSV|USDT|UTC|US\$|&\w+;|https?://\S+")
# Arguments of macros that no reader sees, and parts of templates that hold attributes of elements.
UNSEEN: Final = frozenset({"kind", "id", "name", "type", "attributes"})
ATTRIBUTES: Final = frozenset({"kind", "described"})
CODE: Final = frozenset({"code", "pre"})
CLASSES: Final = frozenset({"card", "created", "dense", "end", "num"})
MARKED: Final = frozenset({"_", "gettext", "ngettext", "asset", "icon", "may"})


class _Texts(HTMLParser):
    """The texts that a reader of a page sees or hears."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code += tag in CODE
        if tag != "meta":
            self.texts += [value for name, value in attrs if value and name in READ_ALOUD]

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in CODE

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.texts.append(data)


def _is_text(text: str) -> bool:
    return re.search(r"[A-Za-z]{2}", NAMES.sub("", text)) is not None


def _html(node: nodes.Node) -> Iterator[str]:
    """Yield the literal HTML of a template; a sign stands for each value."""
    if isinstance(node, (nodes.Block, nodes.Macro)) and node.name in ATTRIBUTES:
        return
    if isinstance(node, nodes.TemplateData):
        yield node.data
    elif isinstance(node, nodes.Output):
        for part in node.nodes:
            yield part.data if isinstance(part, nodes.TemplateData) else "§"
    else:
        for child in node.iter_child_nodes():
            yield from _html(child)


def _constants(node: nodes.Node) -> Iterator[str]:
    """Yield the texts that a template passes to macros without marking them."""
    if isinstance(node, nodes.Call) and getattr(node.node, "name", "") in MARKED:
        return
    if isinstance(node, (nodes.Compare, nodes.Include, nodes.Extends, nodes.FromImport)):
        return
    if isinstance(node, nodes.Keyword) and node.key in UNSEEN:
        return
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        text = node.value
        if (
            "<" not in text
            and not CLASSES.issuperset(text.split())
            and (text[:1].isupper() or (" " in text.strip() and text[0] not in " /"))
        ):
            yield text
    for child in node.iter_child_nodes():
        yield from _constants(child)


def _unmarked(template: str) -> list[str]:
    environment = Environment(
        extensions=["jinja2.ext.i18n"], autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    tree = environment.parse(template)
    parser = _Texts()
    parser.feed("".join(_html(tree)))
    return [text.strip() for text in (*parser.texts, *_constants(tree)) if _is_text(text)]


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_every_text_of_a_template_is_marked(file: Path) -> None:
    assert _unmarked(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "template",
    [
        "<p>Balance</p>",
        '<p aria-label="Your balance">{{ balance }}</p>',
        '{{ field("phone", "Phone number") }}',
        "{% if paid %}<td>paid</td>{% endif %}",
    ],
)
def test_a_text_that_is_not_marked_is_found(template: str) -> None:
    assert _unmarked(template) != []


def test_a_catalogue_has_the_texts_of_templates_and_of_python() -> None:
    dashboard = catalogue("dashboard")
    assert () not in dashboard
    assert any(".jinja:" in place for places in dashboard.values() for place in places)
    assert any(".py:" in place for places in dashboard.values() for place in places)
    assert not any("tumira/console/" in place for places in dashboard.values() for place in places)
