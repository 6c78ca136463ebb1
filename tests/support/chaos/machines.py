"""Machines with etcd, Patroni and PostgreSQL, set up by the files of `deploy/patroni`.

Only addresses, names, paths and passwords differ from the files, and the watchdog, which could restart the
machine of the tests. Processes die with the thread that started them: call all this from the main thread.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.chaos.namespaces import Network, Place
from tests.support.chaos.node import until
from tests.support.postgres.databases import execute
from tests.support.postgres.embedded import kill_processes
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import NO_TLS
from tumira.postgres.embedded.binaries import programs
from tumira.postgres.embedded.files import make_root, may, place_at, private_directory, server_user
from tumira.postgres.embedded.process import live_processes

DEPLOY: Final = CHECKOUT / "deploy" / "patroni"
TOOLS: Final = CHECKOUT / ".tools"
MACHINES: Final = ("db1", "db2", "db3")
# As the files name them.
EXAMPLES: Final = ("10.0.0.21", "10.0.0.22", "10.0.0.23")
NET: Final = "10.0.0.0/24"
ROLE: Final = "tumira"
STOP_S: Final = 30.0
REST_S: Final = 2.0


def find_etcd() -> str:
    """Return where etcd is; without it the test is left out."""
    fetched = TOOLS / "etcd" / "usr" / "bin" / "etcd"
    found = shutil.which("etcd") or (str(fetched) if fetched.exists() else None)
    if found is None:
        pytest.skip("etcd is missing: run `sh scripts/peers.sh long`")
    return found


def find_patroni(home: Path) -> Path:
    """Return the folder of Patroni's packages; a copy, if PostgreSQL's user cannot reach the fetched one."""
    fetched = TOOLS / "patroni"
    if not (fetched / "patroni" / "__init__.py").exists():
        pytest.skip("Patroni is missing: run `sh scripts/peers.sh long`")
    if may(server_user(), "-r", fetched / "patroni" / "__init__.py"):
        return fetched
    return Path(shutil.copytree(fetched, home / "packages"))


def find_python() -> str:
    """Return a Python of our version that PostgreSQL's user can run."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for program in (Path(sys.executable).resolve(), Path(f"/usr/bin/python{version}")):
        if may(server_user(), "-x", program):
            return str(program)
    pytest.skip(f"user {server_user().name} can run no Python {version}")


def read_settings() -> Any:
    """Return what `patroni.yml` says."""
    return yaml.safe_load((DEPLOY / "patroni.yml").read_text())


