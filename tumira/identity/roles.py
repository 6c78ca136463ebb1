"""Roles of people in an account, and what each may do."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from tumira.core.translation import mark


class Permission(StrEnum):
    """What a page or form needs."""

    # The overview, batches, messages, replies and results; and one's own login.
    READ = "read"
    # Compose, upload, opt-outs and reviews of refused texts.
    SEND = "send"
    # Top-ups, the ledger, receipts and statements.
    MONEY = "money"
    # API keys, webhooks, lifetimes of messages and the passcode guard.
    DEVELOP = "develop"
    # People, limits, sender names, the history and closing the account.
    OWN = "own"


class MemberRole(StrEnum):
    """What a person is in an account."""

    OWNER = "owner"
    DEVELOPER = "developer"
    FINANCE = "finance"
    SENDER = "sender"
    VIEWER = "viewer"


PERMISSIONS: Final[Mapping[MemberRole, AbstractSet[Permission]]] = {
    MemberRole.OWNER: frozenset(Permission),
    MemberRole.DEVELOPER: {Permission.READ, Permission.DEVELOP},
    MemberRole.FINANCE: {Permission.READ, Permission.MONEY},
    MemberRole.SENDER: {Permission.READ, Permission.SEND},
    MemberRole.VIEWER: {Permission.READ},
}

ROLE_NAMES: Final = {
    MemberRole.OWNER: mark("Owner"),
    MemberRole.DEVELOPER: mark("Developer"),
    MemberRole.FINANCE: mark("Finance"),
    MemberRole.SENDER: mark("Sender"),
    MemberRole.VIEWER: mark("Viewer"),
}
ROLE_MEANINGS: Final = {
    MemberRole.OWNER: mark("everything, including people and limits"),
    MemberRole.DEVELOPER: mark("API keys, webhooks and technical settings"),
    MemberRole.FINANCE: mark("top-ups, ledger and statements"),
    MemberRole.SENDER: mark("compose, upload and opt-outs"),
    MemberRole.VIEWER: mark("reads batches, messages and replies"),
}
