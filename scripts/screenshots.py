"""Takes the pictures of the README from a running node with an invented customer.

`make screenshots` writes them again; it needs Chromium.
"""

import json
import random
import re
import time
from pathlib import Path
from typing import Final

import asyncpg
import httpx
from playwright.sync_api import Page

from tests.support.browser import run_browser
from tests.support.postgres.databases import complete
from tests.support.processes.programs import Node, new_home, running, tumira
from tumira.core.ids import ACCOUNT, read_id
from tumira.core.settings import load
from tumira.postgres.embedded import server as embedded

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
PHONE: Final = "+263771200100"
PASSWORD: Final = "three short words"  # noqa: S105 - of a customer who lives for a minute
TEXT: Final = "Moyo Stores: order 1042 is on its way and arrives today between 14:00 and 16:00."
WAIT_S: Final = 30
DAYS: Final = 29

SQL_PAST: Final = """
INSERT INTO traffic (account_id, day, country, delivered, undelivered, unconfirmed)
SELECT $1, current_date - day, country, delivered, lost, open
  FROM unnest($2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
       AS past (day, country, delivered, lost, open)
"""


def main() -> None:
    """Take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with new_home() as home, running(home) as node, run_browser() as browser:
        wide = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=node.base).new_page()
        small = browser.new_context(
            viewport={"width": 390, "height": 780}, device_scale_factor=2, base_url=node.base
        ).new_page()
        _sign_up(wide, node)
        _credit(node)
        small.context.add_cookies([{**one, "url": node.base} for one in _cookies(wide)])
        _compose(small)
        _send(wide)
        wide.goto("/dashboard")
        wide.get_by_role("button", name="Hide these steps").click()
        wide.get_by_role("button", name="Hide these steps").wait_for(state="detached")
        # Tall enough for the month of traffic.
        wide.set_viewport_size({"width": 1280, "height": 1080})
        _take(wide, "overview")
        wide.set_viewport_size({"width": 1280, "height": 800})
        _check_file(wide)


def _take(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png")
    print(f"docs/pictures/{name}.png")  # noqa: T201 - what a script does is printed


def _cookies(page: Page) -> list[dict[str, str]]:
    return [{"name": one["name"], "value": one["value"]} for one in page.context.cookies()]


def _sign_up(page: Page, node: Node) -> None:
    page.goto("/dashboard/sign-up")
    page.get_by_label("Full name").fill("Tariro Moyo")
    page.get_by_label("Business name").fill("Moyo Stores")
    page.get_by_label("Phone number").fill(PHONE)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    page.get_by_label("Verification code").fill(_code(node))
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("heading", name="Overview").wait_for()


def _code(node: Node) -> str:
    """Wait for the text with the code."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        texts = httpx.get(
            f"{node.base}/simulator/messages.json", params={"to": PHONE}, trust_env=False
        ).json()
        if texts:
            return re.findall(r"\b\d{6}\b", texts[-1]["text"])[0]
        time.sleep(0.1)
    raise SystemExit("No code came.")


def _credit(node: Node) -> None:
    """Give the customer a balance and a month of traffic."""
    accounts = json.loads(tumira("account", "list", "--json", **node.settings).stdout)
    account_id = next(one["account_id"] for one in accounts if one["phone"] == PHONE)
    tumira("account", "credit", account_id, "250", "--note", "EcoCash", **node.settings)
    complete(_add_past(node, account_id))


async def _add_past(node: Node, account_id: str) -> None:
    url = embedded.attach(load({f"TUMIRA_{k.upper()}": str(v) for k, v in node.settings.items()}).data_dir)
    if url is None:
        raise SystemExit("The node is gone.")
    chance = random.Random(7)  # noqa: S311 - guards no secret
    past = [
        (
            day,
            country,
            weight * chance.randint(60, 140),
            chance.randint(0, weight * 4),
            chance.randint(0, weight),
        )
        for day in range(1, DAYS + 1)
        for country, weight in (("ZW", 4), ("ZA", 2))
    ]
    connection = await asyncpg.connect(url)
    await connection.execute(SQL_PAST, read_id(ACCOUNT, account_id), *map(list, zip(*past, strict=True)))
    await connection.close()


def _compose(page: Page) -> None:
    page.goto("/dashboard/compose")
    page.get_by_label("Recipients").fill("+263771200001, +263771200002, +27821230003")
    page.get_by_label("Message").fill("Your order “1042” is on its way, thank you for your patience.")
    page.get_by_text("UCS-2", exact=True).wait_for()
    page.wait_for_timeout(2000)
    # Some way down, so that the count, the advice and the price are in the picture.
    page.get_by_label("Message").evaluate("(field) => window.scrollTo(0, field.offsetTop - 160)")
    _take(page, "compose")


def _send(page: Page) -> None:
    """Send to people some of whom cannot be reached."""
    page.goto("/dashboard/compose")
    numbers = [f"+26377120{place:04}" for place in range(40)] + [f"+2782123{place:04}" for place in range(20)]
    page.get_by_label("Recipients").fill("\n".join([*numbers, "+263771209901", "+263771209902"]))
    page.get_by_label("Message").fill(TEXT)
    page.get_by_label("Reference (optional)").fill("order-1042")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Confirm").click()
    page.get_by_text("completed", exact=True).first.wait_for(timeout=WAIT_S * 1000)
    page.reload()
    _take(page, "batch")


def _check_file(page: Page) -> None:
    rows = [f"077120{place:04},Chipo {place},{place * 7 % 90 + 10}.50" for place in range(120)]
    rows[3], rows[17], rows[40] = "07712,Rudo,12.00", "+14155550100,Sam,9.00", "0771200001,Chipo 1,17.50"
    page.goto("/dashboard/upload")
    page.get_by_label("CSV file").set_input_files(
        {
            "name": "balances.csv",
            "mimeType": "text/csv",
            "buffer": "\n".join(["phone,name,amount", *rows]).encode(),
        }
    )
    page.get_by_label("Message").fill("Dear {name}, your account at Moyo Stores stands at ${amount}.")
    page.get_by_label("Country of local numbers").select_option("ZW")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("Download rows left out").wait_for()
    _take(page, "upload")


if __name__ == "__main__":
    main()
