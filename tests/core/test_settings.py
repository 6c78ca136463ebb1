"""Settings from the environment and from `.env`."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tumira.core.errors import OperatorError
from tumira.core.settings import Encryption, Settings, Smtp, load
from tumira.core.settings.payments import Payments


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
    assert (found.simulator_port, found.simulator_public) == (2775, False)
    assert found.smtp is None


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
            "TUMIRA_SIMULATOR_PUBLIC": "1",
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1",
            "TUMIRA_SMTP_URL": "smtps://tumira:secret@mail.example:8465",
            "TUMIRA_MAIL_FROM": "Codes <codes@sms.example>",
            "TUMIRA_CODES_PER_ADDRESS": "7",
            "TUMIRA_CODES_PER_HOUR": "70",
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
        codes_per_address=7,
        codes_per_hour=70,
        smtp=Smtp(
            host="mail.example",
            port=8465,
            encryption=Encryption.FROM_START,
            user="tumira",
            password="secret",
            sender_name="Codes",
            sender_address="codes@sms.example",
        ),
        payments=Payments(),
        simulator_public=True,
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
        for name in (
            *("DATA_DIR", "DATABASE_URL", "HOST", "PORT", "PUBLIC_URL", "LOG_LEVEL", "SIMULATOR_PORT"),
            *("SMTP_URL", "MAIL_FROM"),
        )
    }

    assert settings(empty) == settings()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_bytes(b"TUMIRA_HOST=\xff\n")

    with pytest.raises(OperatorError, match=r"\.env cannot be read"):
        settings({}, env_file)


@pytest.mark.parametrize("name", ["TUMIRA_PORT", "TUMIRA_SIMULATOR_PORT"])
@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "\N{FULLWIDTH DIGIT EIGHT}", " 80"])
def test_a_port_that_is_none_is_refused(name: str, port: str) -> None:
    with pytest.raises(OperatorError, match=rf"{name} is .*; it must be a number from 1 to 65535"):
        settings({name: port})


def test_a_database_of_the_operators_own_has_a_simulator_only_when_asked() -> None:
    database = {"TUMIRA_DATABASE_URL": "postgresql://a@b/c"}

    assert settings(database).simulator_port is None
    assert settings(database | {"TUMIRA_SIMULATOR_PORT": ""}).simulator_port is None
    assert settings(database | {"TUMIRA_SIMULATOR_PORT": "2775"}).simulator_port == 2775


def test_two_listeners_on_one_port_are_refused() -> None:
    with pytest.raises(OperatorError, match="TUMIRA_PORT and TUMIRA_SIMULATOR_PORT are both 2775"):
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
    with pytest.raises(OperatorError, match="set TUMIRA_DATA_DIR"):
        settings({"TUMIRA_DATA_DIR": "~nobody-of-this-name/data"})


def smtp(url: str, **others: str) -> Smtp:
    named = {f"TUMIRA_{name.upper()}": value for name, value in others.items()}
    found = settings({"TUMIRA_SMTP_URL": url} | named).smtp
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("url", "host", "port", "encryption"),
    [
        ("smtp://mail.example", "mail.example", 25, Encryption.WHEN_OFFERED),
        ("smtp://u:p@mail.example", "mail.example", 587, Encryption.REQUIRED),
        ("smtp://u:p@192.0.2.1", "192.0.2.1", 587, Encryption.REQUIRED),
        ("smtp://u:p@[2001:db8::1]", "2001:db8::1", 587, Encryption.REQUIRED),
        ("smtp://u:p@localhost", "localhost", 587, Encryption.WHEN_OFFERED),
        ("smtp://u:p@127.0.0.1:1025", "127.0.0.1", 1025, Encryption.WHEN_OFFERED),
        ("smtp://u:p@[::1]:1025", "::1", 1025, Encryption.WHEN_OFFERED),
        ("smtp://u:p@localhost.example", "localhost.example", 587, Encryption.REQUIRED),
        ("smtps://mail.example", "mail.example", 465, Encryption.FROM_START),
    ],
)
def test_a_mail_server_has_the_usual_port_and_a_password_is_encrypted_unless_it_stays_here(
    url: str, host: str, port: int, encryption: Encryption
) -> None:
    found = smtp(url)

    assert (found.host, found.port, found.encryption) == (host, port, encryption)
    assert (found.user, found.password) == (("u", "p") if "@" in url else (None, None))


def test_a_user_and_password_for_mails_are_percent_decoded_and_a_plus_stays_one() -> None:
    found = smtp("smtps://user%40example.org:a%3Ab%2Fc%3Fd%23e%25f%20+g%40@mail.example")

    assert (found.user, found.password) == ("user@example.org", "a:b/c?d#e%f +g@")
    assert "a:b" not in repr(found)
    assert "a:b" not in repr(settings({"TUMIRA_SMTP_URL": "smtps://u:a%3Ab@mail.example"}))


@pytest.mark.parametrize(
    "url",
    [
        "mail.example",
        "http://u:hunter2@mail.example",
        "smtp://",
        "smtp://u:hunter2@",
        "smtp://u:hunter2@mail.example:0",
        "smtp://u:hunter2@mail.example:65536",
        "smtp://u:hunter2@[::1",
        "smtp://u:hunter2@mail..example",
        "smtp://u:hunter2@mail_\N{LATIN SMALL LETTER A WITH DIAERESIS}.example",
        "smtp://u:hunter2@mail.example/path",
        "smtp://u:hunter2@mail.example?tls=1",
        "smtp://u:hunter2@mail.example#tls",
        "smtp://u:hunter2/more@mail.example",
        "smtp://u:hunter2%@mail.example",
        "smtp://u:hunter2%00@mail.example",
        "smtp://u:hunter2%0d%0aRSET@mail.example",
        "smtp://u:hunter2%ff@mail.example",
        "smtp://u:hunter2\n@mail.example",
        "smtp://hunter2@mail.example",
        "smtp://u:@mail.example",
        "smtp://:hunter2@mail.example",
        "smtp://@mail.example",
        "smtp://u:hunter2@mail.example ",
    ],
)
def test_what_is_no_mail_server_is_refused_in_one_line_without_the_password(url: str) -> None:
    with pytest.raises(OperatorError) as caught:
        smtp(url)

    said = str(caught.value)
    assert "TUMIRA_SMTP_URL" in said
    assert "write it as smtp://" in said
    assert "\n" not in said
    assert "hunter2" not in said
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "name", "address"),
    [
        ("codes@sms.example", "", "codes@sms.example"),
        ("Codes <codes@sms.example>", "Codes", "codes@sms.example"),
        (" Codes  of  Tumira<codes+x@sms.example> ", "Codes  of  Tumira", "codes+x@sms.example"),
        ('"Codes, Ltd." <codes@sms.example>', "Codes, Ltd.", "codes@sms.example"),
        ("Chitoró ✉ <codes@sms.example>", "Chitoró ✉", "codes@sms.example"),
    ],
)
def test_mails_come_from_whom_the_operator_says(text: str, name: str, address: str) -> None:
    found = smtp("smtp://mail.example", mail_from=text)

    assert (found.sender_name, found.sender_address) == (name, address)


@pytest.mark.parametrize(
    ("public_url", "address"),
    [
        ("https://sms.example/", "no-reply@sms.example"),
        ("https://SMS.example:8443/app", "no-reply@sms.example"),
        ("http://192.0.2.1:8080", "no-reply@[192.0.2.1]"),
        ("http://[2001:db8::1]:8080", "no-reply@[IPv6:2001:db8::1]"),
        ("sms.example", "no-reply@localhost"),
        ("", "no-reply@[127.0.0.1]"),
    ],
)
def test_mails_come_from_the_services_own_host_unless_the_operator_says(
    public_url: str, address: str
) -> None:
    found = smtp("smtp://mail.example", public_url=public_url)

    assert (found.sender_name, found.sender_address) == ("Tumira", address)


@pytest.mark.parametrize(
    "text",
    [
        "codes",
        "codes@sms..example",
        "codes@sms.example, others@sms.example",
        "Codes codes@sms.example",
        "Codes <codes@sms.example",
        'Co"des <codes@sms.example>',
        "Codes\r\nBcc: <codes@sms.example>",
        "Codes <codes@sms.example\r\nBcc: eve@sms.example>",
        "cod\N{LATIN SMALL LETTER E WITH ACUTE}s@sms.example",
        "codes@[192.0.2.1]",
    ],
)
def test_what_is_no_sender_is_refused_even_where_no_mails_are_sent(text: str) -> None:
    with pytest.raises(OperatorError, match=r"TUMIRA_MAIL_FROM is .*: write it as") as caught:
        settings({"TUMIRA_MAIL_FROM": text})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["CODES_PER_ADDRESS", "CODES_PER_HOUR"])
@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "1000001", "٣"])
def test_a_number_of_codes_that_is_none_is_said(name: str, text: str) -> None:
    with pytest.raises(OperatorError, match=f"TUMIRA_{name} is .*a number from 1 to 1000000"):
        load({f"TUMIRA_{name}": text}, Path("/nowhere/.env"))


@pytest.mark.parametrize(
    ("text", "weeks"), [("", 104), ("14", 14), ("5200", 5200), ("0", None), ("none", None)]
)
def test_messages_are_kept_for_two_years_or_as_long_as_the_operator_says(
    text: str, weeks: int | None
) -> None:
    assert settings({"TUMIRA_KEEP_WEEKS": text}).keep_weeks == weeks


@pytest.mark.parametrize("text", ["13", "1", "-1", "5201", "14.0", "None", "for good", "٣٣"])
def test_a_time_for_which_nothing_can_be_kept_is_refused(text: str) -> None:
    with pytest.raises(
        OperatorError, match=r"TUMIRA_KEEP_WEEKS is .*a number of weeks from 14 to 5200, or none"
    ):
        settings({"TUMIRA_KEEP_WEEKS": text})


def test_a_proxy_for_carriers_is_read_and_its_password_never_shown() -> None:
    url = "http://user:hush@proxy.example:3128"
    found = settings({"TUMIRA_CARRIER_PROXY": url})
    assert (found.carrier_proxy, settings().carrier_proxy) == (url, None)
    assert "hush" not in repr(found)
    for wrong in ("proxy.example:3128", "ftp://user:hush@proxy.example", url + "/path", "http://user:hush@"):
        with pytest.raises(OperatorError, match="TUMIRA_CARRIER_PROXY") as refused:
            settings({"TUMIRA_CARRIER_PROXY": wrong})
        assert "hush" not in str(refused.value)