def read_etcd_settings() -> Mapping[str, str]:
    """Return the variables of `etcd.env`."""
    lines = (DEPLOY / "etcd.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class EtcdValue:
    """What Patroni keeps in etcd, and for how long unless it renews its lease; 0 without one."""

    text: str
    lease_s: int


class Machine:
    """One machine: an etcd, a Patroni, and the PostgreSQL that this Patroni starts."""

    def __init__(
        self, home: Path, place: Place, network: Network, secret: str, changes: Mapping[str, Any]
    ) -> None:
        self.name = place.name
        self.address = place.address
        self._place = place
        self._network = network
        self._secret = secret
        self._user = server_user()
        self._files = place_at(home / place.name)
        make_root(self._files, self._user)
        self._files.root.chmod(0o755)
        for path in (self._files.socket_dir, self.cluster, self._files.root / "private"):
            private_directory(path, self._user)
        self._settings = self._files.root / "patroni.yml"
        # JSON is YAML too.
        self._settings.write_text(json.dumps(self._filled_in(changes)))
        self._packages = find_patroni(home)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._patroni: subprocess.Popen[bytes] | None = None

    @property
    def cluster(self) -> Path:
        return self._files.cluster

    @property
    def url(self) -> str:
        """The address of the application's database on this server alone, whatever it is now."""
        return f"postgresql://{ROLE}:{self._secret}@{self.address}:5432/{ROLE}"

    @property
    def log(self) -> str:
        path = self._files.root / "patroni.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start_etcd(self) -> None:
        own, (template, *_) = self.address, EXAMPLES
        settings = {name: value.replace(template, own) for name, value in read_etcd_settings().items()}
        settings |= {
            "ETCD_NAME": self.name,
            "ETCD_DATA_DIR": str(self._files.root / "etcd"),
            "ETCD_INITIAL_CLUSTER": self._addresses(read_etcd_settings()["ETCD_INITIAL_CLUSTER"]),
        }
        command = [*self._place.prefix, "setpriv", "--pdeathsig=SIGKILL", "--", find_etcd()]
        with (self._files.root / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)

    def start_patroni(self) -> None:
        who = (
            (f"--reuid={self._user.uid}", f"--regid={self._user.gid}", "--clear-groups")
            if self._user.switched
            else ()
        )
        # Patroni stops its PostgreSQL at SIGTERM.
        by = [*self._place.prefix, "setpriv", *who, "--pdeathsig=SIGTERM", "--"]
        with (self._files.root / "patroni.log").open("ab") as log:
            self._patroni = subprocess.Popen(
                [*by, find_python(), "-m", "patroni", str(self._settings)],
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(self._packages)},
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        """Start what does not run."""
        if self._etcd is None:
            self.start_etcd()
        if self._patroni is None:
            self.start_patroni()

    def kill(self) -> None:
        """End all of its processes at once, as a power cut would; the machine refuses connections."""
        self.kill_etcd()
        self.kill_patroni()
        self.kill_postgres()

    def kill_etcd(self) -> None:
        _kill(self._etcd)
        self._etcd = None

    def kill_patroni(self) -> None:
        """Kill Patroni alone: its PostgreSQL goes on, without a manager."""
        _kill(self._patroni)
        self._patroni = None

    def hang_patroni(self) -> None:
        """Freeze the session that its Patroni manages by: it answers other members, and changes nothing."""
        (session,) = self.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'Patroni heartbeat'"
        )
        os.kill(session["pid"], signal.SIGSTOP)

    def kill_postgres(self) -> None:
        kill_processes(self.cluster)

    def freeze(self) -> None:
        """Stop all of its processes where they are: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP, self._managers + self._servers)

    def thaw_postgres(self) -> None:
        self._signal(signal.SIGCONT, self._servers)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT, self._servers + self._managers)

    def stop(self) -> None:
        """Stop PostgreSQL as Patroni does it, and then the rest."""
        self.thaw()
        if self._patroni is not None:
            self._patroni.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._patroni.wait(STOP_S)
        self.kill()

    def end(self) -> None:
        """End all of it at once, but let PostgreSQL free its shared memory, which a kill would not."""
        self.kill_etcd()
        self.kill_patroni()
        self._signal(signal.SIGQUIT, self._servers)
        self._signal(signal.SIGCONT, self._servers)
        until(lambda: not self._servers, f"PostgreSQL of {self.name} does not end")

    def ask(
        self, path: str, method: str = "GET", timeout_s: float = REST_S, **options: Any
    ) -> httpx.Response | None:
        """Ask its Patroni; None when nobody answers."""
        url = f"http://{self.address}:8008{path}"
        try:
            return httpx.request(method, url, timeout=timeout_s, trust_env=False, verify=NO_TLS, **options)
        except httpx.TransportError:
            return None

    def is_leader(self) -> bool:
        answer = self.ask("/primary")
        return answer is not None and answer.status_code == httpx.codes.OK

    def members(self) -> Sequence[Mapping[str, Any]]:
        """Return what its Patroni says of all members; nothing when nobody answers."""
        answer = self.ask("/cluster")
        if answer is None or answer.status_code != httpx.codes.OK:
            return ()
        members: Sequence[Mapping[str, Any]] = answer.json()["members"]
        return members

    def ask_etcd(self, path: str, **fields: str) -> Any:
        """Ask its etcd; None when nobody answers, or it refuses."""
        url = f"http://{self.address}:2379{path}"
        try:
            answer = httpx.post(url, json=fields, timeout=REST_S, trust_env=False, verify=NO_TLS)
        except httpx.TransportError:
            return None
        return answer.json() if answer.status_code == httpx.codes.OK else None

    def read_etcd(self, key: str) -> EtcdValue | None:
        """Return what etcd has under a key of the cluster; None when there is nothing, or nobody answers."""
        told = self.ask_etcd("/v3/kv/range", key=_encoded(f"/service/{read_settings()['scope']}/{key}"))
        if told is None or "kvs" not in told:
            return None
        (found,) = told["kvs"]
        text = base64.b64decode(found["value"]).decode()
        if "lease" not in found:
            return EtcdValue(text, 0)
        lease = self.ask_etcd("/v3/lease/timetolive", ID=found["lease"])
        return None if lease is None else EtcdValue(text, int(lease.get("TTL", 0)))

    def is_etcd_leader(self) -> bool:
        told = self.ask_etcd("/v3/maintenance/status")
        return told is not None and bool(told.get("leader") == told["header"]["member_id"])

    def execute(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement as the superuser, by the socket, which is there whatever becomes of the network."""
        where = f"host={self._files.socket_dir}&port=5432"
        return execute(f"postgresql://postgres:{self._secret}@/postgres?{where}", statement, *arguments)

    def takes_writes(self) -> bool:
        return not self.execute("SELECT pg_is_in_recovery()")[0][0]

    @property
    def _managers(self) -> list[int]:
        return [one.pid for one in (self._etcd, self._patroni) if one is not None and one.poll() is None]

    @property
    def _servers(self) -> list[int]:
        return list(live_processes(self.cluster))

    def _signal(self, number: signal.Signals, pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _addresses(self, text: str) -> str:
        for name, example in zip(MACHINES, EXAMPLES, strict=True):
            text = text.replace(example, self._network[name].address)
        return text

    def _filled_in(self, changes: Mapping[str, Any]) -> Any:
        settings = read_settings()
        settings["name"] = self.name
        settings["etcd3"]["hosts"] = [self._addresses(one) for one in settings["etcd3"]["hosts"]]
        own, rest, bootstrap = settings["postgresql"], settings["restapi"], settings["bootstrap"]
        for section in (own, rest):
            for key in ("listen", "connect_address"):
                section[key] = section[key].replace(EXAMPLES[0], self.address)
        for one in (rest["authentication"], *own["authentication"].values()):
            one["password"] = self._secret
        net = f"{self._network[self.name].address}/8"
        own["pg_hba"] = [rule.replace(NET, net) for rule in own["pg_hba"]]
        own["data_dir"] = str(self.cluster)
        own["bin_dir"] = str(programs(self._files, self._user, lambda _line: None))
        own["pgpass"] = str(self._files.root / "private" / "pgpass")
        own["parameters"]["unix_socket_directories"] = str(self._files.socket_dir)
        settings["watchdog"]["mode"] = "off"
        bootstrap["dcs"] |= changes
        return settings


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _kill(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None:
        process.kill()
        process.wait(STOP_S)
