"""Declared forms: fields, limits and messages in one place, validated by WTForms.

They carry no token: `guards.refuse_foreign_writes` refuses writes from other sites before the session
is read.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from datetime import time as clock_time
from decimal import Decimal
from typing import Any, Final, Self
from urllib.parse import urlencode
from uuid import UUID

import wtforms
from starlette.requests import Request
from wtforms.validators import ValidationError

from tumira.core import money
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import ACCOUNT, made_at_ms, new_id, read_id, write_id
from tumira.core.translation import _, mark
from tumira.html.form_body import FormBody, read_fields
from tumira.html.guards import or_404
from tumira.identity.person_rules import clean_name

TYPED_MAX: Final = 40
NOTE_MAX: Final = 500
NOT_AN_AMOUNT: Final = mark("Enter an amount in US dollars, such as 5 or 12.50.")
NOT_A_NUMBER: Final = mark("Enter a whole number.")
TICK_ONE: Final = mark("Choose at least one.")
YEARS: Final = range(2000, 2100)
# A page that was open for longer may show a price or a rate that has changed.
FORM_AGE_MAX_MS: Final = 24 * 3600 * 1000
# The clock of the machine that showed the form may be a little ahead.
FORM_AHEAD_MAX_MS: Final = 60_000

_ID_VERSION: Final = 7

# Says what is wrong with a value; None if nothing is.
Rule = Callable[[Any], str | None]
# What is wrong, by field; under "" what is wrong with the whole.
Faults = Mapping[str, str]


class FormRefused(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """A form that is not carried out: its page is shown again with the faults and what was typed."""

    def __init__(self, faults: Faults, filled: Mapping[str, str] | None = None, status: int = 422) -> None:
        super().__init__(faults)
        self.faults = faults
        self.filled = filled or {}
        self.status = status


class Form(wtforms.Form):
    """A form that was posted: its fields by name, and a message for each field that is wrong."""

    faults: dict[str, str]

    @classmethod
    async def read(cls, request: Request) -> Self:
        return cls.parse(await read_fields(request))

    @classmethod
    async def accept(cls, request: Request) -> Self:
        """Read a form, and refuse it if a field is wrong."""
        form = await cls.read(request)
        form.refuse_faults()
        return form

    def refuse_faults(self) -> None:
        if self.faults:
            raise FormRefused(self.faults, self.filled)

    @contextmanager
    def blame(self, field: str = "") -> Iterator[None]:
        """Refuse the form for an operator's error inside, beside the field of the error or else this one."""
        try:
            yield
        except OperatorError as error:
            name = error.field if isinstance(error, FieldError) else field
            raise FormRefused({name: str(error)}, self.filled) from error

    @classmethod
    def parse_query(cls, request: Request) -> Self:
        query = request.query_params
        return cls.parse(FormBody({name: query.getlist(name) for name in query}))

    @classmethod
    def parse(cls, body: FormBody) -> Self:
        form = cls(body)
        form.validate()
        form.faults = {
            _key(name): str(field.errors[0]) for name, field in form._fields.items() if field.errors
        }
        return form

    @property
    def filled(self) -> dict[str, str]:
        """What was typed, to be shown again beside the faults; secrets are left out."""
        shown = {name: field for name, field in self._fields.items() if isinstance(field, TextField)}
        return {_key(name): field.typed for name, field in shown.items() if not field.is_secret}


def _key(name: str) -> str:
    # `from_` is the field `from`, which Python keeps for itself.
    return name.rstrip("_")


