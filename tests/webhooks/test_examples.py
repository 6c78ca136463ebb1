"""The receivers that the documentation shows: they accept genuine events once and refuse all others."""

import base64
import hashlib
import hmac
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import pytest

from scripts.generate_docs import DOCS
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS
from tumira.api.docs.events import EVENT_ID, HEADERS, example

EXAMPLES: Final = DOCS / "examples" / "webhooks"
PAGE: Final = (DOCS / "webhooks.md").read_text(encoding="utf-8")
START_S: Final = 60
STOP_S: Final = 40
TOLERANCE_S: Final = 300

SECRET: Final = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
NEW_SECRET: Final = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()

PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "receiver.py": (sys.executable, "{file}"),
    "receiver.mjs": ("node", "{file}"),
    "Receiver.java": ("java", "-XX:TieredStopAtLevel=1", "{file}"),
    "receiver.php": ("php", "-S", "127.0.0.1:{port}", "{file}"),
}

_numbers: Final = count(1)


def sign(secret: str, event_id: str, timestamp: str, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


@dataclass(slots=True)
class Posting:
    """A request that a receiver should take; each test spoils one thing about it."""

    event_id: str
    timestamp: str
    body: bytes
    headers: dict[str, str]


def new_posting(*secrets: str, age_s: int = 0) -> Posting:
    event_id = f"evt_{next(_numbers):026}"
    timestamp = str(int(time.time()) - age_s)
    body = json.dumps({**example("message.delivered"), "note": "ş😀"}, ensure_ascii=False).encode()
    signatures = " ".join(sign(secret, event_id, timestamp, body) for secret in secrets or (SECRET,))
    headers = {
        "content-type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signatures,
    }
    return Posting(event_id, timestamp, body, headers)


@dataclass(frozen=True, slots=True)
class Receiver:
    address: str
    log: Path

    def post(self, posting: Posting) -> int:
        return httpx.post(
            self.address,
            content=posting.body,
            headers=posting.headers,
            trust_env=False,
            verify=NO_TLS,
            timeout=START_S,
        ).status_code

    def handled(self, posting: Posting) -> int:
        return self.log.read_text(encoding="utf-8").count(f"new {posting.event_id} ")


@contextmanager
def run(name: str, directory: Path) -> Iterator[Receiver]:
    port = free_port()
    program, *arguments = PROGRAMS[name]
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed, so {name} is not tried")
    log = directory / "log"
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "WEBHOOK_SECRET": SECRET,
        "PORT": str(port),
        "EVENTS_DIRECTORY": str(directory),
    }
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [found, *(each.format(port=port, file=EXAMPLES / name) for each in arguments)],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}/"
            wait_until_up(process, address, log)
            yield Receiver(address, log)
        finally:
            process.terminate()
            process.wait(STOP_S)


def wait_until_up(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        try:
            httpx.get(address, trust_env=False, verify=NO_TLS)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"Nothing answers at {address}: {log.read_text(encoding='utf-8')}")


@pytest.fixture(scope="module", params=PROGRAMS)
def receiver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with run(request.param, tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize(
    ("secrets", "age_s"),
    [
        ((SECRET,), 0),
        # One of two signatures is enough, and a clock may be some minutes off.
        ((NEW_SECRET, SECRET), TOLERANCE_S - 30),
        ((SECRET, NEW_SECRET), 30 - TOLERANCE_S),
    ],
    ids=["plain", "late", "early"],
)
def test_a_genuine_event_is_taken_and_a_repeated_one_is_handled_once(
    receiver: Receiver, secrets: Sequence[str], age_s: int
) -> None:
    posting = new_posting(*secrets, age_s=age_s)
    assert [receiver.post(posting) for _ in range(2)] == [204, 204]
    assert receiver.handled(posting) == 1


def test_what_is_too_old_too_new_signed_by_another_or_changed_is_refused(receiver: Receiver) -> None:
    changed = new_posting()
    changed.body = changed.body.replace(b"delivered", b"failed   ")
    for posting in (
        new_posting(age_s=TOLERANCE_S + 30),
        new_posting(age_s=-30 - TOLERANCE_S),
        new_posting(NEW_SECRET),
        changed,
    ):
        assert receiver.post(posting) == 400
        assert receiver.handled(posting) == 0


def test_headers_that_are_missing_changed_or_nonsense_are_refused_and_break_nothing(
    receiver: Receiver,
) -> None:
    for name, value in (
        ("webhook-id", None),
        ("webhook-timestamp", None),
        ("webhook-signature", None),
        ("webhook-timestamp", str(int(time.time()) - 1)),
        ("webhook-id", EVENT_ID),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v2,q6KMVIJHk4Gs770FfR5f591Ftx7uVJSGl5wHV1ri978="),
        ("webhook-signature", "garbage ,, v1,!!"),
        ("webhook-timestamp", "now"),
        ("webhook-timestamp", "-1"),
        ("webhook-timestamp", "9" * 400),
        ("webhook-id", "../../../etc/passwd"),
    ):
        posting = new_posting()
        if value is None:
            del posting.headers[name]
        else:
            posting.headers[name] = value
        assert receiver.post(posting) == 400, (name, value)
    assert receiver.post(new_posting()) == 204


def verify(secret: str, posting: Posting) -> subprocess.CompletedProcess[str]:
    shell, openssl = shutil.which("sh"), shutil.which("openssl")
    if shell is None or openssl is None:
        pytest.skip("openssl is not installed, so verify.sh is not tried")
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    ended = subprocess.run(
        [shell, EXAMPLES / "verify.sh", *(posting.headers[name] for name in names)],
        input=posting.body,
        capture_output=True,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "WEBHOOK_SECRET": secret},
    )
    return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), "")


