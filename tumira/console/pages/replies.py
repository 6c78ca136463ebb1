"""Replies that belong to no account, and the operator's rules about opt-outs."""

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.core.ids import REPLY, write_id
from tumira.core.translation import _, mark
from tumira.delivery.place_receipts import mask
from tumira.delivery.replies.store import list_carrier_names
from tumira.html import paging
from tumira.html.forms import Choice, Flag, Form, TextField, needed, read_query_id
from tumira.html.redirect import redirect
from tumira.replies import manage, opt_outs
from tumira.replies import store as replies
from tumira.replies.keywords import WORD_MAX, Keyword, Meaning
from tumira.replies.manage import LANGUAGE_MAX
from tumira.replies.opt_outs import OptOutSettings
from tumira.replies.store import HIGHEST

REPLIES: Final = "/operator/replies"
WORDS: Final = REPLIES + "/words"
PAGE: Final = 25
CONFIRMATION_MAX: Final = 320

DONE: Final = {
    "saved": mark("Rules saved."),
    "word": mark("Word saved. It counts from the next reply on."),
    "removed": mark("Word removed."),
}


class RulesForm(Form):
    covers_passcodes = Flag()
    confirmation = TextField(cut=2 * CONFIRMATION_MAX)


class KeywordForm(Form):
    word = TextField(needed(mark("Enter a word.")), cut=2 * WORD_MAX)
    meaning = Choice([Meaning.STOP.value, Meaning.START.value])
    language = TextField(needed(mark("Enter the language of the word.")), cut=2 * LANGUAGE_MAX)
    is_active = Flag()
    leads = Flag()


class RemoveKeywordForm(Form):
    word = TextField(cut=2 * WORD_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, REPLIES, show_replies),
        *page(services, WORDS, show_rules, {"": save_word, "/rules": save_rules, "/remove": remove_word}),
    ]


async def show_replies(session: OperatorSession) -> Response:
    before = read_query_id(session.request, REPLY, "before")
    async with session.database.connection() as connection:
        found = await replies.list_unmatched(connection, PAGE + 1, before=before or HIGHEST)
        names = await list_carrier_names(connection)
    shown, last = paging.cut(found, PAGE)
    return session.page(
        "replies.html.jinja",
        replies=shown,
        names=names,
        mask=mask,
        is_latest=before is None,
        older=None if last is None else f"{REPLIES}?before={write_id(REPLY, last.id)}",
    )


async def show_rules(session: OperatorSession) -> Response:
    async with session.database.connection() as connection:
        settings = await opt_outs.get_settings(connection)
        words = await opt_outs.list_keywords(connection)
    return session.page(
        "reply_words.html.jinja",
        settings=settings,
        words=words,
        meanings=[(Meaning.STOP.value, _("opts out")), (Meaning.START.value, _("opts in again"))],
        filled={"confirmation": settings.confirmation or ""},
        word_max=WORD_MAX,
        language_max=LANGUAGE_MAX,
        confirmation_max=CONFIRMATION_MAX,
        done=DONE,
    )


async def save_rules(session: OperatorSession) -> Response:
    form = await RulesForm.accept(session.request)
    settings = OptOutSettings(form.covers_passcodes.data, form.confirmation.data or None)
    with form.blame("confirmation"):
        await manage.save_settings(session.database, settings, actor=session.actor)
    return redirect(WORDS + "?done=saved")


async def save_word(session: OperatorSession) -> Response:
    form = await KeywordForm.accept(session.request)
    keyword = Keyword(
        form.word.data,
        Meaning(form.meaning.data),
        form.language.data,
        form.is_active.data,
        form.leads.data,
    )
    with form.blame("word"):
        await manage.put_keyword(session.database, keyword, actor=session.actor)
    return redirect(WORDS + "?done=word")


async def remove_word(session: OperatorSession) -> Response:
    form = await RemoveKeywordForm.accept(session.request)
    with form.blame():
        await manage.delete_keyword(session.database, form.word.data, actor=session.actor)
    return redirect(WORDS + "?done=removed")
