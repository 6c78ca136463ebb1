"""A client generated from the OpenAPI document works."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.processes.service import NO_TLS, Caller, Service

DOCUMENT: Final = Path(__file__).parent.parent.parent / "docs" / "openapi.json"
PACKAGE: Final = "generated_tumira_client"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("client")
    programs = Path(sys.executable).parent
    subprocess.run(
        [
            *(programs / "openapi-python-client", "generate", "--fail-on-warning"),
            *("--path", DOCUMENT, "--meta", "none", "--output-path", directory / PACKAGE),
        ],
        # It formats what it wrote with the ruff that it finds.
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        cwd=directory,
        check=True,
        capture_output=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        yield directory


def part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def connect(service: Service, caller: Caller) -> Any:
    return part("client").AuthenticatedClient(
        base_url=f"{service.base}/api/v1",
        token=caller.key,
        verify_ssl=NO_TLS,
        httpx_args={"trust_env": False},
    )


@pytest.mark.long
@pytest.mark.usefixtures("generated")
def test_a_generated_client_sends_looks_up_and_reads_refusals(service: Service) -> None:
    caller = service.open_account(balance="1")
    models = part("models")
    send, get_batch, get_message = (
        part(f"api.messages.{name}") for name in ("send_messages", "get_batch", "get_message")
    )
    with connect(service, caller) as client:
        body = models.SendRequest(
            channel="sms", to=["+263771200001", "+15550100"], body="Your code is 493817.", reference="first"
        )
        sent = send.sync(client=client, body=body, idempotency_key="generated-1")
        assert isinstance(sent, models.SendResponse)
        assert (sent.accepted, sent.total_cost, sent.balance_after) == (1, "0.0400", "0.9600")
        assert [(entry.to, entry.code) for entry in sent.rejected] == [
            ("+15550100", models.RecipientCode.UNSUPPORTED_DESTINATION)
        ]

        batch = get_batch.sync(sent.batch_id, client=client).data
        assert (batch.reference, batch.status) == ("first", models.BatchViewStatus.QUEUED)
        assert batch.created_at.utcoffset() is not None
        message = get_message.sync(batch.messages[0].message_id, client=client).data
        assert (message.to, message.cost, message.sent_at) == ("+263771200001", "0.0400", None)

    get_balance, get_pricing = (part(f"api.account.{name}") for name in ("get_balance", "get_pricing"))
    with connect(service, service.open_account(balance="0.01")) as client:
        body = models.SendRequest(channel="sms", to="+263771200001", body="Your code is 493817.")
        refused = send.sync_detailed(client=client, body=body)
        assert refused.status_code == 402
        assert refused.parsed.error.code == "INSUFFICIENT_BALANCE"
        assert refused.parsed.error.details[0].shortfall == "0.0300"

        body.dry_run = True
        priced = send.sync(client=client, body=body)
        assert isinstance(priced, models.DryRunResponse)
        assert get_balance.sync(client=client).balance == "0.0100"
        prices = get_pricing.sync(client=client).data
        assert ("ZW", models.PriceViewStatus.COMING_SOON) in {
            (price.country, price.status) for price in prices
        }
