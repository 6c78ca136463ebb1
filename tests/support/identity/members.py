"""People of one account, in every role."""

from collections.abc import Mapping
from typing import Final

import httpx

from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    Person,
    goes_to,
    new_browser,
    new_phone,
    texts_to,
)
from tests.support.processes.service import Service
from tumira.identity.roles import MemberRole

PEOPLE: Final = "/dashboard/people"


def invite(owner: Person, phone: str, role: MemberRole, password: str | None = None) -> httpx.Response:
    typed = owner.password if password is None else password
    return owner.browser.post(PEOPLE, data={"phone": phone, "role": role.value, "password": typed})


def link_and_code(service: Service, phone: str) -> tuple[str, str]:
    """Return the path of the link and the code in the newest invitation to a number."""
    text = texts_to(service, phone)[-1]
    link = next(word for word in text.split() if "/dashboard/join/" in word)
    code = next(word.strip(".") for word in text.split() if word.strip(".").isdigit() and len(word) >= 6)
    return link[link.index("/dashboard/") :], code


def add(
    service: Service, owner: Person, role: MemberRole, name: str = "Rudo Dube", phone: str | None = None
) -> Person:
    """Invite a person who has no login, and let them join."""
    phone = phone or new_phone()
    invited = invite(owner, phone, role)
    assert goes_to(invited) == f"{PEOPLE}?done=invited", invited.text
    path, code = link_and_code(service, phone)
    browser = new_browser(service)
    joined = browser.post(path, data={"code": code, "name": name, "password": PASSWORD})
    assert goes_to(joined) == "/dashboard", joined.text
    assert SESSION in browser.cookies
    return Person(browser, phone, PASSWORD)


def one_of_each(service: Service, owner: Person) -> Mapping[MemberRole, Person]:
    others = [role for role in MemberRole if role is not MemberRole.OWNER]
    return {MemberRole.OWNER: owner} | {role: add(service, owner, role) for role in others}