class TextField(wtforms.Field):
    """Text without spaces around it, cut at `cut` characters, and held to rules."""

    data: str

    def __init__(
        self,
        *rules: Rule,
        clean: Callable[[str], str] = str.strip,
        cut: int | None = None,
        is_secret: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(validators=[_apply(rule) for rule in rules], default="", **options)
        self.is_secret = is_secret
        self.typed = ""
        self._clean = clean
        self._cut = cut

    def process_formdata(self, valuelist: Sequence[str]) -> None:
        self.typed = self._clean(valuelist[0] if valuelist else "")[: self._cut]
        self.data = self.convert(self.typed)

    def convert(self, text: str) -> Any:
        """Return the value of a text; raise ValueError with the message for the page."""
        return text


class NoteField(TextField):
    """The reason of a change, in one line."""

    def __init__(self, *, is_needed: bool = True, **options: Any) -> None:
        rules = (at_most(NOTE_MAX), needed(mark("Enter a reason."))) if is_needed else (at_most(NOTE_MAX),)
        super().__init__(*rules, clean=clean_name, **options)


class Secret(TextField):
    """A password: neither stripped nor shown again."""

    def __init__(self, *rules: Rule, cut: int | None = None, **options: Any) -> None:
        super().__init__(*rules, clean=str, cut=cut, is_secret=True, **options)


class Amount(TextField):
    """An amount in US dollars; None where the field was left empty."""

    data: Decimal | None  # type: ignore[assignment]

    def __init__(
        self, *rules: Rule, fault: str = NOT_AN_AMOUNT, is_needed: bool = False, **options: Any
    ) -> None:
        super().__init__(*rules, cut=TYPED_MAX, **options)
        self._fault = fault
        self._is_needed = is_needed

    def convert(self, text: str) -> Decimal | None:
        if not text and not self._is_needed:
            return None
        amount = money.parse(text)
        if amount is None:
            raise ValueError(_(self._fault))
        return amount


class Whole(TextField):
    """A whole number within bounds."""

    data: int  # type: ignore[assignment]

    def __init__(self, least: int, most: int, fault: str = NOT_A_NUMBER, **options: Any) -> None:
        super().__init__(**options)
        self._least, self._most = least, most
        self._fault = fault

    def convert(self, text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(self._most))
        if not is_number or not self._least <= int(text) <= self._most:
            raise ValueError(_(self._fault))
        return int(text)


class Choice(TextField):
    """One of a few values."""

    def __init__(
        self, values: Iterable[str], fault: str = mark("Choose one from the list."), **options: Any
    ) -> None:
        known = frozenset(values)
        super().__init__(lambda value: None if value in known else _(fault), **options)


class DayField(TextField):
    """A day; None where the field was left empty."""

    data: date | None  # type: ignore[assignment]

    def convert(self, text: str) -> date | None:
        if not text:
            return None
        try:
            day = date.fromisoformat(text)
        except ValueError:
            day = None
        if day is None or day.year not in YEARS:
            raise ValueError(_("Enter the date as in 2026-11-16."))
        return day


class ClockField(TextField):
    """A time of day; None where the field was left empty."""

    data: clock_time | None  # type: ignore[assignment]

    def convert(self, text: str) -> clock_time | None:
        if not text:
            return None
        hours, _colon, minutes = text.partition(":")
        # Some browsers add the seconds.
        written = f"{hours:0>2}:{minutes[:2]}"
        try:
            return clock_time.fromisoformat(written)
        except ValueError:
            raise ValueError(_("Enter the time as in 08:30.")) from None


class Flag(TextField):
    """A box that is ticked, or a value that was chosen."""

    data: bool  # type: ignore[assignment]

    def __init__(self, *rules: Rule, value: str | None = None, **options: Any) -> None:
        super().__init__(*rules, **options)
        self._value = value

    def convert(self, text: str) -> bool:
        return bool(text) if self._value is None else text == self._value


class Ticked(wtforms.Field):
    """The ticked boxes of a list, in its order."""

    data: Sequence[str]

    def __init__(self, values: Iterable[str], **options: Any) -> None:
        super().__init__(validators=[_apply(needed(TICK_ONE))], **options)
        self._values = tuple(values)

    def process_formdata(self, valuelist: Sequence[str]) -> None:
        self.data = [value for value in self._values if value in valuelist]


class ListFilterForm(Form):
    """A filter of a list, which stays in the address of its pages."""

    @property
    def is_plain(self) -> bool:
        return not any(self.filled.values())

    def path(self, path: str, **more: str) -> str:
        """Write the address of a page about the same filter."""
        query = urlencode({name: value for name, value in {**self.filled, **more}.items() if value})
        return f"{path}?{query}" if query else path

    def pages(self, path: str, older: str | None) -> Mapping[str, str | None]:
        """Write the addresses that follow from a list: of its beginning, of what is older, and of its CSV."""
        return {
            "newest": self.path(path),
            "older": older and self.path(path, before=older),
            "download": self.path(path + ".csv"),
        }


class PeriodForm(ListFilterForm):
    """A filter of a list by days."""

    from_ = DayField(name="from")
    to = DayField()

    def validate_to(self, field: DayField) -> None:
        if self.from_.data is not None and field.data is not None and field.data < self.from_.data:
            raise ValidationError(_("The last day is before the first. Choose a later day."))


class FormId(TextField):
    """The id that a form was shown with, so that a form that is posted twice is carried out once.

    The action claims the id in its transaction: as the primary key of a top-up, as the idempotency key of a
    message, or with `audit_log.claim_form`. None for an id that is too old, or that we did not make.
    """

    data: UUID | None  # type: ignore[assignment]

    def __init__(self, prefix: str, **options: Any) -> None:
        super().__init__(is_secret=True, **options)
        self._prefix = prefix

    def convert(self, text: str) -> UUID | None:
        form_id = read_id(self._prefix, text)
        if form_id is None or form_id.version != _ID_VERSION:
            return None
        age_ms = time.time_ns() // 1_000_000 - made_at_ms(form_id)
        return form_id if -FORM_AHEAD_MAX_MS <= age_ms <= FORM_AGE_MAX_MS else None


def new_form_id(prefix: str) -> str:
    return write_id(prefix, new_id(time.time_ns() // 1_000_000))


def read_path_id(request: Request, prefix: str, missing: str, name: str = "id") -> UUID:
    """Read an id in the address; answer 404 with `missing` if it cannot be one."""
    return or_404(read_id(prefix, str(request.path_params[name])), missing)


def read_query_id(request: Request, prefix: str, name: str) -> UUID | None:
    """Read the id of which a list begins; None for the first page, and 404 for what cannot be an id."""
    text = request.query_params.get(name)
    return None if text is None else or_404(read_id(prefix, text), _("This page does not exist"))


def needed(fault: str) -> Rule:
    return lambda value: None if value else _(fault)


def account_id(fault: str) -> Rule:
    """Refuse what is neither empty nor written like the id of an account."""
    return lambda text: _(fault) if text and read_id(ACCOUNT, text) is None else None


def at_most(length: int) -> Rule:
    return lambda value: (
        _("Enter at most {length} characters.").format(length=length) if len(value) > length else None
    )


def _apply(rule: Rule) -> Callable[[wtforms.Form, wtforms.Field], None]:
    def validate(_form: wtforms.Form, field: wtforms.Field) -> None:
        fault = None if field.process_errors else rule(field.data)
        if fault is not None:
            raise ValidationError(fault)

    return validate
