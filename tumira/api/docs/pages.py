"""The public pages about the API: the guide at `/docs` and the reference.

They are the same for every reader, so each is rendered and compressed once, and again when the simulator
comes or goes.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.api.app import DOCUMENT_PATH, PREFIX
from tumira.api.docs import markdown
from tumira.api.docs.markdown import Markdown
from tumira.api.docs.reference import list_fields, list_parameters, reference
from tumira.carriers.manage import list_simulated
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.html.page import HEADERS, Assets, Templates
from tumira.postgres.pool import Database

GUIDE: Final = "/docs"
REFERENCE: Final = "/docs/reference"

_HERE: Final = Path(__file__).parent
# By the endings of their files, in the order in which they are shown.
_LANGUAGES: Final = {"curl": "curl", "python": "Python", "php": "PHP", "javascript": "JavaScript"}
# What the samples have in place of the service's own address, so that they can be run as they are.
_SAMPLE_BASE: Final = "http://127.0.0.1:8080"
# Numbers of each country up to the digits that decide what the simulator does.
_TEST_NUMBERS: Final = {"ZW": "+26377120", "ZA": "+2782123"}


@dataclass(frozen=True, slots=True)
class SimulatedNumber:
    """The last digits of a number, what the simulator does with it, and how its messages end."""

    ending: str
    what_happens: str
    status: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A program in one language."""

    id: str
    language: str
    source: str


@dataclass(frozen=True, slots=True)
class RenderedPage:
    plain: bytes
    compressed: bytes
    tag: str


class DocsPages:
    """The guide and the reference of one service, with its own address in every sample."""

    def __init__(
        self,
        database: Database,
        public_url: str,
        test_numbers: Sequence[SimulatedNumber],
        support: Support = NO_SUPPORT,
    ) -> None:
        self._database = database
        self._base = public_url
        self._test_numbers = test_numbers
        self._templates = Templates(
            _HERE, support, highlight=markdown.highlight, fields=list_fields, parameters=list_parameters
        )
        self._render = lru_cache(8)(self._render_page)

    @property
    def assets(self) -> Assets:
        return self._templates.assets

    def routes(self) -> Sequence[Route]:
        return [Route(GUIDE, self._guide), Route(REFERENCE, self._reference)]

    async def _guide(self, request: Request) -> Response:
        try:
            names = await list_simulated(self._database)
        except UNAVAILABLE:
            # The guide is also of use while the database is away.
            names = {}
        simulated = tuple((code, names[code]) for code in _TEST_NUMBERS if code in names)
        return _answer(request, self._render("guide.html.jinja", simulated))

    async def _reference(self, request: Request) -> Response:
        return _answer(request, self._render("reference.html.jinja"))

    def _render_page(self, template: str, simulated: Sequence[tuple[str, str]] = ()) -> RenderedPage:
        parts = reference()
        # The reference links to its own sections, the guide to those of the reference.
        own = Markdown(parts["anchors"], "" if template.startswith("reference") else REFERENCE)
        page = self._templates.render(
            template,
            **parts,
            markdown=own.blocks,
            inline=own.inline,
            base=self._base,
            api=self._base + PREFIX,
            document_path=DOCUMENT_PATH,
            guide_path=GUIDE,
            reference_path=REFERENCE,
            samples=self._samples(),
            test_numbers=self._test_numbers if simulated else (),
            test_prefixes=[_TEST_NUMBERS[code] for code, _ in simulated],
            simulated=[name for _, name in simulated],
        ).encode()
        return RenderedPage(page, gzip.compress(page, 9, mtime=0), f'W/"{sha256(page).hexdigest()[:16]}"')

    def _samples(self) -> Mapping[str, Sequence[Sample]]:
        return {
            name: [
                Sample(f"{name}-{language}", label, source.replace(_SAMPLE_BASE, self._base))
                for language, label in _LANGUAGES.items()
                if (source := sources.get(language)) is not None
            ]
            for name, sources in read_samples().items()
        }


@cache
def read_samples() -> Mapping[str, Mapping[str, str]]:
    """Return the samples by name and language, as they are on disk."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted((_HERE / "samples").iterdir()):
        found.setdefault(file.stem, {})[file.suffix[1:]] = file.read_text(encoding="utf-8").rstrip()
    return found


def _answer(request: Request, page: RenderedPage) -> Response:
    headers: dict[str, Any] = {
        **HEADERS,
        "Cache-Control": "no-cache",
        "ETag": page.tag,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(page.compressed, media_type="text/html", headers=headers)
    return Response(page.plain, media_type="text/html", headers=headers)
