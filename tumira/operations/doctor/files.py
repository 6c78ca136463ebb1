"""Permissions: the data directory, files with settings, and backups."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning
from tumira.operations.doctor.machine import nearest_directory
from tumira.postgres.embedded.files import user_name

# Where the units in deploy/systemd keep the settings and the backups.
SETTINGS_FILES: Final = (Path(".env"), Path("/etc/tumira/tumira.env"))
BACKUP_FOLDER: Final = Path("/var/backups/tumira")
NAMED_MAX: Final = 3


def check_data_directory(path: Path, *, is_embedded: bool) -> Diagnosis:
    """Check that the directory is ours to write, and nobody else's."""
    if nearest_directory(path) != path:
        return _check_missing(path, is_embedded=is_embedded)
    found = path.stat()
    owner, me = user_name(found.st_uid), user_name(os.geteuid())
    if found.st_mode & stat.S_IWOTH:
        return problem("permissions", f"Every user may write to {path}.", f"chmod o-w {path}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        advice = f"Run this as {owner} or root if Tumira runs as {owner}; else chown it to its user."
        return problem("permissions", f"{path} belongs to {owner}, and {me} may not use it.", advice)
    return ok("permissions", f"{path} belongs to {owner} and is writable.")


def _check_missing(path: Path, *, is_embedded: bool) -> Diagnosis:
    words = f"{path} does not exist yet."
    if not is_embedded:
        return ok("permissions", f"{words} It is not needed with TUMIRA_DATABASE_URL.")
    nearest, me = nearest_directory(path), user_name(os.geteuid())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return problem(
            "permissions",
            f"{path} does not exist, or {me} may not see it; {me} may not create it in {nearest}.",
            "Run this as the user of Tumira, create the directory for that user, or set TUMIRA_DATA_DIR.",
        )
    return ok("permissions", f"{words} `tumira serve` creates it.")


def check_secrets(
    settings: Sequence[Path] = SETTINGS_FILES, backups: Path = BACKUP_FOLDER
) -> Sequence[Diagnosis]:
    """Check that no other user reads passwords in the settings, or texts and numbers in backups."""
    found = [_check_secret(path.absolute()) for path in settings if path.is_file()]
    try:
        files = [path for path in backups.iterdir() if path.is_file()] if backups.is_dir() else []
    except PermissionError:
        # What we may not see, others may not either.
        files = []
    open_to_all = [path for path in files if path.stat().st_mode & stat.S_IROTH]
    if open_to_all and backups.stat().st_mode & stat.S_IXOTH:
        named = ", ".join(path.name for path in sorted(open_to_all)[:NAMED_MAX])
        words = f"Every user may read {len(open_to_all)} backups in {backups}, such as {named}."
        found.append(problem("permissions", words, f"chmod 700 {backups}"))
    return found


def _check_secret(path: Path) -> Diagnosis:
    mode = path.stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        does = "write to" if mode & stat.S_IWOTH else "read"
        return problem(
            "permissions", f"Every user may {does} {path}, which may hold passwords.", f"chmod 600 {path}"
        )
    if mode & stat.S_IWGRP:
        return warning("permissions", f"The group of {path} may write to it.", f"chmod g-w {path}")
    return ok("permissions", f"{path} is readable by its owner or group only.")
