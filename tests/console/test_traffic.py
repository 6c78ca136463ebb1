"""The console's traffic and the customers' network health show what was counted, and no more."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
import pytest

from tests.support.identity.customers import words
from tests.support.identity.people import new_browser, sign_up
from tests.support.processes.service import Service
from tumira.core.histogram import bucket_of
from tumira.core.ids import new_id
from tumira.dashboard.pages.health import FEWER, NORMAL, SLOWER, TOO_FEW, Board, Network, read_health
from tumira.delivery.store import latency as latencies
from tumira.operations import totals
from tumira.operations.totals import HourAccepted
from tumira.postgres.pool import Database

TRAFFIC: Final = "/operator/traffic"
NOW: Final = TRAFFIC + "/now"
HEALTH: Final = "/dashboard/health"


@pytest.fixture(autouse=True)
def _nothing_counted(service: Service) -> None:
    service.sql("TRUNCATE latencies, outcomes, queue, retries, in_flight, traffic")
    service.sql("WITH gone AS (DELETE FROM messages) DELETE FROM batches")


def slot(back: timedelta = timedelta()) -> datetime:
    return latencies.slot_of(datetime.now(UTC) - back)


def took(service: Service, ms: int, count: int, **at: Any) -> None:
    """Count messages that took so long to be submitted, or with another `step` to be delivered."""
    values: dict[str, Any] = {"back": timedelta(), "step": "handover", "network": "Econet", "country": "ZW"}
    values |= {"lane": 0} | at
    service.sql(
        "INSERT INTO latencies VALUES ($1, $2, $3, $4, $5, $6, $7)",
        slot(values.pop("back")),
        *values.values(),
        bucket_of(ms),
        count,
    )


def ended(
    service: Service, outcome: str, count: int, back: timedelta = timedelta(), network: str = "Econet"
) -> None:
    service.sql("INSERT INTO outcomes VALUES ($1, 1, $2, 'ZW', $3, $4)", slot(back), network, outcome, count)


def rows(page: str, part: str) -> list[list[str]]:
    found = re.search(rf'data-live="{part}">(.*?)</tbody>', page, re.DOTALL)
    assert found is not None, part
    lines = re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
    return [[words(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)] for line in lines]


def test_traffic_shows_what_came_in_what_went_out_and_how_long_it_took(
    service: Service, viewer: httpx.Client
) -> None:
    caller = service.open_account()
    service.send(caller, to=["+263771200001", "+263771200002", "+27821230001"])
    took(service, 150, 90)
    took(service, 70_000, 10)
    took(service, 3_600_000, 5, lane=1, back=timedelta(minutes=30))
    took(service, 150, 7, network="Vodacom", country="ZA")
    took(service, 150, 1000, back=timedelta(hours=2))
    ended(service, "delivered", 80)
    ended(service, "undelivered", 6)
    ended(service, "UNKNOWN_SUBSCRIBER", 6)
    ended(service, "failed", 3, back=timedelta(minutes=30))
    service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, failed)"
        " SELECT gen_random_uuid(), (now() + interval '2 hours')::date - 3, country, delivered, failed"
        "   FROM (VALUES ('ZW', 900, 100), ('ZW', 900, 100), ('ZA', 100, 0))"
        "     AS ended (country, delivered, failed)"
    )
    page = viewer.get(TRAFFIC).text
    assert 'role="img" aria-label="2,103 messages in the last 30 days' in page
    assert "South Africa 100% delivered 100 100 0 0 Zimbabwe 90.0% delivered 2,000 1,800 200 0" in words(page)
    assert rows(page, "lately-flows") == [
        ["South Africa", "1", "7", "0", "0"],
        ["Zimbabwe", "2", "100", "80", "6"],
        ["All", "3", "107", "80", "6"],
    ]
    assert rows(page, "hour-flows")[1:] == [
        ["Zimbabwe", "2", "105", "80", "9"],
        ["All", "3", "112", "80", "9"],
    ]
    small, bulk = rows(page, "lately-lanes")
    assert small[:2] == ["Up to 10 recipients", "107"]
    assert small[2].endswith(" ms")
    assert [time.endswith(" s") for time in small[3:]] == [True, True]
    assert bulk == ["More than 10", "0", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}"]
    assert rows(page, "hour-lanes")[1][2].endswith(" min")
    assert [row[:3] for row in rows(page, "stands")] == [
        ["South Africa", "Up to 10 recipients", "1"],
        ["Zimbabwe", "Up to 10 recipients", "2"],
    ]
    # What the script asks for is the same, without the page around it.
    part = viewer.get(NOW).text
    assert "<h1" not in part
    assert rows(part, "hour-lanes") == rows(page, "hour-lanes")


def test_an_empty_gateway_says_so_and_what_waits_has_an_age(service: Service, viewer: httpx.Client) -> None:
    page = viewer.get(TRAFFIC)
    assert page.status_code == 200
    assert page.text.count("<h1") == 1
    said = words(page.text)
    assert "No messages are waiting." in said
    assert "No messages in this time." in said
    assert rows(page.text, "lately-flows") == [["All", "0", "0", "0", "0"]]
    nothing = ["0", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}"]
    assert rows(page.text, "lately-lanes") == [["Up to 10 recipients", *nothing], ["More than 10", *nothing]]
    old_ms = int((datetime.now(UTC) - timedelta(hours=3)).timestamp() * 1000)
    service.sql("INSERT INTO queue (country, lane, turn, message_id) VALUES ('ZW', 1, 5, $1)", new_id(old_ms))
    service.sql("INSERT INTO retries SELECT gen_random_uuid(), now(), true, 1 FROM generate_series(1, 3)")
    text = viewer.get(TRAFFIC).text
    assert rows(text, "stands") == [["Zimbabwe", "More than 10", "1", "3 h"]]
    assert "Being submitted 0 Waiting to retry 0 In doubt 3" in words(text)


def chart_of(page: str, section: str) -> tuple[str, list[list[str]]]:
    """Return what a chart says in words, and the rows of its table."""
    found = re.search(rf'<section class="card" aria-labelledby="{section}">(.*?)</section>', page, re.DOTALL)
    assert found is not None, section
    summary = re.search(r'role="img" aria-label="([^"]*)"', found[1])
    assert summary is not None, section
    table = found[1][found[1].index("<tbody>") :]
    lines = re.findall(r"<tr>(.*?)</tr>", table)
    return summary[1], [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]


def test_charts_show_the_last_24_hours_by_the_hour(service: Service, viewer: httpx.Client) -> None:
    caller = service.open_account()
    service.send(caller, to=["+263771200001", "+263771200002", "+27821230001"])
    two, long_ago = timedelta(hours=2), timedelta(hours=30)
    took(service, 150, 90, back=two)
    took(service, 70_000, 10, back=two)
    reasons = (
        "UNKNOWN_SUBSCRIBER",
        "NO_ROUTE",
        "ABSENT_SUBSCRIBER",
        "HANDSET_ERROR",
        "UNKNOWN",
        "QUEUE_EXPIRED",
    )
    for outcome, count in (("sent", 100), ("delivered", 79), ("failed", 20), ("expired", 1)):
        ended(service, outcome, count, back=two)
        ended(service, outcome, 5_000, back=long_ago)
    for count, reason in enumerate(reversed(reasons), start=1):
        ended(service, reason, count, back=two)
    ended(service, "RTHROTTLED (0x58)", 7, back=two)
    page = viewer.get(TRAFFIC).text
    summary, table = chart_of(page, "messages")
    assert summary.endswith(": Accepted 3 · Submitted 100 · Delivered 79 · Failed 21")
    assert [row[1:] for row in table] == [["3", "0", "0", "0"], ["0", "100", "79", "21"]]
    at = (slot(two) + timedelta(hours=2)).strftime("%-d %b, %H:00")
    assert table[1][0] == at
    _, table = chart_of(page, "times")
    assert [row[0] for row in table] == [at]
    assert (table[0][1][-3:], table[0][2][-2:], table[0][3][-2:]) == (" ms", " s", " s")
    summary, table = chart_of(page, "reasons")
    assert summary.endswith(
        ": UNKNOWN_SUBSCRIBER 6 · NO_ROUTE 5 · ABSENT_SUBSCRIBER 4 · HANDSET_ERROR 3 · Other 3"
    )
    assert [row[1:] for row in table] == [["21", "6", "5", "4", "3", "3"]]
    # Every figure says since when it counts.
    said = words(page)
    assert re.search(r"By the hour since \d+ \w{3}, \d\d:00\. The last hour is counted from \d\d:00\.", said)
    assert len(re.findall(r"Since \d\d:\d0 Messages by country", said)) == 2


def test_messages_accepted_in_a_busy_hour_are_estimated(service: Service) -> None:
    caller = service.open_account()
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for second in range(4):
        at = hour + timedelta(seconds=second)
        service.sql(
            "INSERT INTO batches (id, account_id, created_at, recipients, pending, segments, total_cost,"
            " status, channel) VALUES ($1, $2, $3, 10, 10, 1, 0, 'queued', 'sms')",
            new_id(int(at.timestamp() * 1000)),
            caller.id,
            at,
        )

    async def accepted(database: Database, batches_max: int) -> Sequence[HourAccepted]:
        async with database.connection() as connection:
            hours = [hour - timedelta(hours=1), hour]
            return await totals.accepted_by_hour(
                connection, hours, hour + timedelta(seconds=100), batches_max
            )

    before, now = service.run(accepted, 5)
    assert (before.count, now.count, now.is_estimate) == (0, 40, False)
    # Twenty in the first second, so two thousand in a hundred.
    assert service.run(accepted, 2)[1] == HourAccepted(hour, 2_000, is_estimate=True)


def health(service: Service) -> dict[str, Network]:
    countries = service.run(read_health, datetime.now(UTC))
    return {network.name: network for country in countries for network in country.networks}


def test_networks_are_told_apart_and_fewer_than_twenty_messages_tell_nothing(service: Service) -> None:
    took(service, 150, 20)
    took(service, 150, 19, network="NetOne")
    took(service, 4_000, 25, step="receipt", back=timedelta(hours=3))
    took(service, 9_000_000, 5_000, lane=1)
    ended(service, "delivered", 18)
    ended(service, "failed", 2)
    ended(service, "RSYSERR (0x08)", 500)
    found = health(service)
    hour, six, day = found["Econet"].rows
    assert hour.handover is not None
    assert (hour.handover[0].endswith(" ms"), hour.receipt, hour.delivered) == (True, None, "90.0%")
    assert six.receipt is not None
    assert six.receipt[0].endswith(" s")
    assert day.delivered == "90.0%"
    assert found["Econet"].word == NORMAL
    assert found["NetOne"].word == TOO_FEW
    assert all((row.handover, row.receipt, row.delivered) == (None,) * 3 for row in found["NetOne"].rows)


def test_a_network_is_compared_with_its_last_seven_days(service: Service) -> None:
    for network, ms in (("Econet", 150), ("NetOne", 150), ("Telecel", 30_000)):
        took(service, ms, 5_000, network=network, back=timedelta(days=2))
        ended(service, "delivered", 950, network=network, back=timedelta(days=2))
        ended(service, "undelivered", 50, network=network, back=timedelta(days=2))
    took(service, 20_000, 50, network="Econet")
    took(service, 200, 50, network="NetOne")
    ended(service, "delivered", 40, network="NetOne")
    ended(service, "undelivered", 10, network="NetOne")
    # Slow, as it always is.
    took(service, 40_000, 50, network="Telecel")
    words_of = {name: network.word for name, network in health(service).items()}
    assert words_of == {"Econet": SLOWER, "NetOne": FEWER, "Telecel": NORMAL}


async def test_the_figures_are_read_again_after_a_minute(service: Service) -> None:
    moment = 0.0
    board = Board(lambda: moment)
    database = Database(service.url, connections_max=1)
    assert await board.look(database) == []
    took(service, 150, 20)
    assert await board.look(database) == []
    moment = 61.0
    assert [country.name for country in await board.look(database)] == ["Zimbabwe"]
    await database.close()


def test_a_customer_reads_the_networks_health(service: Service) -> None:
    took(service, 150, 40)
    took(service, 150, 40, network="Vodacom", country="ZA")
    took(service, 150, 10, network="ZW")
    person = sign_up(service)
    overview = person.browser.get("/dashboard").text
    assert f'<a href="{HEALTH}">Network health</a>' in overview
    page = person.browser.get(HEALTH).text
    assert page.count("<h1") == 1
    said = words(page)
    assert "Econet Normal" in said
    assert f"Zimbabwe, other networks {TOO_FEW}" in said
    assert "Numbers in South Africa can move to another network, so these figures are estimates." in said
    assert "Numbers in Zimbabwe can move" not in said
    answer = new_browser(service).get(HEALTH)
    assert answer.headers["location"].startswith("/dashboard/sign-in")
