"""The examples in `deploy/`, tried with the programs that they are for."""

import re
import shlex
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import pytest

from tests.support.chaos.balancers import (
    DEPLOY,
    balancer_environment,
    find_program,
    nginx_whole,
    run_balancer,
)
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import Service
from tests.support.webhooks.receivers import Authority
from tumira import serve as node_processes
from tumira import server
from tumira.cli.main import main
from tumira.core import settings as config
from tumira.delivery import supervisor

UNITS: Final = sorted((DEPLOY / "systemd").iterdir())
SERVICES: Final = [unit for unit in UNITS if unit.suffix == ".service"]
INSTALLED: Final = "/opt/tumira/.venv/bin/tumira"
# For what comes before and after the waits that have a limit.
MARGIN_S: Final = 5
# What every service of ours gives up.
HARDENED: Final = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "User": "tumira",
    "StateDirectory": "tumira",
    "EnvironmentFile": "/etc/tumira/tumira.env",
}


def settings_of(unit: Path) -> list[tuple[str, str]]:
    lines = [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def named_settings() -> set[str]:
    sources = "".join(path.read_text() for path in Path(config.__file__).parent.glob("*.py"))
    return {f"TUMIRA_{name}" for name in re.findall(r'"([A-Z][A-Z_]+)"', sources)}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: install systemd")
    for other in UNITS:
        text = other.read_text().replace(INSTALLED, str(CHECKOUT / ".venv" / "bin" / "tumira"))
        # Where it is installed is not where this test runs.
        (tmp_path / other.name).write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / unit.name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_runs_a_command_that_exists_with_settings_that_exist_and_few_rights(unit: Path) -> None:
    pairs = settings_of(unit)
    (started,) = [value for name, value in pairs if name == "ExecStart"]
    words = shlex.split(started)
    if words[0] == "/bin/sh":
        words = shlex.split(words[2])[1:]
    program, command, *options = words
    assert program == INSTALLED
    with click.Context(main) as context:
        found = main.get_command(context, command)
        assert found is not None
        known = {option for parameter in found.params for option in parameter.opts}
    assert {option for option in options if option.startswith("-")} <= known

    set_here = {value.partition("=")[0] for name, value in pairs if name == "Environment"}
    assert set_here <= named_settings()
    assert HARDENED.items() <= dict(pairs).items()


def test_nobody_is_killed_who_is_still_draining() -> None:
    web, worker, serve = (
        dict(settings_of(DEPLOY / "systemd" / f"{name}.service"))
        for name in ("tumira-web", "tumira-worker", "tumira")
    )
    # The last of its environment is what the unit file says itself.
    drain_wait_s = int(web["Environment"].removeprefix("TUMIRA_DRAIN_WAIT="))
    assert int(web["TimeoutStopSec"]) >= drain_wait_s + server.DRAIN_S + MARGIN_S
    assert int(worker["TimeoutStopSec"]) >= supervisor.DRAIN_S + supervisor.RECORD_S + MARGIN_S
    assert int(serve["TimeoutStopSec"]) >= 3 * node_processes.STOP_S + MARGIN_S
    # And the balancer has looked elsewhere before the wait is over.
    looks = re.search(r"inter (\d+)s fall (\d+)", (DEPLOY / "haproxy.cfg").read_text())
    assert looks is not None
    assert int(looks[1]) * int(looks[2]) + MARGIN_S <= drain_wait_s


def test_haproxy_takes_our_example(tmp_path: Path) -> None:
    program = find_program("haproxy")
    Authority(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text((tmp_path / "authority.pem").read_text() + (tmp_path / "authority.key").read_text())
    text = (DEPLOY / "haproxy.cfg").read_text()
    assert "/etc/haproxy/sms.example.pem" in text
    settings = tmp_path / "haproxy.cfg"
    settings.write_text(text.replace("/etc/haproxy/sms.example.pem", str(both)))
    done = subprocess.run(
        [program, "-c", "-f", settings],
        env=balancer_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_nginx_takes_our_example(tmp_path: Path) -> None:
    program = find_program("nginx")
    Authority(tmp_path)
    text = (DEPLOY / "nginx.conf").read_text()
    for ending in ("pem", "key"):
        assert f"/etc/nginx/sms.example.{ending}" in text
        text = text.replace(f"/etc/nginx/sms.example.{ending}", str(tmp_path / f"authority.{ending}"))
    settings = tmp_path / "nginx.conf"
    settings.write_text(nginx_whole(text, tmp_path))
    done = subprocess.run(
        [program, "-t", "-p", tmp_path, "-c", settings],
        env=balancer_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


# How /metrics can be written: with escapes, twice escaped, as a whole URL, with more slashes and dots.
SPELLINGS: Final = (
    "/metrics",
    "/%6detrics",
    "/%6Detrics",
    "/metric%73",
    "/%2Fmetrics",
    "/%2e/metrics",
    "/%256detrics",
    "/metrics?a=b",
    "/metrics#a",
    "/metrics%23a",
    "/metrics%3Fa",
    "/metrics/",
    "/metrics%2F",
    "/metrics;a",
    "//metrics",
    "/./metrics",
    "/docs/../metrics",
    "/docs/%2e%2e/metrics",
    "http://sms.example/metrics",
    "http://sms.example/%6detrics",
)


@pytest.mark.parametrize("name", ["haproxy", "nginx", None])
def test_nobody_from_outside_reads_metrics_however_they_spell_it(
    service: Service, name: str | None, tmp_path: Path
) -> None:
    """Without a proxy in front, the application shows them under their own name alone."""
    port = int(service.base.rpartition(":")[2])
    with ExitStack() as stack:
        if name is not None:
            balancer = stack.enter_context(run_balancer(name, [port, port], tmp_path))
            balancer.wait_until_used(2)
            port = int(balancer.base.rpartition(":")[2])
        assert b"alive" in fetch(port, "/healthz")
        shown = {target for target in SPELLINGS if b"tumira_" in fetch(port, target)}
        ready = {target for target in ("/readyz", "/%72eadyz") if b"ready" in fetch(port, target)}
    own = {"/metrics", "/metrics?a=b", "http://sms.example/metrics"}
    assert (shown, ready) == ((own, {"/readyz"}) if name is None else (set(), set()))


def fetch(port: int, target: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 30) as line:
        line.sendall(f"GET {target} HTTP/1.1\r\nHost: sms.example\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: line.recv(65_536), b""))
