"""Replies without an account, and the operator's rules about opt-outs."""

import html
from datetime import UTC, datetime
from typing import Final

import httpx

from tests.support.console.operators import ACTOR, NASTY, last_change, walk
from tests.support.identity.customers import words
from tests.support.identity.people import alert, goes_to
from tests.support.processes.service import Service
from tumira.core.ids import AccountId, ReplyId, new_id
from tumira.postgres.pool import Database
from tumira.replies import opt_outs
from tumira.replies import store as replies
from tumira.replies.opt_outs import OptOutSettings
from tumira.replies.store import Reply

REPLIES: Final = "/operator/replies"
WORDS: Final = REPLIES + "/words"
NUMBER: Final = "+263771200001"


async def _insert(database: Database, account_id: AccountId | None, *texts: str) -> None:
    now = datetime.now(UTC)
    async with database.transaction() as connection:
        for place, text in enumerate(texts):
            reply_id = ReplyId(new_id(int(now.timestamp() * 1000) + place))
            reply = Reply(reply_id, account_id, 99, NUMBER, "33123", text, 1, 1, None, None, now)
            await replies.insert(connection, reply)


async def _settings(database: Database) -> OptOutSettings:
    async with database.connection() as connection:
        return await opt_outs.get_settings(connection)


def test_only_replies_without_an_account_are_shown_and_no_whole_number(
    service: Service, admin: httpx.Client
) -> None:
    caller = service.open_account()
    service.run(_insert, caller.id, "for a customer")
    service.run(_insert, None, NASTY, *(f"stray {place}" for place in range(40)))
    page = admin.get(REPLIES)
    assert "for a customer" not in page.text
    assert NUMBER not in page.text
    found = walk(admin, REPLIES, "Older", r"stray \d+")
    assert found == [f"stray {place}" for place in reversed(range(40))]


def test_rules_are_changed_by_admins_and_recorded(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    text = "You get no more texts from {business}. Reply START to get them again."
    rules = {"covers_passcodes": "1", "confirmation": text}
    assert viewer.post(WORDS + "/rules", data=rules).status_code == 403
    assert goes_to(admin.post(WORDS + "/rules", data=rules)) == WORDS + "?done=saved"
    assert service.run(_settings) == OptOutSettings(covers_passcodes=True, confirmation=text)
    assert (last_change(service)["actor"], last_change(service)["what"]) == (ACTOR, "opt-out rules changed")
    assert text in html.unescape(admin.get(WORDS).text)
    long = admin.post(WORDS + "/rules", data={"confirmation": "x" * 320})
    assert (long.status_code, "too long" in alert(long)) == (422, True)
    assert goes_to(admin.post(WORDS + "/rules", data={"confirmation": ""})) == WORDS + "?done=saved"
    assert service.run(_settings) == OptOutSettings(covers_passcodes=False, confirmation=None)


def test_words_are_added_changed_and_removed(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    word = {"word": "  Musatumire! ", "meaning": "stop", "language": "Shona", "is_active": "1"}
    assert viewer.post(WORDS, data=word).status_code == 403
    assert goes_to(admin.post(WORDS, data=word)) == WORDS + "?done=word"
    page = words(admin.get(WORDS).text)
    assert "musatumire opts out Shona active" in page
    assert goes_to(admin.post(WORDS, data={**word, "is_active": "", "leads": "1"})) == WORDS + "?done=word"
    assert "musatumire also as the first word opts out Shona only shown" in words(admin.get(WORDS).text)
    for wrong in ({"word": "!!"}, {"word": "x" * 60}, {"language": ""}, {"meaning": "other"}):
        assert admin.post(WORDS, data={**word, **wrong}).status_code == 422
    assert goes_to(admin.post(WORDS + "/remove", data={"word": "musatumire"})) == WORDS + "?done=removed"
    assert admin.post(WORDS + "/remove", data={"word": "musatumire"}).status_code == 422
    assert last_change(service)["what"] == "keyword removed"
