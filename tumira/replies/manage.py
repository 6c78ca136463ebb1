"""Changes to opt-outs by customers, and to the rules about them by operators."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import AccountId
from tumira.core.translation import _
from tumira.postgres.pool import Database
from tumira.pricing.destinations import sort_recipients
from tumira.pricing.phone_numbers import CHANNEL, complete
from tumira.pricing.segments import measure
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.replies.keywords import WORD_MAX, Keyword, Meaning, fold
from tumira.replies.opt_outs import OptOutSettings, OptOutSource

LANGUAGE_MAX: Final = 60
CONFIRMATION_SEGMENTS_MAX: Final = 2


class Added(Struct, frozen=True):
    """The outcome of opting numbers out."""

    added: int
    # Already opted out, or given more than once.
    known: int
    # As they were written.
    unreadable: Sequence[str]


async def opt_out(
    database: Database,
    account_id: AccountId,
    written: Sequence[str],
    country: str | None,
    *,
    source: OptOutSource,
    actor: Actor,
) -> Added:
    """Opt numbers out of an account's messages; those without a country code are numbers of `country`."""
    async with database.transaction() as connection:
        tariff = await get_tariff(connection)
        numbers = {text: complete(tariff, text, country) for text in written}
        reached = {one.number for one in sort_recipients(tariff, CHANNEL, list(numbers.values())).accepted}
        unreadable = [text for text in written if numbers[text] not in reached]
        new = await opt_outs.add(connection, account_id, sorted(reached), source)
        if new:
            await audit_log.record(connection, account_id, actor, "numbers opted out", f"{len(new)} numbers")
    return Added(len(new), len(written) - len(unreadable) - len(new), unreadable)


async def opt_in(database: Database, account_id: AccountId, number: str, *, actor: Actor) -> bool:
    """Let an account send to a number again; False if it was not opted out."""
    async with database.transaction() as connection:
        removed = await opt_outs.remove(connection, account_id, number)
        if removed:
            await audit_log.record(connection, account_id, actor, "opt-out removed", f"…{number[-3:]}")
    return removed


async def save_settings(database: Database, settings: OptOutSettings, *, actor: Actor) -> None:
    """Change the operator's rules about opt-outs."""
    confirmation = settings.confirmation
    if confirmation is not None and measure(confirmation).segments > CONFIRMATION_SEGMENTS_MAX:
        raise FieldError(
            "confirmation",
            _("The text is too long. Shorten it to {most} segments.").format(most=CONFIRMATION_SEGMENTS_MAX),
        )
    async with database.transaction() as connection:
        await opt_outs.set_settings(connection, settings)
        covers = "covered" if settings.covers_passcodes else "not covered"
        confirms = "no confirmation" if confirmation is None else f"confirmation: {confirmation}"
        await audit_log.record_by_operator(
            connection, actor, "opt-out rules changed", f"one-time codes {covers}; {confirms}"
        )


async def put_keyword(database: Database, keyword: Keyword, *, actor: Actor) -> None:
    """Add a keyword as it is typed, or change it."""
    word = fold(keyword.word)
    if not word or len(word) > WORD_MAX:
        raise FieldError(
            "word", _("Enter a word of at most {most} letters and digits.").format(most=WORD_MAX)
        )
    if not keyword.language or len(keyword.language) > LANGUAGE_MAX:
        raise FieldError("language", _("Enter the language of the word."))
    stored = Keyword(word, keyword.meaning, keyword.language, keyword.is_active, keyword.leads)
    async with database.transaction() as connection:
        await opt_outs.put_keyword(connection, stored)
        what = "opts out" if stored.meaning is Meaning.STOP else "opts in"
        state = "active" if stored.is_active else "only shown"
        await audit_log.record_by_operator(connection, actor, "keyword saved", f"{word}: {what}, {state}")


async def delete_keyword(database: Database, word: str, *, actor: Actor) -> None:
    async with database.transaction() as connection:
        if not await opt_outs.delete_keyword(connection, word):
            raise OperatorError(_("This word is no longer in the list."))
        await audit_log.record_by_operator(connection, actor, "keyword removed", word)
