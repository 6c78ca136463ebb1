"""PostgreSQL's programs for backups."""

from pathlib import Path

import pytest

from tumira.operations.backup.programs import ProgramResult, Programs, complaint, environment_for

HOSTS = (
    "postgresql://us%40er:p%3Aw@h1:5433,h2,[::1]:5434/d%20b?target_session_attrs=read-write&sslmode=require"
)


def variables(url: str) -> dict[str, str]:
    kept = {"PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGOPTIONS", "PGSSLMODE"}
    kept.add("PGTARGETSESSIONATTRS")
    return {name: value for name, value in environment_for(url).items() if name in kept}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            HOSTS,
            {
                "PGHOST": "h1,h2,::1",
                "PGPORT": "5433,,5434",
                "PGUSER": "us@er",
                "PGPASSWORD": "p:w",
                "PGDATABASE": "d b",
                "PGSSLMODE": "require",
                "PGTARGETSESSIONATTRS": "read-write",
            },
        ),
        (
            "postgresql://tumira@/tumira?host=/a%20b/run&port=5432",
            {"PGHOST": "/a b/run", "PGPORT": "5432", "PGUSER": "tumira", "PGDATABASE": "tumira"},
        ),
        (
            "postgres://h/d?user=u&password=secret&search_path=one two&options=-c%20jit=off",
            {
                "PGHOST": "h",
                "PGUSER": "u",
                "PGPASSWORD": "secret",
                "PGDATABASE": "d",
                "PGOPTIONS": "-c jit=off -c search_path=one\\ two",
            },
        ),
        ("postgresql://", {}),
    ],
)
def test_a_url_is_the_same_to_libpq(
    url: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGOPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert variables(url) == expected


def test_a_database_may_have_any_name() -> None:
    found = Programs(Path("/"), environment_for("postgresql://h/it's%20a=b"))
    assert found.database == r"dbname='it\'s a=b'"


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (["pg_dump: error: connection failed: FATAL:  no such role"], 1, "pg_dump says: no such role"),
        (["pg_dump: error: first", "pg_dump: error: second"], 1, "pg_dump says: first"),
        ([], -11, "pg_dump was ended by signal 11 and said nothing."),
        ([], 3, "pg_dump ended with code 3 and said nothing."),
    ],
)
def test_a_complaint_is_one_line(said: list[str], code: int, words: str) -> None:
    assert complaint(ProgramResult("pg_dump", code, said)) == words