def test_the_shell_can_tell_what_is_genuine_and_what_is_not() -> None:
    assert verify(SECRET, new_posting()).stdout == "The event is genuine.\n"
    assert verify(SECRET, new_posting(NEW_SECRET, SECRET)).returncode == 0
    tampered = new_posting()
    tampered.body += b" "
    starred = new_posting()
    starred.headers["webhook-signature"] = "*"
    timeless = new_posting()
    timeless.headers["webhook-timestamp"] = "now"
    for posting in (tampered, starred, new_posting(NEW_SECRET)):
        ended = verify(SECRET, posting)
        assert (ended.returncode, ended.stdout[:21]) == (1, "No signature fits: th")
    for age_s in (TOLERANCE_S + 30, -TOLERANCE_S - 30):
        assert "five minutes" in verify(SECRET, new_posting(age_s=age_s)).stdout
    assert "not a number" in verify(SECRET, timeless).stdout


@pytest.mark.parametrize("name", [*PROGRAMS, "verify.sh"])
def test_the_page_shows_each_receiver_as_it_is(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert text in blocks


def shown(label: str) -> str:
    found = re.search(rf"^\| {re.escape(label)} \| `(.+)` \|$", PAGE, re.MULTILINE)
    assert found is not None, label
    return found[1]


def test_the_vector_on_the_page_is_right() -> None:
    body = shown("body").encode()
    assert shown("secret") == SECRET
    signature = sign(shown("secret"), shown("`webhook-id`"), shown("`webhook-timestamp`"), body)
    assert signature == shown("`webhook-signature`")


def test_the_request_on_the_page_is_one_that_we_would_send() -> None:
    block = re.search(r"```http\n(POST .*?)\n```", PAGE, re.DOTALL)
    assert block is not None
    head, _, body = block[1].partition("\n\n")
    headers = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    assert json.loads(body) == example("message.delivered")
    assert int(headers["content-length"]) == len(body.encode())
    assert headers["webhook-id"] == HEADERS["webhook-id"]["example"]
    assert headers["webhook-signature"] == HEADERS["webhook-signature"]["example"]
    assert headers["webhook-signature"] == sign(
        SECRET, headers["webhook-id"], headers["webhook-timestamp"], body.encode()
    )


def test_the_library_takes_what_we_sign_and_refuses_the_rest_in_the_two_ways_that_the_page_names() -> None:
    library = pytest.importorskip(
        "standardwebhooks.webhooks", reason="missing, and installed by make install"
    )
    webhook = library.Webhook(SECRET)
    posting = new_posting(NEW_SECRET, SECRET)
    assert webhook.verify(posting.body.decode(), posting.headers)["type"] == "message.delivered"
    for spoilt in (new_posting(NEW_SECRET), new_posting(age_s=TOLERANCE_S + 30)):
        with pytest.raises(library.WebhookVerificationError):
            webhook.verify(spoilt.body.decode(), spoilt.headers)
    with pytest.raises(ValueError, match="unpack"):
        webhook.verify(posting.body.decode(), {**posting.headers, "webhook-signature": "garbage"})
