"""Commands for refused texts, and for templates that allow or block texts."""

from collections.abc import Mapping
from typing import Any, Final

import click

from tumira.audit_log import Actor
from tumira.cli.output import AccountIdType, actor, json_option, show, show_all, with_database
from tumira.content.review import add_template, list_refusals, list_templates, remove_template
from tumira.content.store import ContentRefusal
from tumira.content.template_store import Template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import ACCOUNT, TEMPLATE, AccountId, TemplateId, read_id, write_id
from tumira.postgres.pool import Database

REFUSALS_SHOWN_MAX: Final = 1_000
# Fits on a line beside the other columns.
TEXT_SHOWN: Final = 60


class TemplateIdType(click.ParamType[TemplateId]):
    name = "tpl_…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TemplateId:
        identifier = read_id(TEMPLATE, value)
        if identifier is None:
            self.fail(f"{value!r} is not a template's id; `tumira template list` shows them.", param, ctx)
        return TemplateId(identifier)


@click.group()
def template() -> None:
    """Allow or block forms of text, whatever the classifier says about them."""


@template.command("add")
@click.argument("text")
@click.option("--account", "account_id", type=AccountIdType(), help="For this account; for all without it.")
@click.option("--block", is_flag=True, help="Refuse such texts, instead of letting them pass.")
@click.option("--note", default="", help="Why.")
@json_option
@with_database
async def template_add(
    database: Database, *, text: str, account_id: AccountId | None, block: bool, note: str, as_json: bool
) -> None:
    """Allow texts like TEXT, in which {name} stands for 1 to 40 characters; from the next call on."""
    verdict = TemplateVerdict.BLOCK if block else TemplateVerdict.ALLOW
    added = await add_template(database, text, account_id, verdict, note=note, actor=Actor(actor()))
    title = "Such texts are refused from now on." if block else "Such texts pass from now on."
    show(_template(added), as_json=as_json, title=title)


@template.command("list")
@click.option("--account", "account_id", type=AccountIdType(), help="Only those that count for this one.")
@json_option
@with_database
async def template_list(database: Database, *, account_id: AccountId | None, as_json: bool) -> None:
    """List templates."""
    found = await list_templates(database, account_id)
    rows = [_template(one) for one in found]
    if not as_json:
        rows = [{**row, "template": _in_short(row["template"])} for row in rows]
    show_all(
        rows,
        as_json=as_json,
        empty="No templates yet: `tumira template add` adds one.",
        left_out=("created_at", "created_by"),
    )


@template.command("remove")
@click.argument("template_id", type=TemplateIdType())
@json_option
@with_database
async def template_remove(database: Database, *, template_id: TemplateId, as_json: bool) -> None:
    """Remove a template; the classifier decides about such texts again."""
    removed = await remove_template(database, template_id, Actor(actor()))
    show({**_template(removed), "removed": True}, as_json=as_json, title="Template removed.")


@click.group()
def refusal() -> None:
    """Look at texts that were refused as marketing."""


@refusal.command("list")
@click.option("--account", "account_id", type=AccountIdType(), help="Only this account's.")
@click.option("--limit", type=click.IntRange(1, REFUSALS_SHOWN_MAX), default=20, show_default=True)
@json_option
@with_database
async def refusal_list(
    database: Database, *, account_id: AccountId | None, limit: int, as_json: bool
) -> None:
    """List refused texts, the latest first; the text itself only where the account consents to review."""
    found = await list_refusals(database, account_id, limit)
    rows = [_refusal(one) for one in found]
    if not as_json:
        rows = [
            {
                **row,
                "reasons": _in_short(", ".join(reason["words"] for reason in row["reasons"])) or None,
                "text": None if row["text"] is None else _in_short(row["text"]),
                "review_note": None if row["review_note"] is None else _in_short(row["review_note"]),
            }
            for row in rows
        ]
    show_all(rows, as_json=as_json, empty="Nothing was refused in the last 30 days.", left_out=("first_at",))


def _in_short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_SHOWN else text[: TEXT_SHOWN - 1] + "…"


def _template(one: Template) -> Mapping[str, Any]:
    return {
        "template_id": write_id(TEMPLATE, one.id),
        "account_id": None if one.account_id is None else write_id(ACCOUNT, one.account_id),
        "verdict": one.verdict.value,
        "template": one.pattern,
        "note": one.note,
        "created_at": one.created_at,
        "created_by": one.created_by,
    }


def _refusal(one: ContentRefusal) -> Mapping[str, Any]:
    return {
        "account_id": write_id(ACCOUNT, one.account_id),
        "last_at": one.last_at,
        "first_at": one.first_at,
        "count": one.count,
        "category": one.category,
        "score": one.score,
        "reasons": [dict(reason) for reason in one.reasons],
        "text": one.text,
        "review_asked_at": one.review_asked_at,
        "review_note": one.review_note,
    }
