"""URLs of one or several servers."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from tumira.core.errors import OperatorError
from tumira.postgres.connect import _ARRAYS, HOSTS_MAX, Host, reach, read_address


@pytest.mark.parametrize(
    ("url", "hosts", "target"),
    [
        ("postgresql://u@db.example/tumira", [Host("db.example", 5432)], "any"),
        ("postgres://u:p@10.0.0.1:6000/tumira", [Host("10.0.0.1", 6000)], "any"),
        ("postgresql://u@h1:5432,h2:5433/db", [Host("h1", 5432), Host("h2", 5433)], "read-write"),
        (
            "postgresql://h1,h2/db?target_session_attrs=primary",
            [Host("h1", 5432), Host("h2", 5432)],
            "primary",
        ),
        ("postgresql://u@h1,h2/db?target_session_attrs=any", [Host("h1", 5432), Host("h2", 5432)], "any"),
        ("postgresql://u@[::1]:6000,[fd00::2]/db", [Host("::1", 6000), Host("fd00::2", 5432)], "read-write"),
        ("postgresql://u@/db?host=/run/postgresql&port=6000", [Host("/run/postgresql", 6000)], "any"),
        ("postgresql://u@%2Frun%2Fpostgresql/db", [Host("/run/postgresql", 5432)], "any"),
        ("postgresql://u@/db?host=h1,h2&port=6000", [Host("h1", 6000), Host("h2", 6000)], "read-write"),
        ("postgresql://u@/db?host=h1,h2&port=1,2", [Host("h1", 1), Host("h2", 2)], "read-write"),
        ("postgresql:///db", [], "any"),
        ("postgresql://u:a%40b%2Fc%23d@h1/db", [Host("h1", 5432)], "any"),
    ],
)
def test_a_url_names_its_hosts_in_order(url: str, hosts: list[Host], target: str) -> None:
    address = read_address(url)
    assert list(address.hosts) == hosts
    assert address.target == target


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u:secret@h/db", "does not begin with postgresql://"),
        ("secret", "does not begin with postgresql://"),
        ("postgresql://u:secret@h1,,h2/db", "no host in place 2"),
        ("postgresql://u:secret@:5432/db", "no host in place 1"),
        ("postgresql://u@/db?host=h1,&port=5432", "no host in place 2"),
        ("postgresql://u:secret@h1:5432,h2:secret/db", "port in place 2 that is not a number"),
        ("postgresql://u:secret@h1:0/db", "port in place 1 that is not a number"),
        ("postgresql://u:secret@h1:70000/db", "port in place 1 that is not a number"),
        ("postgresql://u@/db?host=h1,h2,h3&port=1,2", "3 hosts but 2 ports"),
        ("postgresql://u:secret@h1,h2/db?target_session_attrs=standby", "Tumira writes: use read-write"),
        ("postgresql://u:secret@h1,h2/db?target_session_attrs=secret", "do not exist: use read-write"),
        ("postgresql://u:sec@ret@h1/db", "write one that belongs to the password as %40"),
        ("postgresql://u:sec/ret@h1/db", "write them as %23 and %2F"),
        ("postgresql://u:sec#ret@h1/db", "write them as %23 and %2F"),
        ("postgresql://u@h1/db?secret", "cannot be read as a URL"),
        ("postgresql://u@[::1/db", "cannot be read as a URL"),
        ("postgresql://u@" + ",".join(["h"] * (HOSTS_MAX + 1)) + "/db", "names 6 hosts"),
    ],
)
def test_a_mistake_is_one_line_without_the_password(url: str, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        read_address(url)
    said = str(refused.value)
    assert words in said
    assert said.startswith("TUMIRA_DATABASE_URL ")
    assert "\n" not in said
    assert "sec" not in said


def test_a_host_is_written_as_in_a_url() -> None:
    assert [str(host) for host in (Host("h1", 1), Host("::1", 2), Host("/run", 3))] == [
        "h1:1",
        "[::1]:2",
        "/run",
    ]


async def test_lists_of_every_kind_need_no_question_about_their_types(server_url: str) -> None:
    wire = await reach(read_address(server_url), None)
    asked: list[str] = []
    wire.add_query_logger(lambda record: asked.append(record.query))
    now = datetime.now(UTC)
    try:
        for kind, value in (
            ("boolean", True),
            ("bytea", b"\0"),
            ("smallint", -1),
            ("integer", 2**31 - 1),
            ("bigint", 2**63 - 1),
            ("double precision", 0.1),
            ("date", now.date()),
            ("timestamptz", now),
            ("numeric", Decimal("0.0001")),
            ("uuid", UUID(int=1)),
        ):
            query = f"SELECT $1::{kind}[]"
            assert await wire.fetchval(query, [value, None]) == [value, None]
            # Loggers are called a moment later.
            await asyncio.sleep(0)
            assert asked == [query]
            asked.clear()
        described = await wire.fetch(
            "SELECT oid, typname, typelem, typdelim FROM pg_type WHERE oid = ANY($1::oid[])", list(_ARRAYS)
        )
        assert {row[0]: tuple(row)[1:] for row in described} == {
            number: (name, element, b",") for number, (name, element) in _ARRAYS.items()
        }
        assert await wire.fetchval("SELECT ARRAY['1 day'::interval]") == [timedelta(days=1)]
    finally:
        await wire.close()
