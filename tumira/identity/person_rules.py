"""Rules for the name, e-mail address and password that a person types."""

import re
import unicodedata
from typing import Final

from tumira.core.translation import _

NAME_MAX: Final = 100
EMAIL_MAX: Final = 254
PASSWORD_MIN: Final = 8
PASSWORD_MAX: Final = 256

# Some scripts and emoji cannot be written without these.
_JOINERS: Final = "\u200c\u200d"
# As the mailer takes them: RFC 5321 without quoted names, and with a domain that has a dot.
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EMAIL: Final = re.compile(
    rf"(?=[^@]{{1,64}}@){_ATOM}(\.{_ATOM})*@({_LABEL}\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]"
)
# The passwords that are tried first wherever passwords are tried; those that hold the number or a name are
# found by looking.
_COMMON: Final = frozenset(
    re.findall(
        r"\S+",
        """
        password passw0rd password1 password12 password123 password1234 123456789 1234567890 12345678
        87654321 11111111 00000000 88888888 12341234 11223344 qwertyui qwerty123 qwertyuiop 1q2w3e4r
        1qaz2wsx abcd1234 abc12345 iloveyou letmein1 welcome1 welcome123 admin123 administrator sunshine
        football princess zimbabwe harare123 bulawayo johannesburg southafrica manchester liverpool chelsea1
        arsenal1 jesus123 blessing blessed1 changeme default1 tumira123 tumira12
        """,
    )
)


def clean_name(text: str) -> str:
    """Write a name in one line, without what cannot be seen and yet changes how the rest looks."""
    visible = "".join(
        " " if unicodedata.category(one) in {"Cc", "Zl", "Zp"} else one
        for one in text
        if one in _JOINERS or unicodedata.category(one) != "Cf"
    )
    return " ".join(visible.split())


def check_name(name: str) -> str | None:
    """Say what is wrong with a person's or a business's name; None if nothing is."""
    if not name:
        return _("Enter a name.")
    if len(name) > NAME_MAX:
        return _("Use at most {count} characters.").format(count=NAME_MAX)
    if not any(one.isalnum() for one in name):
        return _("Use letters or digits.")
    return None


def check_email(email: str) -> str | None:
    """Say what is wrong with an e-mail address; None if nothing is."""
    if len(email) > EMAIL_MAX or not _EMAIL.fullmatch(email):
        return _("Enter an email address like name@example.com, or leave this empty.")
    return None


def check_password(password: str, *about: str) -> str | None:
    """Say what is wrong with a new password, knowing who it is for; None if nothing is."""
    if len(password) < PASSWORD_MIN:
        return _("Enter a password of at least {count} characters.").format(count=PASSWORD_MIN)
    if len(password) > PASSWORD_MAX:
        return _("Use at most {count} characters.").format(count=PASSWORD_MAX)
    plain = _plain(password)
    if plain in _COMMON or len(set(plain)) < 4:  # noqa: PLR2004 - `aaaabbbb` is as easy to guess as `aaaaaaaa`
        return _("This password is easy to guess. Choose a longer one, such as three or four words.")
    if any(plain in _plain(one) or _stem(password) == _stem(one) for one in about):
        return _("Do not use your name, business or phone number as the password.")
    return None


def _plain(text: str) -> str:
    return "".join(one for one in text.casefold() if one.isalnum())


def _stem(text: str) -> str:
    """Return a name without the figures that people add to make a password of it."""
    plain = _plain(text)
    return plain.strip("0123456789") or plain[-9:]
