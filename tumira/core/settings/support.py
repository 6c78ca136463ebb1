"""Contacts of the operator that pages and notices show to customers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tumira.core.errors import OperatorError
from tumira.core.mail_addresses import MAIL_ADDRESS
from tumira.core.translation import _

_SEPARATORS: Final = re.compile(r"[ ().-]+")
# E.164: a country code does not begin with 0, and a number has at most 15 digits.
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{6,14}")


@dataclass(frozen=True, slots=True)
class SupportLink:
    """A way to reach the operator: where its link leads, and the text of the link."""

    url: str
    text: str


@dataclass(frozen=True, slots=True)
class Support:
    """How customers reach the operator; None for what is not set."""

    phone: str | None = None
    email: str | None = None
    whatsapp: str | None = None

    @property
    def contacts(self) -> list[SupportLink]:
        found = []
        if self.phone:
            found.append(SupportLink(f"tel:{_digits(self.phone)}", self.phone))
        if self.email:
            found.append(SupportLink(f"mailto:{self.email}", self.email))
        if self.whatsapp:
            number = _digits(self.whatsapp).removeprefix("+")
            found.append(SupportLink(f"https://wa.me/{number}", f"WhatsApp {self.whatsapp}"))
        return found

    @property
    def name(self) -> str:
        """Return `support (+263 77 120 0001 or help@sms.example)`, for a sentence without links."""
        return _name(self.contacts)

    @property
    def short_name(self) -> str:
        """Return the name with one contact, the phone number if there is one: a text message is short."""
        return _name(self.contacts[:1])


def _name(contacts: Sequence[SupportLink]) -> str:
    if not contacts:
        return _("support")
    texts = _(" or ").join(one.text for one in contacts)
    return _("support ({contacts})").format(contacts=texts)


NO_SUPPORT: Final = Support()


def read_support(values: Mapping[str, str]) -> Support:
    email = values.get("TUMIRA_SUPPORT_EMAIL", "").strip()
    if email and not MAIL_ADDRESS.fullmatch(email):
        raise OperatorError(
            f"TUMIRA_SUPPORT_EMAIL is {email!r}; write an e-mail address, such as help@sms.example."
        )
    return Support(
        _number("TUMIRA_SUPPORT_PHONE", values), email or None, _number("TUMIRA_SUPPORT_WHATSAPP", values)
    )


def _number(name: str, values: Mapping[str, str]) -> str | None:
    """Return a number as the operator writes it: pages show it so, and links have its digits."""
    text = values.get(name, "").strip()
    if text and not _NUMBER.fullmatch(_digits(text)):
        raise OperatorError(
            f"{name} is {text!r}; write the number with its country code, such as +263 77 120 0001."
        )
    return text or None


def _digits(number: str) -> str:
    return _SEPARATORS.sub("", number)
