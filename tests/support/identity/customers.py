"""A customer who is signed in by a row in the database, with an API key."""

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from tests.support.processes.service import NO_TLS, Caller, Service
from tumira.core.ids import new_id
from tumira.identity.send_codes import hash_token, new_token

ONE: Final = "+263771200001"


@dataclass(frozen=True, slots=True)
class Customer:
    service: Service
    caller: Caller
    token: str

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        return httpx.request(
            method,
            self.service.base + path,
            headers={
                "Cookie": f"tumira_session={self.token}",
                "Sec-Fetch-Site": "same-origin",
                **(headers or {}),
            },
            timeout=30,
            trust_env=False,
            verify=NO_TLS,
            **body,
        )

    def ask(self, path: str, /, method: str = "GET", **query: str) -> httpx.Response:
        return self.request(method, path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, /, **fields: str) -> httpx.Response:
        # A form of which no field was filled in is still one.
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.request("POST", path, form, content=urlencode(fields))

    def page(self, path: str, /, **query: str) -> str:
        response = self.ask(path, **query)
        assert response.status_code == 200, response.text
        assert response.text.count("<h1") == 1
        return response.text

    def receipt(self, path: str) -> str:
        """Return the page of the paper that a top-up or a ledger entry leads to."""
        answer = self.ask(path + "/receipt")
        assert answer.status_code == 303, answer.text
        return self.page(answer.headers["location"])

    def table(self, path: str, /, **query: str) -> Sequence[Mapping[str, str]]:
        response = self.ask(path, **query)
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        assert response.headers["content-disposition"].startswith("attachment; ")
        return list(csv.DictReader(io.StringIO(response.text, newline="")))

    def send(self, *to: str, **fields: Any) -> str:
        response = self.service.send(self.caller, to=list(to or (ONE,)), **fields)
        assert response.status_code == 202, response.text
        batch_id: str = response.json()["batch_id"]
        return batch_id


def open_session(service: Service, caller: Caller) -> str:
    token = new_token()
    service.sql(
        "INSERT INTO sessions (id, token_sha256, account_id, address, browser)"
        " VALUES ($1, $2, $3, '127.0.0.1', 'test')",
        new_id(int(datetime.now(UTC).timestamp() * 1000)),
        hash_token(token),
        caller.id,
    )
    return token


def words(page: str) -> str:
    main = page[page.index("<main") :] if "<main" in page else page
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def link(page: str, name: str) -> str | None:
    for attributes, inside in re.findall(r"<a ([^>]*)>(.*?)</a>", page, re.DOTALL):
        address = re.search(r'href="([^"]*)"', attributes)
        if words(inside) == name and address is not None:
            return html.unescape(address[1])
    return None
