"""Principals, the two kinds of people who sign in, and the browser that they use."""

from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Final
from uuid import UUID

_OPERATOR: Final = "operator:"


class PrincipalKind(Enum):
    CUSTOMER = auto()
    OPERATOR = auto()


@dataclass(frozen=True, slots=True)
class Principal:
    """A person of a customer, or an operator: whose sessions, codes and attempts these are."""

    kind: PrincipalKind
    id: UUID
    phone: str

    @property
    def subject(self) -> str:
        return subject_of(self.kind, self.phone)


def subject_of(kind: PrincipalKind, phone: str) -> str:
    """Return the key of attempts and known devices: a number may be a customer's and an operator's."""
    return _OPERATOR + phone if kind is PrincipalKind.OPERATOR else phone


def is_operator(subject: str) -> bool:
    return subject.startswith(_OPERATOR)


@dataclass(frozen=True, slots=True)
class Browser:
    """The browser from which a person signs in, signs up or asks for a code."""

    address: str
    user_agent: str
    # The session that the browser had. It ends when another begins, so that nobody can plant one.
    old_token: str | None
    # The token that the browser got at its last sign-in.
    device: str | None = None

    @property
    def device_sha256(self) -> bytes | None:
        return None if self.device is None else sha256(self.device.encode()).digest()
