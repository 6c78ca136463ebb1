"""The image and the compose file: what they promise, and the image built, run and started again.

The base of the image is made by debootstrap. The compose file is read, and its proxy is tried alone: no
container engine runs here.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any, Final

import click
import pytest
import yaml  # type: ignore[import-untyped]

from tests.operations.test_deploy import SPELLINGS, fetch, named_settings
from tests.support.chaos.node import until
from tests.support.install.debian import RELEASES, need_debootstrap
from tests.support.install.environments import client_of, deliver
from tests.support.install.image import CONTAINERFILE, ContainedNode, Image, built_image
from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import Service
from tumira.cli.main import main

FOLDER: Final = CONTAINERFILE.parent
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
NODES: Final = ("tumira", "web", "worker")
RUNS_S: Final = 5400
# The keys of a service that we use, as the Compose Specification names them.
KEYS: Final = {
    *(
        "image",
        "build",
        "restart",
        "read_only",
        "tmpfs",
        "cap_drop",
        "cap_add",
        "security_opt",
        "environment",
    ),
    *("secrets", "profiles", "command", "volumes", "networks", "healthcheck", "stop_grace_period", "ports"),
}


def instructions() -> list[tuple[str, str]]:
    text = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_copies_files_that_exist_and_are_not_ignored() -> None:
    kept = [line[1:] for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    named = {file for files in copied for file in files}
    assert named == set(kept)
    assert all((CHECKOUT / file).exists() for file in named)


def test_the_image_runs_as_a_user_and_installs_the_pins() -> None:
    found = instructions()
    (user,) = [rest for name, rest in found if name == "USER"]
    assert int(user.partition(":")[0]) > 0
    # Nothing is done as root after the user was changed.
    assert not [name for name, _ in found[found.index(("USER", user)) :] if name in ("RUN", "COPY", "ADD")]
    assert any("--require-hashes" in rest and "requirements.txt" in rest for _, rest in found)
    assert {rest.split()[0] for name, rest in found if name == "FROM"} == {"${BASE}"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_few_rights_and_is_watched(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= KEYS
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"
    # Only the proxy is reached from outside, and what is named is declared.
    assert ("ports" in service) == (name == "proxy")
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    volumes = {line.partition(":")[0] for line in service.get("volumes", [])}
    assert {volume for volume in volumes if volume[0] != "."} <= set(COMPOSE["volumes"])
    assert all((FOLDER / volume).is_file() for volume in volumes if volume[0] == ".")


@pytest.mark.parametrize("name", NODES)
def test_a_node_runs_a_command_that_exists_with_settings_that_exist(name: str) -> None:
    service = SERVICES[name]
    command, *options = service["command"]
    with click.Context(main) as context:
        found = main.get_command(context, command)
    assert found is not None
    assert set(options) <= {option for parameter in found.params for option in parameter.opts}
    assert set(service["environment"]) <= named_settings()
    # Passwords come in a file, which the image reads where it works.
    (workdir,) = [rest for name, rest in instructions() if name == "WORKDIR"]
    assert service["secrets"] == [{"source": "settings", "target": f"{workdir}/.env"}]
    assert COMPOSE["secrets"] == {"settings": {"file": "./tumira.env"}}
    # The address of the proxy is the one that the nodes trust.
    proxy = SERVICES["proxy"]["networks"]["inside"]["ipv4_address"]
    assert service["environment"]["TUMIRA_TRUSTED_PROXIES"] == proxy


@pytest.fixture
def caddy() -> str:
    fetched = CHECKOUT / ".tools" / "caddy"
    found = which("caddy") or (str(fetched) if fetched.exists() else None)
    if found is None:
        pytest.skip("caddy is missing: run `sh scripts/peers.sh long`")
    return found


@pytest.mark.long
def test_caddy_terminates_tls_for_our_name(caddy: str) -> None:
    words = [caddy, "adapt", "--adapter", "caddyfile", "--config", f"{FOLDER}/Caddyfile"]
    environment = os.environ | {"TUMIRA_DOMAIN": "sms.example"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    (server,) = yaml.safe_load(done.stdout)["apps"]["http"]["servers"].values()
    assert server["listen"] == [":443"]
    assert '"dial":"node:8080"' in done.stdout


@pytest.mark.long
def test_nobody_from_outside_reads_metrics_through_caddy(
    caddy: str, service: Service, tmp_path: Path
) -> None:
    port = free_port()
    environment = os.environ | {
        "TUMIRA_DOMAIN": f"http://:{port}",
        "TUMIRA_UPSTREAM": service.base.removeprefix("http://"),
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    # Without its own port for commands, which another Caddy may have.
    text = "{\n\tadmin off\n}\n" + (FOLDER / "Caddyfile").read_text(encoding="utf-8")
    settings = tmp_path / "Caddyfile"
    settings.write_text(text, encoding="utf-8")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [caddy, "run", "--config", settings], env=environment, stdout=log, stderr=log
        )
    try:
        until(lambda: answers(port), "Caddy does not answer")
        shown = {target for target in SPELLINGS if b"tumira_" in fetch(port, target)}
        ready = {target for target in ("/readyz", "/%72eadyz") if b"ready" in fetch(port, target)}
        handsets = {
            target
            for target in ("/simulator", "/%73imulator", "/simulator/messages.json", "//simulator")
            if not fetch(port, target).startswith((b"HTTP/1.1 404", b"HTTP/1.1 308"))
        }
    finally:
        process.terminate()
        process.wait(30)
    assert (shown, ready, handsets) == (set(), set(), set())


def answers(port: int) -> bool:
    try:
        return b"alive" in fetch(port, "/healthz")
    except OSError:
        return False


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    need_debootstrap()
    with built_image(RELEASES[-1], tmp_path) as image:
        yield image


@pytest.mark.long
@pytest.mark.timeout(RUNS_S)
def test_the_image_is_built_runs_and_keeps_its_data(image: Image, tmp_path: Path) -> None:
    node = ContainedNode(image, tmp_path)
    node.start()
    try:
        node.wait_until_ready()
        key = node.json("demo")["key"]
        message = deliver(node, key)
        assert node.json("audit")["ok"] is True
        assert "Read-only file system" in node.run("/usr/bin/touch", "/opt/tumira/file").stderr
        assert node.run("/usr/bin/id", "-un").stdout == "tumira\n"
        assert node.stop() == 0, node.said()
        assert not re.search("warning|traceback", node.said(), re.IGNORECASE), node.said()
        node.log.unlink()
        node.start()
        node.wait_until_ready()
        with client_of(node, key) as client:
            assert client.get(f"/api/v1/messages/{message}").json()["data"]["status"] == "delivered"
        assert node.json("audit")["ok"] is True
        assert node.stop() == 0, node.said()
    finally:
        node.abandon()
