"""Are settings read from where they should be, and refused when they make no sense?"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tumira.config import Settings, load
from tumira.errors import Trouble


def settings(
    environment: Mapping[str, str] | None = None, env_file: Path = Path("/nowhere/.env")
) -> Settings:
    return load(environment or {}, env_file)


def test_nothing_has_to_be_set() -> None:
    found = settings()

    assert (found.host, found.port) == ("127.0.0.1", 8080)
    assert found.public_url == found.local_url == "http://127.0.0.1:8080"
    assert found.database_url is None
    assert (found.trusted_proxies, found.log_level) == ("", "info")
    assert found.simulator_port == 2775


def test_the_environment_is_read() -> None:
    found = settings(
        {
            "TUMIRA_DATA_DIR": "/srv/tumira",
            "TUMIRA_DATABASE_URL": "postgresql://a@b/c",
            "TUMIRA_HOST": "10.0.0.7",
            "TUMIRA_PORT": "80",
            "TUMIRA_PUBLIC_URL": "https://sms.example/",
            "TUMIRA_TRUSTED_PROXIES": "10.0.0.0/8",
            "TUMIRA_LOG_LEVEL": "WARNING",
            "TUMIRA_SIMULATOR_PORT": "2776",
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1",
        }
    )

    assert found == Settings(
        data_dir=Path("/srv/tumira"),
        database_url="postgresql://a@b/c",
        host="10.0.0.7",
        port=80,
        public_url="https://sms.example",
        trusted_proxies="10.0.0.0/8",
        log_level="warning",
        simulator_port=2776,
        webhooks_allow_private=True,
    )
    assert found.local_url == "http://10.0.0.7:80"


def test_the_real_environment_is_meant_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUMIRA_PORT", "8081")
    (tmp_path / ".env").write_text("TUMIRA_PORT=8082\nTUMIRA_HOST=127.0.0.2\n")

    found = load()

    assert (found.host, found.port) == ("127.0.0.2", 8081)


def test_a_file_speaks_where_the_environment_is_silent(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text(
        "# What this node needs\nexport TUMIRA_PORT=8081\nTUMIRA_DATA_DIR='/srv/two words'\n"
        "TUMIRA_DATABASE_URL=\nTUMIRA_PUBLIC_URL\n"
    )

    found = settings({"TUMIRA_PORT": "8082"}, env_file)

    assert found.port == 8082
    assert found.data_dir == Path("/srv/two words")
    assert found.database_url is None
    assert found.public_url == "http://127.0.0.1:8082"


def test_a_setting_that_is_empty_is_not_set() -> None:
    empty = {
        f"TUMIRA_{name}": ""
        for name in ("DATA_DIR", "DATABASE_URL", "HOST", "PORT", "PUBLIC_URL", "LOG_LEVEL", "SIMULATOR_PORT")
    }

    assert settings(empty) == settings()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_bytes(b"TUMIRA_HOST=\xff\n")

    with pytest.raises(Trouble, match=r"\.env cannot be read"):
        settings({}, env_file)


@pytest.mark.parametrize("name", ["TUMIRA_PORT", "TUMIRA_SIMULATOR_PORT"])
@pytest.mark.parametrize(
    "port", ["0", "65536", "-1", "8080.0", "http", "\N{FULLWIDTH DIGIT EIGHT}", "1e3", " 80"]
)
def test_a_port_that_is_none_is_refused(name: str, port: str) -> None:
    with pytest.raises(Trouble, match=rf"{name} is .*; it must be a number from 1 to 65535"):
        settings({name: port})


def test_a_database_of_the_operators_own_has_a_simulator_only_when_asked() -> None:
    database = {"TUMIRA_DATABASE_URL": "postgresql://a@b/c"}

    assert settings(database).simulator_port is None
    assert settings(database | {"TUMIRA_SIMULATOR_PORT": ""}).simulator_port is None
    assert settings(database | {"TUMIRA_SIMULATOR_PORT": "2775"}).simulator_port == 2775


def test_two_listeners_on_one_port_are_refused() -> None:
    with pytest.raises(Trouble, match="TUMIRA_PORT and TUMIRA_SIMULATOR_PORT are both 2775"):
        settings({"TUMIRA_PORT": "2775"})


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("::1", "http://[::1]:8080"),
        ("fd00::7", "http://[fd00::7]:8080"),
        ("::", "http://[::1]:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104 - nothing listens here
        ("localhost", "http://localhost:8080"),
    ],
)
def test_a_host_becomes_an_address_that_can_be_opened(host: str, url: str) -> None:
    found = settings({"TUMIRA_HOST": host})

    assert (found.host, found.public_url, found.local_url) == (host, url, url)


def test_root_keeps_its_data_with_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert settings({"XDG_DATA_HOME": "/home/a/data"}).data_dir == Path("/var/lib/tumira")


def test_a_user_keeps_its_data_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/a")

    assert settings().data_dir == Path("/home/a/.local/share/tumira")
    assert settings({"XDG_DATA_HOME": "/data"}).data_dir == Path("/data/tumira")
    assert settings({"TUMIRA_DATA_DIR": "~/gateway"}).data_dir == Path("/home/a/gateway")


def test_a_data_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert settings({"TUMIRA_DATA_DIR": "data"}).data_dir == tmp_path / "data"


def test_a_home_that_is_missing_is_said() -> None:
    with pytest.raises(Trouble, match="set TUMIRA_DATA_DIR"):
        settings({"TUMIRA_DATA_DIR": "~nobody-of-this-name/data"})
