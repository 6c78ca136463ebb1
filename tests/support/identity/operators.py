"""Operators who sign in to the console with password and second factor."""

import re
from base64 import b32decode
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from typing import Final

import httpx

from tests.support.identity.people import new_browser, new_phone
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.identity import operators as operator_access
from tumira.identity import totp
from tumira.identity.store.operators import Role

COOKIE: Final = "tumira_operator"
PASSWORD: Final = "correct horse operator"


@dataclass(frozen=True, slots=True)
class OperatorBrowser:
    browser: httpx.Client
    phone: str
    name: str
    secret: bytes

    @property
    def cookie(self) -> str:
        return self.browser.cookies[COOKIE]

    def code(self, steps_ahead: int = 0) -> str:
        """Return the code that the device shows now, or some steps later; a step's code is accepted once."""
        return totp.authenticator(self.secret).at(datetime.now(UTC), steps_ahead)


def create(service: Service, role: Role = Role.ADMIN, name: str = "Rudo Operator") -> tuple[str, str]:
    """Add an operator as the command line does, and return their number and first password."""
    phone = new_phone()
    password = service.run(operator_access.create, phone=phone, name=name, role=role, actor=Actor("cli:test"))
    return phone, password


def read_secret(page: str) -> bytes:
    shown = re.search(r'<code id="secret"[^>]*>([A-Z2-7 =]+)</code>', page)
    assert shown is not None, page
    return b32decode(unescape(shown[1]).replace(" ", ""))


def new_operator(service: Service, role: Role = Role.ADMIN, name: str = "Rudo Operator") -> OperatorBrowser:
    phone, password = create(service, role, name)
    browser = new_browser(service)
    entered = browser.post("/operator/sign-in", data={"phone": phone, "password": password})
    assert entered.headers["location"] == "/operator/set-up", entered.text
    secret = read_secret(browser.get("/operator/set-up").text)
    code = totp.authenticator(secret).now()
    moved_in = browser.post("/operator/set-up", data={"password": PASSWORD, "code": code})
    assert "Recovery codes" in moved_in.text, moved_in.text
    return OperatorBrowser(browser, phone, name, secret)
