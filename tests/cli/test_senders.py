"""Commands for sender names."""

from typing import Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.processes.service import Service
from tumira.audit_log import OWNER, Actor
from tumira.core.ids import SENDER_NAME, write_id
from tumira.sender_names.manage import NameRequest, ask

KEYS: Final = "sender_name_id account_id business name note paper created_at places"
NOTE: Final = "We tell customers that their parcels are here."


@pytest.fixture(scope="module")
def cli(service: Service) -> QuickCli:
    return QuickCli(service.url)


def test_names_are_listed_granted_refused_used_and_revoked(service: Service, cli: QuickCli) -> None:
    caller = service.open_account()
    mine = ("--account", caller.account_id)
    assert cli.json("sender", "list", *mine) == []
    assert "No names yet" in cli.text("sender", "list", *mine)
    asked = service.run(ask, caller.id, NameRequest("EcoCash Pay", ["ZW", "ZA"], NOTE), Actor(OWNER))
    name_id = write_id(SENDER_NAME, asked.id)
    (listed,) = cli.json("sender", "list", "--waiting", *mine)
    assert " ".join(listed) == KEYS
    assert (listed["sender_name_id"], listed["name"]) == (name_id, "EcoCash Pay")
    assert [(one["country"], one["state"]) for one in listed["places"]] == [
        ("ZW", "requested"),
        ("ZA", "requested"),
    ]
    assert "ZW requested" in cli.text("sender", "list", *mine)

    where = (name_id, "--country", "ZW")
    stopped = cli.run("sender", "grant", *where)
    assert stopped.returncode == 1
    assert "looks like another" in stopped.stderr
    granted = cli.json("sender", "grant", *where, "--look-alike-reason", "Letter seen")
    assert [(one["state"], one["in_use"]) for one in granted["places"]] == [
        ("granted", True),
        ("requested", False),
    ]
    refused = cli.json("sender", "refuse", name_id, "--country", "ZA", "--note", "Numbers only")
    assert refused["places"][1]["note"] == "Numbers only"
    assert cli.json("sender", "use", *where)["places"][0]["in_use"]
    assert "ZW revoked" in cli.text("sender", "revoke", *where, "--note", "The network asked")
    again = cli.run("sender", "revoke", *where, "--note", "The network asked")
    assert (again.returncode, "not granted" in again.stderr) == (1, True)
    assert cli.json("sender", "list", "--waiting", *mine) == []
