"""A shop: Debian's WordPress on MariaDB, served by PHP, with our plugin and a stand-in for WooCommerce."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import httpx
import pytest

from scripts.woocommerce import NAME, build
from tests.support.chaos.node import until
from tests.support.clients import program
from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import NO_TLS

# What `scripts/peers.sh long` extracts there.
TOOLS: Final = CHECKOUT / ".tools" / "wordpress"
STAND_IN: Final = Path(__file__).parent / "woocommerce"
PASSWORD: Final = "correct horse battery staple"
PLUGIN: Final = f"{NAME}/{NAME}.php"
SETTINGS: Final = "/wp-admin/admin.php?page=wc-settings&tab=tumira"
# A machine that runs other tests is slow; this only ends the wait.
WAIT_S: Final = 60

_CONFIG: Final = """<?php
define('DB_NAME', 'shop');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:%(socket)s');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define("{$name}_KEY", "key of $name");
    define("{$name}_SALT", "salt of $name");
}
$table_prefix = 'wp_';
define('WP_HOME', '%(base)s');
define('WP_SITEURL', '%(base)s');
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_ACCESSIBLE_HOSTS', '127.0.0.1');
define('WP_DEBUG', true);
define('WP_DEBUG_DISPLAY', false);
define('WP_DEBUG_LOG', '%(folder)s/debug.log');
require_once ABSPATH . 'wp-settings.php';
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """A shop that runs; its plugin is active and has no settings."""

    folder: Path
    base: str
    php: Sequence[str]

    def start(self, command: str, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.php, str(STAND_IN / "shop.php"), str(self.folder), command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment() | {"SHOP_HOST": self.base.removeprefix("http://")},
        )

    def run(self, command: str, *arguments: str) -> Any:
        """Run a command of `shop.php` and return its answer."""
        with self.start(command, *arguments) as process:
            output, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, output + errors
        return json.loads(output.splitlines()[-1])

    @contextmanager
    def sign_in(self, login: str = "owner") -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.base, trust_env=False, verify=NO_TLS, timeout=WAIT_S) as client:
            client.get("/wp-login.php")
            answer = client.post("/wp-login.php", data={"log": login, "pwd": PASSWORD, "testcookie": "1"})
            assert answer.status_code == httpx.codes.FOUND, answer.text
            yield client

    def save_settings(self, client: httpx.Client, changes: Mapping[str, str]) -> str:
        """Fill in the form of the settings page, as a browser would, and return the next page."""
        page = client.get(SETTINGS).text
        answer = client.post(SETTINGS, data={**form(page), **changes})
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.text

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return httpx.post(self.base + path, trust_env=False, verify=NO_TLS, timeout=WAIT_S, **fields)

    def complaints(self) -> Sequence[str]:
        """Return what PHP complained about in the plugin."""
        log = self.folder / "debug.log"
        return [line for line in log.read_text().splitlines() if NAME in line] if log.exists() else []


def form(page: str) -> dict[str, str]:
    """Return what a browser would send for the form of a page."""
    found: dict[str, str] = {}
    for tag in re.findall(r"<input[^>]*>", page[page.index('<form method="post">') :]):
        fields = dict(re.findall(r"""([a-z]+)=['"]([^'"]*)['"]""", tag))
        if "name" in fields and (fields.get("type") != "checkbox" or "checked" in tag):
            found[fields["name"]] = fields.get("value", "")
    for name, value in re.findall(r"<textarea name='([^']+)'[^>]*>([^<]*)</textarea>", page):
        found[name] = value.replace("&amp;", "&").replace("&quot;", '"')
    return found


