"""The plugin for WooCommerce: in Debian's WordPress, on a service, with a stand-in for WooCommerce itself."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import httpx
import pytest

from scripts.woocommerce import NAME, build
from tests.support.chaos.node import until
from tests.support.clients import CLIENTS, RUN_S, program
from tests.support.clients.faulty_proxy import Fault, faulty_proxy
from tests.support.clients.wordpress import PLUGIN, SETTINGS, Shop, form, open_shop
from tests.support.processes.programs import new_home, running, tumira
from tests.support.processes.service import Caller, Service
from tumira.api.docs.openapi import document
from tumira.audit_log import Actor
from tumira.identity import manage_accounts
from tumira.replies.manage import opt_out
from tumira.replies.opt_outs import OptOutSource
from tumira.webhooks.signature import read_secret, sign

FOLDER: Final = CLIENTS / "woocommerce"
SOURCES: Final = {
    file: file.read_text("utf-8") for file in [*FOLDER.glob("*.php"), *FOLDER.glob("src/*.php")]
}
ALL: Final = "".join(SOURCES.values())
SECRET: Final = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S


def test_what_needs_no_wordpress_passes_its_tests() -> None:
    done = subprocess.run(
        [program("php"), str(FOLDER / "tests" / "text.php")],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_archive_has_the_plugin_and_its_client_and_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip"):
        build(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with ZipFile(tmp_path / "one.zip") as archive:
        names = set(archive.namelist())
        loaded = archive.read(f"{NAME}/client/autoload.php").decode()
    assert {PLUGIN, f"{NAME}/README.md", f"{NAME}/LICENSE", f"{NAME}/client/src/Client.php"} <= names
    assert not [name for name in names if "test" in name or "Laravel" in name]
    (files,) = re.findall(r"\[(.+?)\]", loaded)
    for required in re.findall(r"'(\w+)'", files):
        assert f"{NAME}/client/src/{required}.php" in names
    for required in re.findall(r"'(\w+)'", re.search(r"foreach \(\[('Text'.+?)\]", ALL)[1]):  # type: ignore[index]
        assert f"{NAME}/src/{required}.php" in names


def test_the_version_follows_the_api_and_the_rules_of_wordpress_are_kept() -> None:
    version = json.loads(document())["info"]["version"]
    assert f" * Version: {version}\n" in ALL
    assert f" * Text Domain: {NAME}\n" in ALL
    # Every text can be translated, under the domain of the plugin.
    assert len(re.findall(rf"', '{NAME}'\)", ALL)) == len(re.findall(r"\b__\(", ALL)) > 30
    # Orders are not posts, so it works where they have tables of their own.
    assert not re.search(r"\b(get|update|add|delete)_post|\$post\b|WP_Query|wpdb|shop_order", ALL)
    assert not re.search(r"\becho\b|\bprint\b|\$_(GET|POST|REQUEST|COOKIE)", ALL)
    for file, source in SOURCES.items():
        assert "declare(strict_types=1);" in source, file


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with open_shop() as shop:
        yield shop
        assert shop.complaints() == []


@pytest.fixture
def caller(service: Service) -> Caller:
    return service.open_account("10")


def set_up(
    shop: Shop, url: str, key: str, status: str = "processing", text: str = "Order {order} is here."
) -> str:
    with shop.sign_in() as client:
        return shop.save_settings(
            client,
            {
                "tumira_url": url,
                "tumira_api_key": key,
                f"tumira_enabled[{status}]": "1",
                f"tumira_texts[{status}]": text,
            },
        )


def place_order(shop: Shop, phone: str = "077 120 0001", country: str = "ZW", name: str = "Rudo") -> str:
    return str(shop.run("order", json.dumps({"first_name": name, "phone": phone, "country": country})))


def sent(service: Service, caller: Caller) -> Sequence[tuple[str, str]]:
    rows = service.sql(
        "SELECT m.recipient, b.body FROM messages m JOIN batches b ON b.id = m.batch_id"
        " WHERE b.account_id = $1 ORDER BY m.id",
        caller.id,
    )
    return [tuple(row) for row in rows]


def pending(shop: Shop) -> Sequence[Any]:
    return [one for one in shop.run("actions") if one["status"] == "pending"]


@pytest.mark.long
def test_an_order_is_texted_once_and_never_during_checkout(shop: Shop) -> None:
    """A whole node: the text reaches the handset of the simulator, and the receipt comes back by webhook."""
    with new_home() as home, running(home, webhooks_allow_private=1) as node:
        account = json.loads(tumira("demo", "--json", **node.settings).stdout)
        url = f"{shop.base}/?rest_route=/tumira/v1/events"
        added = tumira(
            "webhook", "add", "--account", account["account_id"], "--url", url, "--json", **node.settings
        )
        assert added.returncode == 0, added.stderr
        with shop.sign_in() as client:
            told = shop.save_settings(
                client,
                {
                    "tumira_url": node.base,
                    "tumira_api_key": account["key"],
                    "tumira_webhook_secret": json.loads(added.stdout)["secret"],
                    "tumira_enabled[processing]": "1",
                    "tumira_texts[processing]": "Hi {name}, we have your order {order} ({total}). {shop}",
                },
            )
        assert "Processing: 1 segments, USD 0.0400 for each order to Zimbabwe" in told

        form = {"billing_first_name": "Rudo", "billing_phone": "077 120 0001", "billing_country": "ZW"}
        placed = shop.post("/?wc-ajax=checkout", data=form).json()
        assert placed["result"] == "success"
        order = str(placed["order_id"])
        assert handset(node.base) == []
        assert [one["status"] for one in shop.run("actions")] == ["pending"]

        assert shop.run("run") == 1
        until(lambda: len(handset(node.base)) == 1, "the text does not arrive")
        (text,) = handset(node.base)
        assert text["text"] == f"Hi Rudo, we have your order {order} (USD 12.50). Mbare & Sons"
        until(lambda: len(shop.run("notes", order)) == 2, "the receipt does not come")
        paid, delivered = shop.run("notes", order)
        assert re.fullmatch(
            r"Text for (?:\"|&quot;)Processing(?:\"|&quot;): sent for USD 0\.0400 \(bat_\w{26}\)\.", paid
        )
        assert delivered.endswith(": delivered.")

        # Neither later runs of the queue nor the same status again send it twice.
        assert pending(shop) == []
        shop.run("status", order, "on-hold")
        shop.run("status", order, "processing")
        assert shop.run("run", str(DAY_S)) == 1
        assert len(handset(node.base)) == 1
        assert len(shop.run("notes", order)) == 2


def handset(base: str) -> Any:
    answer = httpx.get(f"{base}/simulator/messages.json?to=%2B263771200001", trust_env=False)
    return answer.json()["messages"] if isinstance(answer.json(), dict) else answer.json()


@pytest.mark.long
def test_faults_delay_a_text_and_never_double_it(shop: Shop, service: Service, caller: Caller) -> None:
    faults = [
        (Fault.CUT_AFTER, Fault.CUT_BEFORE),
        (Fault.CUT_MIDDLE, Fault.UNAVAILABLE),
        (Fault.GATEWAY_AFTER, Fault.GARBAGE),
        (Fault.NOT_JSON, Fault.OTHER_JSON),
        (Fault.LIMITED, Fault.REDIRECT),
    ]
    with faulty_proxy(
        service.base, [Fault.PASS, *(one for both in faults for one in (*both, Fault.PASS))]
    ) as proxy:
        set_up(shop, proxy.base, caller.key)
        for _ in faults:
            order = place_order(shop)
            shop.run("status", order, "processing")
            assert shop.run("run") == 1
            (waiting,) = pending(shop)
            assert int(waiting["due"]) - time.time() <= 60
            (note,) = shop.run("notes", order)
            assert "not sent yet, and tried again for 24 hours" in note
            # An hour later.
            assert shop.run("run", str(HOUR_S)) == 1
            assert "sent for USD 0.0400" in shop.run("notes", order)[1]
            assert pending(shop) == []
    keys = [one.key for one in proxy.seen[1:]]
    assert len(set(keys)) == len(faults)
    assert len(sent(service, caller)) == len(faults)
    assert service.balance(caller) == 10 - len(faults) * Decimal("0.04")


@pytest.mark.long
def test_a_queue_that_is_killed_in_the_middle_of_a_try_sends_once(
    shop: Shop, service: Service, caller: Caller
) -> None:
    with faulty_proxy(service.base, [Fault.PASS, Fault.SLOW]) as proxy:
        set_up(shop, proxy.base, caller.key)
        order = place_order(shop)
        shop.run("status", order, "processing")
        with shop.start("run") as killed:
            until(lambda: len(proxy.seen) == 2, "the plugin does not call")
            until(lambda: len(sent(service, caller)) == 1, "the call is not carried out")
            killed.kill()
        assert shop.run("notes", order) == []
        assert shop.run("run", str(HOUR_S)) == 1
    assert len(sent(service, caller)) == 1
    (note,) = shop.run("notes", order)
    assert ": sent for USD 0.0400 (bat_" in note


@pytest.mark.long
def test_what_cannot_be_sent_is_noted_and_not_tried_again(
    shop: Shop, service: Service, caller: Caller
) -> None:
    set_up(shop, service.base, caller.key)
    service.run(opt_out, caller.id, ["+263771200002"], None, source=OptOutSource.REPLY, actor=Actor("test"))
    cases = {
        ("077 120 0002", "ZW"): "the customer replied STOP",
        ("+44 7700 900123", "GB"): "the number is in another country",
        ("07700 900123", "GB"): "the order has no mobile number",
        ("", "ZW"): "the order has no mobile number",
    }
    for (phone, country), reason in cases.items():
        order = place_order(shop, phone, country)
        shop.run("status", order, "processing")
        assert shop.run("run") == 1
        (note,) = shop.run("notes", order)
        assert reason in note
    # A text that the shop changed to an offer.
    told = set_up(shop, service.base, caller.key, text="Get 20% off your next order! Buy now.")
    assert "CONTENT_REJECTED" in told
    order = place_order(shop)
    shop.run("status", order, "processing")
    shop.run("run")
    (note,) = shop.run("notes", order)
    assert ": refused. CONTENT_REJECTED: " in note
    assert pending(shop) == []
    assert sent(service, caller) == []


@pytest.mark.long
def test_an_empty_balance_is_waited_for_and_an_outdated_text_is_not_sent(
    shop: Shop, service: Service
) -> None:
    caller = service.open_account("0.01")
    set_up(shop, service.base, caller.key)
    orders = [place_order(shop) for _ in range(3)]
    for order in orders:
        shop.run("status", order, "processing")
    assert shop.run("run") == len(orders)
    assert {"INSUFFICIENT_BALANCE" in shop.run("notes", order)[0] for order in orders} == {True}
    paid, moved, old = orders
    shop.run("status", moved, "cancelled")
    shop.run("age", old, "processing", str(DAY_S + 1))
    service.run(manage_accounts.credit, caller.id, Decimal(1), note="Test", actor="test")
    assert shop.run("run", str(HOUR_S)) == len(orders)
    assert "sent for USD 0.0400" in shop.run("notes", paid)[1]
    assert "the order has another status now" in shop.run("notes", moved)[1]
    assert "not sent within 24 hours" in shop.run("notes", old)[1]
    assert pending(shop) == []
    assert len(sent(service, caller)) == 1


@pytest.mark.long
def test_the_settings_keep_secrets_and_refuse_mistakes(shop: Shop, service: Service, caller: Caller) -> None:
    text = 'Fish & chips: "order" {order}\nis ready.'
    set_up(shop, service.base, caller.key, "completed", text)
    with shop.sign_in() as client:
        page = client.get(SETTINGS).text
        shown, secret = caller.key.rsplit("_", 1)
        assert f'placeholder="{shown}_…"' in page
        assert secret not in page
        assert form(page)["tumira_texts[completed]"] == text
        # An empty field keeps the key; a wrong address, an unknown place and a broken key are refused.
        told = shop.save_settings(
            client,
            {
                "tumira_url": "http://sms.example.com",
                "tumira_api_key": "two words",
                "tumira_texts[completed]": "Order {number} <script>alert(1)</script>",
            },
        )
        assert "beginning with https://" in told
        assert "API key: copy it without blanks." in told
        assert "There is no place {number}" in told
        page = client.get(SETTINGS).text
        assert (form(page)["tumira_url"], form(page)["tumira_texts[completed]"]) == (service.base, text)
        assert f'placeholder="{shown}_…"' in page
        refused = client.post(SETTINGS, data=form(page) | {"_wpnonce": "0", "tumira_url": ""})
        assert refused.status_code == httpx.codes.FORBIDDEN
    with shop.sign_in("reader") as client:
        assert client.get(SETTINGS).status_code == httpx.codes.FORBIDDEN
    options = shop.run("options")
    assert (options["tumira_api_key"], options["tumira_url"]) == ("no", "no")
    assert shop.run("declared") == {"custom_order_tables": PLUGIN, "cart_checkout_blocks": PLUGIN}


@pytest.mark.long
def test_a_wrong_phone_is_told_at_checkout(shop: Shop) -> None:
    wanted = {
        ("0242 700 000", "ZW"): "such as 077 120 0001 or +263771200001.",
        ("12", "ZA"): "such as 082 123 0001 or +27821230001.",
        ("077 120 0001", "ZW"): None,
        ("+263 (0)77 120-0001", "ZA"): None,
        ("", "ZW"): None,
        ("12", "GB"): None,
    }
    for (phone, country), problem in wanted.items():
        data = {"billing_first_name": "Rudo", "billing_phone": phone, "billing_country": country}
        answer = shop.post("/?wc-ajax=checkout", data=data).json()
        messages = answer.get("messages", [])
        assert [problem in one for one in messages] == ([] if problem is None else [True]), answer
        block = {"billing_address": {"first_name": "Rudo", "phone": phone, "country": country}}
        answered = shop.post("/?rest_route=/wc/store/v1/checkout", json=block)
        if problem is None:
            assert answered.json()["status"] == "processing"
        else:
            assert answered.status_code == httpx.codes.BAD_REQUEST
            assert (answered.json()["code"], problem in answered.json()["message"]) == (
                "tumira_invalid_phone",
                True,
            )
    # While the customer types, the block saves and says nothing.
    typing = {"billing_address": {"first_name": "Rudo", "phone": "07", "country": "ZW"}}
    saved = httpx.put(f"{shop.base}/?rest_route=/wc/store/v1/checkout", json=typing, trust_env=False)
    assert saved.json()["status"] == "pending"


@pytest.mark.long
def test_only_genuine_events_of_a_known_text_are_noted(shop: Shop, service: Service, caller: Caller) -> None:
    set_up(shop, service.base, caller.key)
    with shop.sign_in() as client:
        shop.save_settings(client, {"tumira_webhook_secret": SECRET})
    order = place_order(shop)
    shop.run("status", order, "processing")
    shop.run("run")
    ((reference,),) = service.sql("SELECT reference FROM batches WHERE reference LIKE $1", f"wc-%-{order}-%")
    (batch,) = re.findall(r"bat_\w{26}", shop.run("notes", order)[0])

    def deliver(
        sequence: int, *, secret: str = SECRET, kind: str = "message.undelivered", **data: str
    ) -> int:
        event = {
            "type": kind,
            "timestamp": "2026-11-15T08:30:00.123+00:00",
            "sequence": sequence,
            "data": {"reference": reference, "batch_id": batch} | data,
        }
        body, now = json.dumps(event).encode(), int(time.time())
        headers = {
            "webhook-id": "evt_1",
            "webhook-timestamp": str(now),
            "webhook-signature": sign([read_secret(secret)], "evt_1", now, body),
            "content-type": "application/json",
        }
        url = "/?rest_route=/tumira/v1/events"
        return shop.post(url, content=body, headers=headers).status_code

    assert deliver(1, secret="whsec_" + "A" * 44) == httpx.codes.BAD_REQUEST
    assert deliver(1, reference="wc-0-1042-processing") == httpx.codes.NO_CONTENT
    assert deliver(1, batch_id="bat_other") == httpx.codes.NO_CONTENT
    assert deliver(1, kind="message.sent") == httpx.codes.NO_CONTENT
    assert len(shop.run("notes", order)) == 1
    # Repeated, and late.
    assert {deliver(3), deliver(3), deliver(2, kind="message.delivered")} == {httpx.codes.NO_CONTENT}
    assert [note.partition(": ")[2] for note in shop.run("notes", order)][1:] == ["not delivered."]


@pytest.mark.long
def test_uninstalling_removes_the_settings(service: Service, caller: Caller) -> None:
    with open_shop() as shop:
        set_up(shop, service.base, caller.key)
        assert "tumira_api_key" in shop.run("options")
        shop.run("uninstall", PLUGIN)
        assert not shop.run("options")
        assert shop.complaints() == []
