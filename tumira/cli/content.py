"""Commands for refused texts, texts near the line, and templates that allow or block texts."""

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from tumira.cli.output import (
    ACCOUNT_ID,
    DayType,
    IdType,
    actor,
    database_command,
    show,
    show_all,
    wants_json,
)
from tumira.content.export import export_texts
from tumira.content.near_line_store import NearLineText
from tumira.content.review import (
    add_template,
    list_near_line,
    list_refusals,
    list_templates,
    remove_template,
)
from tumira.content.store import KEPT, ContentRefusal
from tumira.content.template_store import Template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import TEMPLATE, AccountId, TemplateId
from tumira.postgres.pool import Database

TEMPLATE_ID: Final = IdType(TEMPLATE, "a template", "`tumira template list` shows them.")
REFUSALS_SHOWN_MAX: Final = 1_000
TEXT_SHOWN: Final = 60


@click.group()
def template() -> None:
    """Allow or block forms of text, whatever the classifier says about them."""


@template.command("add")
@click.argument("text")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="For this account; for all without it.")
@click.option("--block", is_flag=True, help="Refuse such texts, instead of letting them pass.")
@click.option("--note", default="", help="Why.")
@database_command
async def template_add(
    database: Database, *, text: str, account_id: AccountId | None, block: bool, note: str
) -> None:
    """Allow texts like TEXT, in which {name} stands for 1 to 40 characters; from the next call on."""
    verdict = TemplateVerdict.BLOCK if block else TemplateVerdict.ALLOW
    added = await add_template(database, text, account_id, verdict, note=note, actor=actor())
    title = "Such texts are refused from now on." if block else "Such texts pass from now on."
    show(_template(added), title=title)


@template.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only those that count for this one.")
@database_command
async def template_list(database: Database, *, account_id: AccountId | None) -> None:
    """List templates."""
    show_all(
        [_template(one) for one in await list_templates(database, account_id)],
        empty="No templates yet: `tumira template add` adds one.",
        columns="template_id account_id verdict template note",
        for_people={"template": _in_short},
    )


@template.command("remove")
@click.argument("template_id", type=TEMPLATE_ID)
@database_command
async def template_remove(database: Database, *, template_id: TemplateId) -> None:
    """Remove a template; the classifier decides about such texts again."""
    removed = await remove_template(database, template_id, actor())
    show({**_template(removed), "removed": True}, title="Template removed.")


@click.group()
def refusal() -> None:
    """Look at texts that were refused as marketing, or only just passed."""


@refusal.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only this account's.")
@click.option("--limit", type=click.IntRange(1, REFUSALS_SHOWN_MAX), default=20, show_default=True)
@click.option("--near", is_flag=True, help="The sample of texts that passed near the line instead.")
@database_command
async def refusal_list(database: Database, *, account_id: AccountId | None, limit: int, near: bool) -> None:
    """List refused texts, the latest first; the text itself only where the account consents to review."""
    if near:
        show_all(
            [_near_line(one) for one in await list_near_line(database, account_id, limit)],
            empty="No text near the line was kept in the last 30 days.",
            columns="account_id last_at count score text review",
            for_people={"text": _in_short},
        )
        return
    show_all(
        [_refusal(one) for one in await list_refusals(database, account_id, limit)],
        empty="Nothing was refused in the last 30 days.",
        columns="account_id last_at count category score reasons text review_asked_at review_note",
        for_people={
            "reasons": lambda reasons: _in_short(", ".join(reason["words"] for reason in reasons)) or None,
            "text": _in_short,
            "review_note": _in_short,
        },
    )


@refusal.command("export")
@click.option("--since", type=DayType(), help="The first day, UTC+02:00; 30 days ago by default.")
@click.option("--output", type=click.Path(path_type=Path), help="A new file; standard output without it.")
@database_command
async def refusal_export(database: Database, *, since: date | None, output: Path | None) -> None:
    """Write texts for the corpus as JSON lines, without personal data, of accounts that consent to review."""
    first = since or (datetime.now(UTC) - KEPT).date()
    exported = await export_texts(database, first, actor())
    if output is None:
        if wants_json():
            click.echo(msgspec.json.encode(exported))
        else:
            for one in exported:
                click.echo(msgspec.json.encode(one))
        return
    # A file that exists may have been edited, and nobody else may read this one.
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.writelines(msgspec.json.encode(one) + b"\n" for one in exported)
    labelled = sum(one.label is not None for one in exported)
    written = {"file": str(output), "texts": len(exported), "labelled": labelled, "since": first.isoformat()}
    show(written, title="Read and label the texts before `make learn-from` adds them to the corpus.")


def _in_short(text: str | None) -> str | None:
    """Return a text in one line that fits beside the other columns."""
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= TEXT_SHOWN else line[: TEXT_SHOWN - 1] + "…"


def _template(one: Template) -> Mapping[str, Any]:
    return {
        "template_id": one.id,
        "account_id": one.account_id,
        "verdict": one.verdict,
        "template": one.pattern,
        "note": one.note,
        "created_at": one.created_at,
        "created_by": one.created_by,
    }


def _refusal(one: ContentRefusal) -> Mapping[str, Any]:
    return {
        "account_id": one.account_id,
        "last_at": one.last_at,
        "first_at": one.first_at,
        "count": one.count,
        "category": one.category,
        "score": one.score,
        "reasons": one.reasons,
        "text": one.text,
        "review_asked_at": one.review_asked_at,
        "review_note": one.review_note,
    }


def _near_line(one: NearLineText) -> Mapping[str, Any]:
    return {
        "account_id": one.account_id,
        "last_at": one.last_at,
        "first_at": one.first_at,
        "count": one.messages,
        "score": one.score,
        "text": one.text,
        "review": one.review,
    }
