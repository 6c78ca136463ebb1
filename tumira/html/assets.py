"""Which stylesheets and scripts do pages name, and how are they served? Once, and then kept by the browser.

A file's address holds a hash of its content: a changed file has another address, so a browser may keep what
it got for ever.
"""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PREFIX: Final = "/static/"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_KEPT: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent, plain and compressed."""

    path: str
    media_type: str
    plain: bytes
    compressed: bytes


def read_asset(file: Path) -> Asset:
    """Read a file that pages name."""
    plain = file.read_bytes()
    path = f"{PREFIX}{file.stem}.{sha256(plain).hexdigest()[:12]}{file.suffix}"
    return Asset(path, _TYPES[file.suffix], plain, gzip.compress(plain, 9, mtime=0))


class Assets:
    """The files of some folders, by their names."""

    def __init__(self, *folders: Path) -> None:
        self._named = {
            file.name: read_asset(file)
            for folder in folders
            for file in sorted(folder.iterdir())
            if file.suffix in _TYPES
        }
        self._at: Mapping[str, Asset] = {asset.path: asset for asset in self._named.values()}

    def path(self, name: str) -> str:
        """Return where a file is found as it is now."""
        return self._named[name].path

    def find(self, path: str) -> Asset | None:
        """Return the file with this address."""
        return self._at.get(path)


def route(*faces: Assets) -> Route:
    """Return where the files of all faces are found."""

    async def answer(request: Request) -> Response:
        asset = next(filter(None, (assets.find(request.url.path) for assets in faces)), None)
        if asset is None:
            raise HTTPException(404)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = {**_KEPT, "Content-Encoding": "gzip"}
            return Response(asset.compressed, media_type=asset.media_type, headers=headers)
        return Response(asset.plain, media_type=asset.media_type, headers=_KEPT)

    return Route(PREFIX + "{name}", answer)
