"""Writes the generated files in `docs/` and `clients/`, or with `--check` names those that are stale."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from scripts.client_errors import client_errors
from scripts.metrics_list import metrics_page
from scripts.postman import collection
from scripts.recipes import recipes_page
from tests.proof.page import proof_page
from tumira.api.docs.errors import ADVICE, FIELD_CODES, RECIPIENT_CODES
from tumira.api.docs.examples import example_refusal
from tumira.api.docs.openapi import document
from tumira.core.errors import Refusal, all_refusals
from tumira.dashboard.permissions import ASKS_PASSWORD, ROUTES
from tumira.identity.roles import PERMISSIONS, MemberRole

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"

_OPENING: Final = """\
# Errors

Every answer under `/api/` that is not 2xx has one shape, the envelope of the examples below. `details` lists
all faults at once, and some codes put figures of their own there. Programs go by `code`; the wording of a
message may change. Where *retryable* is yes, the same call can succeed later, unchanged.

This page is made from `tumira/core/errors.py` and `tumira/api/docs/errors.py` by `make docs`.
"""

_PERMISSIONS: Final = """\
# Permissions

What each page and form of the dashboard needs, and which roles have it; [people.md](people.md) says
what the roles are for. A route that is not in the table stops the start of the service. Forms with
*again* under Password ask for the password of who is signed in.

This page is made from `tumira/dashboard/permissions.py` and `tumira/identity/roles.py` by
`make docs`.
"""


def generated() -> Mapping[str, str]:
    """Return what each generated file should hold, by its path in the repository."""
    return {
        "docs/openapi.json": document().decode(),
        "docs/errors.md": errors_page(),
        "docs/metrics.md": metrics_page(),
        "docs/postman.json": collection(),
        "docs/recipes.md": recipes_page(),
        "docs/permissions.md": permissions_page(),
        "docs/proof.md": proof_page(),
        **client_errors(),
    }


def errors_page() -> str:
    """Write the page about all codes."""
    refusals = all_refusals()
    rows = [
        (
            f"[`{refusal.code}`](#{refusal.code.lower()})",
            str(refusal.status),
            _yes_no(refusal),
            ADVICE[refusal].when,
        )
        for refusal in refusals
    ]
    parts = [
        _OPENING,
        _table(("Code", "Status", "Retryable", "When"), rows),
        *[_section(refusal) for refusal in refusals],
        "## Field codes\n\nStand in `details` of `VALIDATION_FAILED`, each with its `field`.\n",
        _table(("Code", "Meaning"), [(f"`{code}`", meaning) for code, meaning in FIELD_CODES.items()]),
        "## Recipient codes\n\nStand in `rejected` of a send or dry run. The other recipients are sent to.\n",
        _table(("Code", "Meaning"), [(f"`{code}`", meaning) for code, meaning in RECIPIENT_CODES.items()]),
    ]
    return "\n".join(parts)


def permissions_page() -> str:
    """Write the permission that each route of the dashboard needs, and the roles that have it."""
    rows = [
        (f"`{route}`", "no session", "anyone", "")
        if needed is None
        else (
            f"`{route}`",
            needed,
            ", ".join(role for role in MemberRole if needed in PERMISSIONS[role]),
            "again" if route in ASKS_PASSWORD else "",
        )
        for route, needed in ROUTES.items()
    ]
    return f"{_PERMISSIONS}\n{_table(('Route', 'Permission', 'Roles', 'Password'), rows)}"


def _section(refusal: type[Refusal]) -> str:
    example = json.dumps(example_refusal(refusal), indent=2, ensure_ascii=False)
    return (
        f"## {refusal.code}\n\n"
        f"Status {refusal.status}. Retryable: {_yes_no(refusal)}.\n\n"
        f"**When:** {ADVICE[refusal].when}\n\n"
        f"**What to do:** {ADVICE[refusal].do}\n\n"
        f"```json\n{example}\n```\n"
    )


def _yes_no(refusal: type[Refusal]) -> str:
    return "yes" if refusal.retryable else "no"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def stale() -> Sequence[Path]:
    """Return the files that do not hold what they should."""
    return [
        ROOT / name
        for name, content in generated().items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != content
    ]


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail and name the files that are stale.")
def main(*, check: bool) -> None:
    """Write the generated files in docs/ and clients/."""
    if not check:
        for name, content in generated().items():
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(content, encoding="utf-8")
        return
    old = stale()
    for path in old:
        click.echo(f"{path.relative_to(ROOT)} is stale; `make docs` writes it again.", err=True)
    if old:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
