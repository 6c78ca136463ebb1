"""A service with some of everything that pages can show, for tests in a browser."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Final
from uuid import UUID

from tests.support.identity.members import add, invite, link_and_code
from tests.support.identity.operators import OperatorBrowser, new_operator
from tests.support.identity.people import Person, new_phone, run_behind_proxy, sign_up
from tests.support.papers import ISSUER
from tests.support.processes.service import Service
from tests.support.schedules.sends import ACTOR, make_due, schedule, start_due
from tumira.audit_log import Actor
from tumira.carriers.manage import add_carrier, add_http_carrier, new_access
from tumira.carriers.routes.manage import add_route, set_rate
from tumira.contacts import manage as lists
from tumira.contacts import manage_texts as texts
from tumira.content import near_line
from tumira.content import review as content_review
from tumira.content.near_line_store import MarkedSend
from tumira.content.store import digest_of
from tumira.core.days import local_day
from tumira.core.histogram import bucket_of
from tumira.core.ids import (
    ACCOUNT,
    BATCH,
    CONTACT_LIST,
    ENDPOINT,
    MESSAGE,
    SAVED_TEXT,
    SCHEDULE,
    SENDER_NAME,
    TOP_UP,
    UPLOAD,
    VOUCHER,
    AccountId,
    ContactListId,
    EndpointId,
    EventId,
    ReplyId,
    TopUpId,
    UploadId,
    new_id,
    read_id,
    write_id,
)
from tumira.delivery.store import latency as latencies
from tumira.events import NewEvent, record_events
from tumira.identity import manage_accounts
from tumira.identity.roles import MemberRole
from tumira.papers.issue import find_or_issue
from tumira.postgres.pool import Database
from tumira.replies import opt_outs
from tumira.replies import store as replies
from tumira.replies.opt_outs import OptOutSource
from tumira.replies.store import Reply
from tumira.schedules.manage import cancel
from tumira.sender_names import manage as sender_names
from tumira.sender_names.manage import NameRequest
from tumira.sender_names.places import Place
from tumira.sending.low_balance import low_balance_data
from tumira.topups import store as top_ups
from tumira.topups.issue_vouchers import issue_vouchers
from tumira.topups.settle import settle
from tumira.topups.states import (
    Currency,
    Expired,
    Method,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    Reversed,
    StillPending,
)
from tumira.topups.store import NewTopUp
from tumira.uploads.send import send_next_chunk
from tumira.webhooks import attempts
from tumira.webhooks.attempts import Attempt

ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
LONG: Final = "Kubatana-Tose-Trading-Enterprises-" * 3
HOOK: Final = "http://127.0.0.1:9/hook"
LONG_HOOK: Final = HOOK + "/" + "a-path-without-an-end-" * 12
NETWORKS: Final = (("Econet", "ZW"), ("NetOne", "ZW"), ("Vodacom", "ZA"), ("Cell C", "ZA"), ("ZA", "ZA"))
ATTEMPTS: Final = 30
REPLIER: Final = "+263771200001"
# Of the phrase that all developers know; it guards nothing.
XPUB: Final = (
    "xpub6Ce9NcJvTk36xtLSrJLZqE7wtgA5deCeYs7rSQtreh4cj6ByPtrg9sD7V2FNFLPnf8heNP3FGkeV9qwfzvZNSd54JoNXVsXFY"
    "SYwHsnJxqP"
)
SUPPORT: Final = {
    "TUMIRA_SUPPORT_PHONE": "+263 77 120 0001",
    "TUMIRA_SUPPORT_EMAIL": "help@an-address-as-long-as-some-are.example",
    "TUMIRA_SUPPORT_WHATSAPP": "+27 82 123 0001",
}
SELLER: Final = {
    "TUMIRA_SELLER_NAME": LONG[:100],
    "TUMIRA_SELLER_ADDRESS": "12 Samora Machel Avenue, Harare",
    "TUMIRA_SELLER_TAX_NUMBER": "220012345",
    "TUMIRA_SELLER_TAX_RATE": "15",
}
# The pages of the ways to pay ask nobody before a form is posted.
PAYMENTS: Final = {
    "TUMIRA_PAYNOW_URL": "http://127.0.0.1:9",
    "TUMIRA_PAYNOW_ID": "1201",
    "TUMIRA_PAYNOW_KEY": "3e9fed89-60e1-4ce5-ab6e-6b1eb2d4f977",
    "TUMIRA_USDT_RPC_URLS": "http://127.0.0.1:9",
    "TUMIRA_USDT_CONTRACT": "0x55d398326f99059ff775485246999027b3197955",
    "TUMIRA_USDT_XPUB": XPUB,
}

_references: Final = iter(range(10_000))


@dataclass(frozen=True, slots=True)
class FullService:
    """The service, a customer and an operator who are signed in, and the addresses of what there is."""

    service: Service
    person: Person
    admin: OperatorBrowser
    paths: dict[str, str]


def _add_schedules(service: Service, account_id: AccountId) -> dict[str, str]:
    """Add sends that wait, that were cancelled and that were not made."""
    numbers = [f"+2637712{number:05}" for number in range(12)]
    waiting, cancelled, late = [service.run(schedule, account_id, numbers) for _ in range(3)]
    assert service.run(cancel, account_id, cancelled, ACTOR)
    service.run(make_due, late, timedelta(hours=7))
    assert service.run(start_due) == 1
    return {"schedule": write_id(SCHEDULE, waiting)}


@contextmanager
def run_full_service(server_url: str) -> Iterator[FullService]:
    settings = {"TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1", **PAYMENTS, **SUPPORT, **SELLER}
    with run_behind_proxy(server_url, **settings) as service:
        _add_carriers(service)
        person = sign_up(service, business=LONG[:100])
        account_id = account_of(service, person)
        paths = {
            **_add_traffic(service, person),
            **_add_account_facts(service, account_id),
            **_add_refusal(service, account_id),
            **_add_sender_names(service, account_id),
            **_add_endpoints(service, person),
            **_add_upload(person),
            **_add_results(service, person),
            **_add_schedules(service, account_id),
            **_add_replies(service, account_id),
            **_add_lists(service, account_id),
            **_add_people(service, person),
        }
        add_receipts(service)
        _add_routes(service, account_id)
        _add_system(service)
        yield FullService(service, person, new_operator(service, name="Rudo Admin"), paths)


def _add_replies(service: Service, account_id: AccountId) -> dict[str, str]:
    service.run(_insert_replies, account_id)
    return {"replier": REPLIER[1:]}


async def _insert_replies(database: Database, account_id: AccountId) -> None:
    now = datetime.now(UTC)
    texts = ("Thanks", "STOP", LONG, None, "Misa", "<b>" + "w" * 300)
    async with database.transaction() as connection:
        for owner in (account_id, None):
            for place, text in enumerate(texts):
                reply = Reply(
                    id=ReplyId(new_id(int(now.timestamp() * 1000) + place)),
                    account_id=owner,
                    carrier_id=1,
                    number=REPLIER,
                    destination="33123",
                    text=text,
                    parts=1,
                    total=1 + place % 2,
                    message_id=None,
                    meaning={"STOP": "stop", "Misa": "maybe_stop"}.get(text or ""),
                    received_at=now,
                )
                await replies.insert(connection, reply)
        await opt_outs.add(connection, account_id, [REPLIER, "+27821230001"], OptOutSource.REPLY)


def _add_lists(service: Service, account_id: AccountId) -> dict[str, str]:
    """Add a list with long names, a contact who opted out and one page more, and a text that is refused."""
    owner = Actor("owner")
    numbers = [REPLIER, *(f"+2637712{place:05}" for place in range(60))]
    list_id = service.run(lists.create_list, account_id, LONG[:60], owner, numbers)
    for column in ("Amount", LONG[:40], "Town", "Street", "Due date"):
        service.run(lists.add_column, account_id, list_id, column, owner)
    cells = [LONG, "12.50", "a" * 100, "", "", ""]
    service.run(_put_contact, account_id, list_id, cells)
    service.run(lists.create_list, account_id, "Staff", owner)
    text_id = service.run(texts.save_text, account_id, LONG[:60], f"Dear {{name}}: {ADVERT}", owner)
    return {
        "list": write_id(CONTACT_LIST, list_id),
        "contact": REPLIER[1:],
        "text": write_id(SAVED_TEXT, text_id),
    }


async def _put_contact(
    database: Database, account_id: AccountId, list_id: ContactListId, cells: Sequence[str]
) -> None:
    await lists.put_contact(database, account_id, list_id, REPLIER, cells, None, ACTOR, before=REPLIER)


def account_of(service: Service, person: Person) -> AccountId:
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    return AccountId(row["id"])


def _add_carriers(service: Service) -> None:
    url = "smpp://tumira:secret@smpp.example.com?binds=2&window=64&tps=200"
    for place, name in enumerate(("main", "a-name-as-long-as-a-name-can-be-1")):
        service.run(add_carrier, name[:32], url, ["ZW", "ZA"] if place else None, place)
    access = new_access("bulksms", "https://api.bulksms.com/v1", {"user": LONG[:60]}, {"password": "secret"})
    service.run(add_http_carrier, "over-http", access, None, 9)
    service.sql("UPDATE http_carriers SET balance = 1234.5, currency = 'credits', balance_at = now()")
    service.sql(
        "INSERT INTO binds (carrier_id, number, worker, leased_until, state, problem, outstanding, pace)"
        " SELECT id, number, 'gateway-node-1.example.com:12345:abcdef', now() + interval '1 hour',"
        "        CASE number WHEN 1 THEN 'bound' ELSE 'down' END,"
        "        CASE number WHEN 2 THEN 'smpp.example.com:2775 did not answer in 10 s; check host and port'"
        "        END, 17 * number, 100"
        "   FROM carriers, generate_series(1, 2) AS number WHERE name = 'main'"
    )
    now = datetime.now(UTC)
    for outcome, count in (("sent", 12_345), ("delivered", 11_111), ("ABSENT_SUBSCRIBER", 400)):
        service.sql(
            "INSERT INTO outcomes SELECT $1, id, 'Econet', 'ZW', $2, $3 FROM carriers WHERE name = 'main'",
            latencies.slot_of(now - timedelta(minutes=1)),
            outcome,
            count,
        )
    for place, (network, country) in enumerate(NETWORKS):
        for back, ms in ((0, 30_000 if network == "NetOne" else 180), (48, 240)):
            for step, lane, factor in (("handover", 0, 1), ("handover", 1, 400), ("receipt", 0, 30)):
                service.sql(
                    "INSERT INTO latencies VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
                    latencies.slot_of(now - timedelta(hours=back)),
                    step,
                    network,
                    country,
                    lane,
                    bucket_of(ms * factor),
                    12_345 >> 3 * place,
                )


def _add_routes(service: Service, account_id: AccountId) -> None:
    service.run(set_rate, "ZAR", Decimal("0.055"))
    for country, network, name, cost, currency in (
        ("ZW", "econet", "main", "0.011", "USD"),
        ("ZW", None, "a-name-as-long-as-a-name-can-be-1", "0.041234", "USD"),
        ("ZA", "telkom", "main", "0.2", "ZAR"),
        ("ZA", None, "main", None, "USD"),
    ):
        service.run(
            add_route,
            country=country,
            network=network,
            carrier=name[:32],
            priority=10,
            cost=None if cost is None else Decimal(cost),
            currency=currency,
        )
    service.sql(
        "INSERT INTO margin_days SELECT (now() + interval '2 hours')::date, carrier_id, 'ZW', network, $1,"
        "                               1234567, 89, 13580.123456, 49382.68, 12.04"
        "   FROM generate_series(0, 2) AS carrier_id, unnest(ARRAY['econet', 'other']) AS network",
        account_id,
    )


def _add_people(service: Service, person: Person) -> dict[str, str]:
    """Add a person with a long name, and an invitation."""
    added = add(service, person, MemberRole.SENDER, name=LONG[:90])
    (row,) = service.sql("SELECT id FROM people WHERE phone = $1", added.phone)
    invited = new_phone()
    invite(person, invited, MemberRole.FINANCE)
    link, _code = link_and_code(service, invited)
    return {
        "member": write_id("per_", row["id"]),
        "join": link.rpartition("/")[2],
        "approval": _add_approval(person, added),
    }


def _add_approval(owner: Person, sender: Person) -> str:
    """Add a message that waits for the owner, and return the id of its approval."""
    rule = {"approval_above": "0", "password": owner.password}
    assert owner.browser.post("/dashboard/approvals", data=rule).headers["location"]
    draft = {
        "recipients": REPLIER + " +263771200002",
        "message": "Your order is on its way.",
        "reference": "",
    }
    page = sender.browser.post("/dashboard/compose", data=draft).text
    given = {name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page)}
    waits = sender.browser.post("/dashboard/compose/confirm", data=given)
    return str(waits.headers["location"].rpartition("/")[2])


def _add_traffic(service: Service, person: Person) -> dict[str, str]:
    account_id = account_of(service, person)
    service.run(
        manage_accounts.credit, account_id, Decimal("1234567.89"), note="Cash " * 20, actor="cli:root"
    )
    (credit,) = service.sql("SELECT max(id) FROM transfers WHERE account_id = $1", account_id)
    # The page is longer with an address on it.
    person.browser.post("/dashboard/top-up/usdt")
    key = person.browser.post(
        "/dashboard/keys",
        data={"name": "x" * 90, "scope": ["messages:send", "account:read"], "password": person.password},
    )
    token = re.search(r"tmr_\w{26}_\w{32}", key.text)
    assert token is not None
    for number in range(3):
        sent = person.browser.post(
            "/api/v1/messages",
            headers={"Authorization": f"Bearer {token[0]}"},
            json={
                "channel": "sms",
                "to": [*(f"+26377120{place:04}" for place in range(20)), "+27821230001"],
                "body": f"Order {number} “is” on its way. " * 4 + "https://example.com/" + "long" * 20,
                "reference": "W" * 64,
            },
        )
        assert sent.status_code == 202, sent.text
    service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, failed, unconfirmed)"
        " SELECT $1, (now() + interval '2 hours')::date - back, country, 900 + 9 * back, 40, 5"
        "   FROM generate_series(0, 40) AS back, unnest(ARRAY['ZW', 'ZA']) AS country",
        account_id,
    )
    (row,) = service.sql(
        "SELECT id, batch_id FROM messages WHERE account_id = $1 ORDER BY id LIMIT 1", account_id
    )
    return {
        "batch": write_id(BATCH, row["batch_id"]),
        "message": write_id(MESSAGE, row["id"]),
        "key": f"key_{token[0].split('_')[1]}",
        "paper": _issue(service, account_id, credit["max"]),
        "month": f"{local_day(datetime.now(UTC)):%Y-%m}",
    }


def _issue(service: Service, account_id: AccountId, entry_id: int) -> str:
    paper = service.run(find_or_issue, ISSUER, account_id, entry_id)
    assert paper is not None
    return paper.number


def add_receipts(service: Service) -> None:
    """Keep receipts that match no message, though their ids look much like those of some."""
    service.sql("DELETE FROM queue")
    service.sql(
        "INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,"
        " submitted_at, answered_at)"
        " SELECT id, 1, 0, 1, right(recipient, 6), right(recipient, 6), now(), now(), now() FROM messages"
        " WHERE id IN (SELECT min(id::text)::uuid FROM messages WHERE status = 'queued'"
        "               GROUP BY recipient LIMIT 8)"
    )
    service.sql(
        "UPDATE messages SET status = 'sent', sent_at = now() WHERE id IN (SELECT message_id FROM parts)"
    )
    service.sql(
        "INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, error, receipt,"
        " received_at, next_try_at)"
        " SELECT 1, 'a-prefix-that-goes-on-and-on-' || right(recipient, 6), substr(recipient, 2), 'DELIVRD',"
        "        '000', '', now() + interval '1 second', now()"
        "   FROM messages WHERE id IN (SELECT message_id FROM parts) ORDER BY recipient"
    )


async def _start(database: Database, new: NewTopUp) -> None:
    async with database.transaction() as connection:
        await top_ups.insert(connection, new)


def add_top_up(service: Service, account_id: AccountId, *answers: ProviderAnswer) -> TopUpId:
    top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
    new = NewTopUp(top_up_id, account_id, Method.PAYNOW, "ecocash", Currency.USD, asked=Decimal(5))
    service.run(_start, new)
    for one in answers:
        service.run(settle, top_up_id, one)
    return top_up_id


def paid() -> Paid:
    return Paid(f"20261116-{next(_references):06}", Decimal(5))


def _add_account_facts(service: Service, account_id: AccountId) -> dict[str, str]:
    operator = Actor("operator:Rudo Operator", "198.18.0.1")
    service.run(manage_accounts.review, account_id, consent=True, actor=operator, note="By letter")
    service.sql(
        "INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes, last_used_at, revoked_at)"
        " SELECT uuidv7(), $1, 'Shop till ' || n, sha256('a'), '{account:read}', now(),"
        " CASE WHEN n > 2 THEN now() END FROM generate_series(1, 4) AS n",
        account_id,
    )
    add_top_up(service, account_id, Expired(), paid())
    add_top_up(service, account_id, paid(), Reversed("the customer's bank took it back"))
    service.sql("UPDATE accounts SET suspended_at = NULL WHERE id = $1", account_id)
    (voucher,) = service.run(
        issue_vouchers, Decimal(5), 1, note="For a shop", last_day=None, actor="cli:root"
    )
    credited = add_top_up(service, account_id, paid())
    doubt = add_top_up(
        service, account_id, StillPending("PN-7"), PaymentInDoubt("no answer within 45 seconds", is_last=True)
    )
    return {
        "account": write_id(ACCOUNT, account_id),
        "top_up": write_id(TOP_UP, credited),
        "doubt": write_id(TOP_UP, doubt),
        "voucher": write_id(VOUCHER, voucher.id),
    }


def _add_refusal(service: Service, account_id: AccountId) -> dict[str, str]:
    digest = digest_of(ADVERT)
    service.sql(
        "INSERT INTO content_refusals"
        " (account_id, digest, first_at, last_at, count, category, score, reasons)"
        """ VALUES ($1, $2, now(), now(), 3, 'offer', 0.99, '[{"words": "50% off", "category": "offer"}]')""",
        account_id,
        digest,
    )
    service.run(
        content_review.ask_review, account_id, digest, ADVERT, LONG, actor=Actor("owner", "198.18.0.1")
    )
    near = "Dear Rudo, " + LONG + " opens on Sunday at 8."
    service.run(near_line.record, [MarkedSend(account_id, 60, 0.34, near)])
    return {"digest": digest.hex(), "near_digest": digest_of(near).hex()}


def _add_sender_names(service: Service, account_id: AccountId) -> dict[str, str]:
    owner, operator = Actor("owner", "198.18.0.1"), Actor("operator:Rudo Operator", "198.18.0.1")
    paper = b"%PDF-1.7 registration"
    asked = [
        service.run(sender_names.ask, account_id, NameRequest(name, ["ZW", "ZA"], LONG, paper), owner)
        for name in ("WWWWWWWWWWW", "EcoCash Pay")
    ]
    note = "Granted by the networks on Friday"
    service.run(sender_names.grant, asked[0].id, Place("ZW"), note=note, actor=operator)
    service.run(sender_names.refuse, asked[0].id, Place("ZA"), note=LONG, actor=operator)
    service.sql(
        "INSERT INTO sender_refusals (carrier_id, sender, country, count)"
        " SELECT id, 'WWWWWWWWWWW', 'ZW', 12345 FROM carriers WHERE name = 'main'"
    )
    return {"sender_name": write_id(SENDER_NAME, asked[1].id)}


def _add_endpoints(service: Service, person: Person) -> dict[str, str]:
    added = [
        add_endpoint(person, HOOK, "Web shop"),
        add_endpoint(person, LONG_HOOK, "W" * 200),
        add_endpoint(person, HOOK + "/paused"),
        add_endpoint(person, HOOK + "/gone"),
    ]
    failing, gone = (read_id(ENDPOINT, text) for text in (added[1], added[3]))
    assert failing is not None
    person.browser.post(f"/dashboard/webhooks/{added[2]}/pause")
    service.sql(
        "UPDATE webhook_endpoints SET failures = 25, failing_since = now() - interval '2 hours',"
        " warnings = 1, rest_until = now() + interval '1 hour', succeeded_at = now() - interval '1 day'"
        " WHERE id = $1",
        failing,
    )
    service.sql(
        "UPDATE webhook_endpoints SET state = 'disabled', reason = 'It answered 410 Gone.' WHERE id = $1",
        gone,
    )
    attempt_id = service.run(_add_attempts, account_of(service, person), EndpointId(failing))
    return {"endpoint": added[1], "paused": added[2], "gone": added[3], "attempt": attempt_id}


def add_endpoint(person: Person, url: str, description: str = "") -> str:
    form = {"url": url, "description": description, "type": "balance.low"}
    page = person.browser.post("/dashboard/webhooks", data={**form, "password_for_url": person.password})
    found = re.search(r"/dashboard/webhooks/(end_\w+)\">Test the endpoint", page.text)
    assert found is not None, page.text
    return found[1]


async def _add_attempts(database: Database, account_id: AccountId, endpoint_id: EndpointId) -> str:
    now = datetime.now(UTC)
    answers = ((204, None, ""), (500, None, "<h1>Oops</h1>" * 60), (None, "Connection refused.", ""))
    async with database.transaction() as connection:
        data = low_balance_data(Decimal("0.96"), Decimal(1))
        await record_events(connection, [NewEvent(account_id, "balance.low", data=data)] * ATTEMPTS, now)
        rows = await connection.fetch(
            "SELECT id, sequence FROM events WHERE account_id = $1 AND type = 'balance.low'"
            " ORDER BY sequence DESC LIMIT $2",
            account_id,
            ATTEMPTS,
        )
        made = []
        for place, row in enumerate(rows):
            status, problem, answer = answers[place % 3]
            at = now + timedelta(milliseconds=place)
            made.append(
                Attempt(
                    new_id(int(at.timestamp() * 1000)),
                    endpoint_id,
                    EventId(row["id"]),
                    row["sequence"],
                    "balance.low",
                    1 + place % 3,
                    at,
                    37 * place,
                    status,
                    problem,
                    answer,
                    None if status == 204 else at + timedelta(minutes=5),
                )
            )
        await attempts.insert_attempts(connection, made)
    return write_id("att_", made[1].id)


def _add_upload(person: Person) -> dict[str, str]:
    rows = [f"077120{place:04},Short {place}" for place in range(4)]
    rows += [f"+2637712{place:05},Person {place}" for place in range(40)]
    checked = person.browser.post(
        "/dashboard/upload",
        data={"message": "Dear {name}, your parcel is at the desk. Collect it by Friday."},
        files={"file": ("customers.csv", "\n".join(["to,name", *rows]).encode(), "text/csv")},
    )
    path = checked.headers["location"]
    upload_id = read_id(UPLOAD, path.rpartition("/")[2])
    assert upload_id is not None
    return {"upload": write_id(UPLOAD, upload_id)}


def _add_results(service: Service, person: Person) -> dict[str, str]:
    """Add a batch and a file that are completed, with some failures each."""
    rows = [f"+2637713{place:05},Person {place}" for place in range(1200)]
    checked = person.browser.post(
        "/dashboard/upload",
        data={"message": "Dear {name}, your parcel is at the desk. Collect it by Friday."},
        files={"file": (f"{LONG}.csv", "\n".join(["to,name", *rows, "12,Nobody"]).encode(), "text/csv")},
    )
    path = checked.headers["location"]
    sent = person.browser.post(f"{path}/send", data={"agreed": "48.0000"})
    assert sent.headers["location"] == path, sent.text
    for _ in range(2):
        service.run(send_next_chunk, UploadId(UUID(int=0)))
    ended = service.sql(
        "UPDATE batches SET status = 'completed', pending = 0, completed_at = now()"
        " WHERE id IN (SELECT id FROM batches WHERE account_id = $1 ORDER BY id DESC LIMIT 3) RETURNING id",
        account_of(service, person),
    )
    ids = sorted(row["id"] for row in ended)
    service.sql(
        "UPDATE messages SET failure_reason = CASE WHEN recipient LIKE '%7' THEN 'ABSENT_SUBSCRIBER' END,"
        " status = CASE WHEN recipient LIKE '%7' THEN 'undelivered' ELSE 'delivered' END"
        " WHERE batch_id = ANY($1::uuid[])",
        ids,
    )
    return {"failed": write_id(BATCH, ids[0]), "sent": path.rpartition("/")[2]}


def _add_system(service: Service) -> None:
    service.sql("INSERT INTO workers (id) VALUES ('worker-with-a-long-name.example:4711:0123abcd')")
    service.sql(
        "INSERT INTO audits (asked_by, started_at, finished_at, broken) VALUES ('cli:root', now(), now(),"
        """ '{"balance": [{"account_id": "01a1e3e8-8720-7e72-9f64-dbc7935f15cc", "balance": "7.0000"}]}')"""
    )
    service.sql(
        "INSERT INTO price_schedule (channel, country, price_usd, from_at, set_by)"
        " VALUES ('sms', 'ZW', 0.05, now() + interval '9 days', $1)",
        LONG,
    )
