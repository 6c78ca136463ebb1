"""People who sign up and sign in over HTTP, with the code from the text message."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.support.postgres.databases import clone
from tests.support.processes.service import NO_TLS, Service, run_web
from tumira.accounts.store import SYSTEM
from tumira.pricing.phone_numbers import write_phone

PASSWORD: Final = "correct horse battery"
NAME: Final = "Tariro Moyo"
BUSINESS: Final = "Moyo Stores"

SESSION: Final = "tumira_session"
VERIFICATION: Final = "tumira_verification"
DEVICE: Final = "tumira_device"

NOTHING_KEPT: Final = httpx.Limits(max_keepalive_connections=0)

_phones: Final = iter(range(10_000))
_addresses: Final = iter(range(256, 65_536))
_ALERT: Final = re.compile(r'<div class="alert" role="alert">(.*?)</div>', re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_CODE: Final = re.compile(r"\b[0-9]{6}\b")


def new_phone() -> str:
    return f"+2782123{next(_phones):04}"


def new_address() -> str:
    """Return an address on the internet from which nobody has called yet."""
    number = next(_addresses)
    return f"198.18.{number >> 8}.{number & 255}"


@contextmanager
def run_behind_proxy(server_url: str, **environment: str) -> Iterator[Service]:
    """Run a service that trusts the tests' forwarded addresses, so that each browser has its own limits."""
    with clone(server_url) as url, run_web(url, TUMIRA_TRUSTED_PROXIES="127.0.0.1", **environment) as service:
        yield service


def new_browser(service: Service, address: str | None = None, **cookies: str) -> httpx.Client:
    """Return a browser somewhere on the internet, which keeps cookies and does not follow redirects."""
    return httpx.Client(
        base_url=service.base,
        headers={"X-Forwarded-For": address or new_address(), "Sec-Fetch-Site": "same-origin"},
        cookies=cookies,
        # No connection outlives its answer, so that nobody has to close a browser.
        limits=NOTHING_KEPT,
        timeout=30,
        trust_env=False,
        verify=NO_TLS,
    )


@dataclass(frozen=True, slots=True)
class Person:
    """A customer and their browser."""

    browser: httpx.Client
    phone: str
    password: str

    @property
    def session(self) -> str:
        return self.browser.cookies[SESSION]


def filled(phone: str, **fields: str) -> dict[str, str]:
    """Return the form of a sign-up, filled in sensibly where nothing is given."""
    return {"name": NAME, "business": BUSINESS, "phone": phone, "email": "", "password": PASSWORD} | fields


def begin_sign_up(browser: httpx.Client, phone: str, **fields: str) -> httpx.Response:
    return browser.post("/dashboard/sign-up", data=filled(phone, **fields))


def verify(browser: httpx.Client, code: str) -> httpx.Response:
    return browser.post("/dashboard/verify", data={"code": code})


def sign_in(browser: httpx.Client, phone: str, password: str = PASSWORD, **fields: str) -> httpx.Response:
    return browser.post("/dashboard/sign-in", data={"phone": phone, "password": password} | fields)


def set_password(browser: httpx.Client, code: str, password: str) -> httpx.Response:
    return browser.post("/dashboard/new-password", data={"code": code, "password": password})


def texts_to(service: Service, phone: str) -> Sequence[str]:
    rows = service.sql(
        "SELECT b.body FROM batches b JOIN messages m ON m.batch_id = b.id"
        " WHERE b.account_id = $1 AND m.recipient = $2 ORDER BY b.id",
        SYSTEM,
        phone,
    )
    return [row["body"] for row in rows]


def code_in(text: str) -> str:
    (code,) = _CODE.findall(text)
    return str(code)


def code_to(service: Service, phone: str) -> str:
    return code_in(texts_to(service, phone)[-1])


def mail_code_to(service: Service, email: str) -> str:
    rows = service.sql("SELECT body FROM mails WHERE recipient = $1 ORDER BY id DESC LIMIT 1", email)
    return code_in(rows[0]["body"])


def guessed(
    service: Service, phone: str, times: int, kind: str = "password", address: str | None = None
) -> None:
    """Record guesses by strangers for a number, all from one address or each from another."""
    service.sql(
        "INSERT INTO attempts (kind, phone, address)"
        " SELECT $1, $2, coalesce($4, '203.0.113.' || n) FROM generate_series(1, $3::int) n",
        kind,
        phone,
        times,
        address,
    )


def another(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06}"


def sign_up(service: Service, phone: str | None = None, **fields: str) -> Person:
    browser = new_browser(service)
    number = phone or new_phone()
    begun = begin_sign_up(browser, number, **fields)
    assert goes_to(begun) == "/dashboard/verify", begun.text
    verified = verify(browser, code_to(service, number))
    assert goes_to(verified) == "/dashboard", verified.text
    return Person(browser, number, fields.get("password", PASSWORD))


def goes_to(answer: httpx.Response) -> str | None:
    """Return where an answer sends the browser; None if it shows a page."""
    if answer.status_code != httpx.codes.SEE_OTHER:
        return None
    return answer.headers["location"]


def is_signed_in(browser: httpx.Client) -> bool:
    return browser.get("/dashboard/keys").status_code == httpx.codes.OK


def alert(page: httpx.Response) -> str:
    """Return what a page says is wrong, as it is read; nothing if it says nothing."""
    found = _ALERT.search(page.text)
    return "" if found is None else " ".join(html.unescape(_TAG.sub(" ", found[1])).split())


def page_text(page: httpx.Response) -> str:
    """Return a page without the id of its request, in which two answers always differ."""
    return page.text.replace(page.headers["x-request-id"], "")


def refuses(answer: httpx.Response, words: str) -> bool:
    """Tell whether a form is shown again, and says this."""
    return answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY and words in alert(answer)


def pass_time(service: Service, phone: str, interval: str) -> None:
    for table, column in (("codes", "sent_at"), ("attempts", "at")):
        service.sql(
            f"UPDATE {table} SET {column} = {column} - '{interval}'::interval WHERE phone = $1", phone
        )


def count(service: Service, statement: str, *arguments: Any) -> int:
    return int(service.sql(statement, *arguments)[0][0])


def at_once(jobs: Sequence[Callable[[], httpx.Response]]) -> Sequence[httpx.Response]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [job.result() for job in [pool.submit(job) for job in jobs]]


# What differs between any two answers; the length goes with the text, which is compared itself.
_FLEETING: Final = frozenset({"date", "x-request-id", "set-cookie", "content-length"})
_SECONDS: Final = re.compile(r"in [0-9]+ seconds?")


def seen(answer: httpx.Response, phone: str) -> tuple[int, str, Sequence[tuple[str, str]], Sequence[str]]:
    """Return all that an answer shows, except the number and the seconds that passed."""
    headers = [(name, value) for name, value in answer.headers.items() if name not in _FLEETING]
    cookies = [re.sub(r"=[^;]*", "=", one, count=1) for one in answer.headers.get_list("set-cookie")]
    text = _SECONDS.sub("in some seconds", answer.text.replace(write_phone(phone), "NUMBER"))
    return answer.status_code, text, headers, cookies