@contextmanager
def open_shop() -> Iterator[Shop]:
    """Install WordPress into an empty folder and database, and the plugin from its archive."""
    if not (TOOLS / "usr" / "share" / "wordpress").is_dir():
        pytest.skip("WordPress is not there: `sh scripts/peers.sh long` extracts Debian's")
    modules = subprocess.run([program("php"), "-m"], capture_output=True, text=True, check=True).stdout
    if "mysqli" not in modules.split():
        pytest.skip("PHP has no mysqli: install php-mysql")
    with ExitStack() as stack:
        # The path of a socket is short.
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shop")))
        folder, base = home / "site", f"http://127.0.0.1:{free_port()}"
        php = [program("php"), "-d", "sendmail_path=/bin/true", "-d", "display_errors=stderr"]
        socket = stack.enter_context(_database(home, php))
        shutil.copytree(TOOLS / "usr" / "share" / "wordpress", folder, ignore_dangling_symlinks=True)
        (folder / "wp-config.php").write_text(
            _CONFIG % {"socket": socket, "base": base, "folder": folder}, encoding="utf-8"
        )
        _add_plugins(folder / "wp-content" / "plugins", home / "plugin.zip")
        shop = Shop(folder, base, php)
        shop.run("install", PASSWORD)
        for plugin in ("woocommerce/woocommerce.php", PLUGIN):
            assert shop.run("activate", plugin) is None
        stack.enter_context(_serve(shop))
        yield shop


def _add_plugins(plugins: Path, archive: Path) -> None:
    (plugins / "woocommerce").mkdir(parents=True)
    shutil.copy(STAND_IN / "woocommerce.php", plugins / "woocommerce")
    build(archive)
    with ZipFile(archive) as file:
        file.extractall(plugins)


@contextmanager
def _serve(shop: Shop) -> Iterator[None]:
    address = shop.base.removeprefix("http://")
    with (shop.folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*shop.php, "-S", address, "-t", str(shop.folder)],
            stdout=log,
            stderr=log,
            env=_environment(),
            start_new_session=True,
        )
    try:
        until(lambda: _answers(shop), "PHP does not serve the shop")
        yield
    finally:
        # PHP does not end the processes that it starts for its requests.
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(WAIT_S)


def _answers(shop: Shop) -> bool:
    try:
        address = f"{shop.base}/wp-login.php"
        return httpx.get(address, trust_env=False, verify=NO_TLS, timeout=WAIT_S).is_success
    except httpx.TransportError:
        return False


@contextmanager
def _database(home: Path, php: Sequence[str]) -> Iterator[Path]:
    """Run a MariaDB that listens on a socket only, with an empty database."""
    socket, data, share = home / "db.sock", home / "data", TOOLS / "usr" / "share" / "mysql"
    data.mkdir()
    with (home / "database.log").open("wb") as log:
        server = subprocess.Popen(
            [
                str(TOOLS / "usr" / "sbin" / "mariadbd"),
                "--no-defaults",
                "--user=root" if os.geteuid() == 0 else f"--user={os.environ.get('USER', '')}",
                f"--datadir={data}",
                f"--socket={socket}",
                f"--lc-messages-dir={share}",
                f"--character-sets-dir={share / 'charsets'}",
                "--skip-networking",
                # Without users there are no tables of users, which take seconds to make.
                "--skip-grant-tables",
                "--innodb-flush-log-at-trx-commit=2",
                "--innodb-buffer-pool-size=16M",
            ],
            stdout=log,
            stderr=log,
            env=_environment(),
        )
    create = f"(new mysqli('localhost', 'root', '', '', 0, '{socket}'))->query('CREATE DATABASE shop');"
    try:
        until(lambda: _runs([*php, "-r", create]), "MariaDB does not start")
        yield socket
    finally:
        server.terminate()
        server.wait(WAIT_S)


def _runs(command: Sequence[str]) -> bool:
    done = subprocess.run(command, capture_output=True, env=_environment(), check=False, timeout=WAIT_S)
    return done.returncode == 0


def _environment() -> dict[str, str]:
    libraries = ":".join(str(folder) for folder in TOOLS.glob("usr/lib/*-linux-gnu*"))
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"LD_LIBRARY_PATH": libraries, "PHP_CLI_SERVER_WORKERS": "2"}
