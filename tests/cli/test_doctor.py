"""`tumira doctor` on a machine that serves, and on one on which nothing runs."""

import json
import socket
from pathlib import Path

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.postgres.moved_clock import find_library
from tests.support.processes.ports import free_port
from tests.support.processes.programs import finish, start
from tests.support.processes.service import wait_until_ready
from tests.support.webhooks.receivers import closed_port

SUBJECTS = (
    "memory",
    "open files",
    "processes",
    "user",
    "clock",
    "ports",
    "permissions",
    "database",
    "migrations",
    "carriers",
    "backup",
    "public URL",
    "proxy",
    "mail",
)


@pytest.mark.long
def test_a_machine_that_serves_is_checked(database_url: str, tmp_path: Path) -> None:
    port = free_port()
    web = start("web", database_url=database_url, port=port)
    cli = QuickCli(database_url, port=port, data_dir=tmp_path)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", web)
        report = cli.run("doctor", "--json")
        lines = cli.run("doctor")
    finally:
        web.terminate()
        finish(web)
    told = json.loads(report.stdout)
    checks = {(one["subject"], one["level"]): one for one in told["checks"]}
    assert {subject for subject, _ in checks} >= set(SUBJECTS)
    assert list(told["checks"][0]) == ["subject", "level", "found", "advice"]
    assert checks["ports", "ok"]["found"] == f"Tumira listens on port {port} (process {web.pid})."
    assert f":{web.pid}." in checks["public URL", "ok"]["found"]
    assert ("proxy", "ok") in checks
    assert ("carriers", "warning") in checks
    # The server of the tests saves time, and is found out.
    problems = [one["found"] for one in told["checks"] if one["level"] == "problem"]
    assert told["ok"] is not bool(problems)
    assert (report.returncode, lines.returncode) == (int(bool(problems)), int(bool(problems)))
    assert f"Tumira listens on port {port}" in lines.stdout


def test_a_machine_on_which_nothing_runs_is_checked_without_a_database(tmp_path: Path) -> None:
    cli = QuickCli("", port=free_port(), simulator_port=free_port(), data_dir=tmp_path / "data")
    report = cli.run("doctor", "--json")
    checks = [(one["subject"], one["level"]) for one in json.loads(report.stdout)["checks"]]
    assert (report.returncode, report.stderr) == (0, "")
    assert ("database", "warning") in checks
    assert ("public URL", "warning") in checks
    assert not (tmp_path / "data").exists()


def test_a_database_that_is_away_hides_no_other_check(tmp_path: Path) -> None:
    cli = QuickCli("postgresql://nobody@127.0.0.1:1/nothing", port=free_port(), data_dir=tmp_path)
    done = cli.run("doctor")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["problem", "database", "The", "database", "cannot", "be", "reached;"] in [
        one[:7] for one in lines
    ]
    assert {"memory", "ports", "permissions", "mail"} <= {one[1] for one in lines}
    assert done.stderr.endswith("checks found a problem; the arrows say what to do.\n")


@pytest.mark.long
def test_everything_that_is_wrong_is_named_with_what_to_do(database_url: str, tmp_path: Path) -> None:
    """One machine with all faults, and the command as a process of its own."""
    (tmp_path / ".env").write_text("")
    (tmp_path / ".env").chmod(0o644)
    late = ("env", f"LD_PRELOAD={find_library()}", "FAKETIME=+300s", "FAKETIME_DONT_FAKE_MONOTONIC=1")
    with closed_port() as closed, socket.create_server(("127.0.0.1", 0)) as other:
        nowhere = f"127.0.0.1:{closed}"
        cli = QuickCli(database_url)
        assert cli.run("carrier", "add", "econet", f"smpp://user:pw@{nowhere}").returncode == 0
        done = finish(
            start(
                *("doctor", "--json"),
                prefix=("prlimit", "--nofile=512:512", *late),
                cwd=tmp_path,
                database_url=database_url,
                data_dir=tmp_path / "data",
                port=other.getsockname()[1],
                smtp_url=f"smtp://{nowhere}",
                mail_from="sms@sms.example",
                public_url=f"http://{nowhere}",
                trusted_proxies="*",
            )
        )
    assert done.returncode == 1, done.stderr
    found = {one["subject"]: one for one in json.loads(done.stdout)["checks"] if one["level"] == "problem"}
    advice = {
        "clock": "Synchronise the clock",
        "ports": "or set TUMIRA_PORT to another port",
        "open files": "LimitNOFILE=",
        "permissions": f"chmod 600 {tmp_path}/.env",
        "carriers": "tumira carrier show econet",
        "mail": "Check TUMIRA_SMTP_URL",
        "public URL": "Check TUMIRA_PUBLIC_URL",
        "proxy": "Name the addresses of your proxies",
    }
    assert {name: found[name]["advice"].count(words) for name, words in advice.items()} == dict.fromkeys(
        advice, 1
    )
