"""People of an account over HTTP: invitations, roles, removal, several accounts, and the history."""

from collections.abc import Iterator
from functools import partial
from typing import Final
from uuid import UUID

import httpx
import pytest

from tests.support.cli.commands import QuickCli
from tests.support.identity.members import PEOPLE, add, invite, link_and_code
from tests.support.identity.people import (
    NAME,
    PASSWORD,
    Person,
    alert,
    at_once,
    code_to,
    count,
    goes_to,
    is_signed_in,
    new_browser,
    new_phone,
    page_text,
    run_behind_proxy,
    set_password,
    sign_in,
    sign_up,
    texts_to,
)
from tests.support.processes.service import Service
from tumira.core.ids import ACCOUNT, write_id
from tumira.identity.roles import MemberRole

JOINED: Final = {"name": "Rudo Dube", "password": PASSWORD}


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


def member_path(service: Service, phone: str) -> str:
    (row,) = service.sql("SELECT id FROM people WHERE phone = $1", phone)
    return f"{PEOPLE}/{write_id('per_', row['id'])}"


def invite_path(service: Service, phone: str) -> str:
    (row,) = service.sql("SELECT id FROM invites WHERE phone = $1 ORDER BY id DESC LIMIT 1", phone)
    return f"{PEOPLE}/invites/{write_id('inv_', row['id'])}"


def press(person: Person, path: str) -> httpx.Response:
    """Press a button that has no fields."""
    return person.browser.post(path, data={"": ""})


def role_of(service: Service, phone: str) -> list[str]:
    rows = service.sql(
        "SELECT m.role FROM members m JOIN people p ON p.id = m.person_id WHERE p.phone = $1", phone
    )
    return [row["role"] for row in rows]


def changes_of(service: Service, owner: Person) -> list[tuple[str, str, str]]:
    rows = service.sql(
        "SELECT c.actor, c.what, c.detail FROM changes c JOIN accounts a ON a.id = c.account_id"
        " WHERE a.phone = $1 ORDER BY c.id",
        owner.phone,
    )
    return [tuple(row) for row in rows]


def test_a_person_is_invited_joins_changes_and_goes(service: Service) -> None:
    owner, phone = sign_up(service), new_phone()
    assert invite(owner, phone, MemberRole.SENDER, password="wrong").status_code == 422
    assert texts_to(service, phone) == []
    assert goes_to(invite(owner, phone, MemberRole.SENDER)) == f"{PEOPLE}?done=invited"
    (text,) = texts_to(service, phone)
    assert NAME in text
    assert "Moyo Stores" in text
    path, code = link_and_code(service, phone)

    guest = new_browser(service)
    assert "Join Moyo Stores" in guest.get(path).text
    wrong = guest.post(path, data={"code": f"{(int(code) + 1) % 10**6:06}", **JOINED})
    assert (wrong.status_code, "Wrong code" in alert(wrong)) == (422, True)
    weak = guest.post(path, data={"code": code, "name": "Rudo", "password": "password1"})
    assert "easy to guess" in alert(weak)
    assert goes_to(guest.post(path, data={"code": code, **JOINED})) == "/dashboard"
    assert guest.get("/dashboard/compose").status_code == 200
    # Once.
    assert new_browser(service).get(path).status_code == 404
    assert guest.post(path, data={"code": code, **JOINED}).status_code == 404

    one = member_path(service, phone)
    assert owner.browser.post(f"{one}/role", data={"role": "finance", "password": "wrong"}).status_code == 422
    assert role_of(service, phone) == ["sender"]
    changed = owner.browser.post(f"{one}/role", data={"role": "finance", "password": PASSWORD})
    assert goes_to(changed) == f"{PEOPLE}?done=role"
    assert [guest.get(page).status_code for page in ("/dashboard/compose", "/dashboard/ledger")] == [403, 200]

    removed = owner.browser.post(f"{one}/remove", data={"password_to_remove": PASSWORD})
    assert goes_to(removed) == f"{PEOPLE}?done=removed"
    assert goes_to(guest.get("/dashboard")) == "/dashboard/sign-in"
    assert "in no account now" in alert(sign_in(guest, phone))
    assert owner.browser.get(one).status_code == 404
    assert changes_of(service, owner) == [
        (NAME, "person invited", f"number ending in {phone[-3:]}, sender"),
        ("Rudo Dube", "person joined", "Rudo Dube, sender"),
        (NAME, "role changed", "Rudo Dube: sender to finance"),
        (NAME, "person removed", "Rudo Dube, finance"),
    ]
    history = owner.browser.get("/dashboard/settings/changes").text
    assert f"{NAME} (you)" in history
    # The number is free again: for an invitation, and for a sign-up with another password.
    again = sign_up(service, phone, password="another long password")
    assert is_signed_in(again.browser)


def test_an_invitation_is_sent_again_revoked_and_expires(service: Service) -> None:
    owner, phone = sign_up(service), new_phone()
    invite(owner, phone, MemberRole.VIEWER)
    old = link_and_code(service, phone)
    again = f"{invite_path(service, phone)}/again"
    assert "just now" in alert(press(owner, again))
    assert "already invited" in alert(invite(owner, phone, MemberRole.OWNER))
    service.sql("UPDATE invites SET sent_at = ARRAY[clock_timestamp() - interval '3 minutes']")
    assert goes_to(press(owner, again)) == f"{PEOPLE}?done=again"
    new = link_and_code(service, phone)
    assert old[0] != new[0]
    guest = new_browser(service)
    assert guest.get(old[0]).status_code == 404
    for _ in range(5):
        assert guest.post(new[0], data={"code": "000000", **JOINED}).status_code == 422
    used_up = guest.post(new[0], data={"code": new[1], **JOINED})
    assert "can no longer be used" in alert(used_up)

    revoke = f"{invite_path(service, phone)}/revoke"
    assert goes_to(press(owner, revoke)) == f"{PEOPLE}?done=revoked"
    assert guest.get(new[0]).status_code == 404
    assert press(owner, revoke).status_code == 404
    service.sql("UPDATE invites SET sent_at = ARRAY[clock_timestamp() - interval '3 minutes']")
    invite(owner, phone, MemberRole.VIEWER)
    path, code = link_and_code(service, phone)
    service.sql("UPDATE invites SET sent_at = ARRAY[clock_timestamp() - interval '73 hours']")
    assert guest.post(path, data={"code": code, **JOINED}).status_code == 404
    assert "expired" in owner.browser.get(PEOPLE).text


def test_nobody_is_bothered_by_invitations(service: Service) -> None:
    phone = new_phone()
    owners = [sign_up(service) for _ in range(4)]
    answers = at_once([partial(invite, owner, phone, MemberRole.VIEWER) for owner in owners])
    assert sorted(answer.status_code for answer in answers) == [303, 303, 303, 422]
    assert len(texts_to(service, phone)) == 3
    # And an account sends twenty in a day, to whomever.
    owner = owners[0]
    service.sql(
        "INSERT INTO invites (id, account_id, phone, role, token_sha256, code_hash, invited_by, state,"
        "                     ended_at)"
        " SELECT gen_random_uuid(), m.account_id, '+26377123' || n, 'viewer', sha256(n::text::bytea), 'x',"
        "        p.id, 'revoked', now()"
        "   FROM people p JOIN members m ON m.person_id = p.id, generate_series(1000, 1019) n"
        "  WHERE p.phone = $1",
        owner.phone,
    )
    refused = invite(owner, new_phone(), MemberRole.VIEWER)
    assert "invitations today" in alert(refused)


def test_names_in_an_invitation_hold_no_link_and_no_code(service: Service) -> None:
    owner = sign_up(service, name="Win at evil.example/x", business="Call 0771200001 now " * 4)
    phone = new_phone()
    invite(owner, phone, MemberRole.VIEWER)
    (text,) = texts_to(service, phone)
    assert "evil.example" not in text
    assert "0771200001" not in text


def test_one_phone_is_in_two_accounts_and_switches(service: Service) -> None:
    owner, other = sign_up(service), sign_up(service, business="Dube Pharmacy")
    assert goes_to(invite(owner, other.phone, MemberRole.VIEWER)) is not None
    path, code = link_and_code(service, other.phone)
    page = new_browser(service).get(path).text
    assert "You already sign in with this number" in page
    guest = new_browser(service)
    # Neither the link and the code nor the password alone.
    refused = guest.post(path, data={"code": code, "name": "Eve", "password": "new long password"})
    assert "Wrong password" in alert(refused)
    assert goes_to(guest.post(path, data={"code": code, "password": PASSWORD})) == "/dashboard"
    assert "Moyo Stores" in guest.get("/dashboard").text
    assert guest.get("/dashboard/keys").status_code == 403

    (mine,) = service.sql("SELECT id FROM accounts WHERE phone = $1", other.phone)
    (foreign,) = service.sql("SELECT id FROM accounts WHERE phone = $1", sign_up(service).phone)
    assert "Dube Pharmacy" in guest.get("/dashboard/accounts").text
    stolen = guest.post("/dashboard/accounts", data={"account": write_id(ACCOUNT, foreign["id"])})
    assert stolen.status_code == 422
    moved = guest.post("/dashboard/accounts", data={"account": write_id(ACCOUNT, mine["id"])})
    assert goes_to(moved) == "/dashboard"
    assert guest.get("/dashboard/keys").status_code == 200
    # The next sign-in is in the account that was used last.
    guest = new_browser(service)
    sign_in(guest, other.phone)
    assert "Dube Pharmacy" in guest.get("/dashboard").text
    # Leaving one account leaves the other.
    left = other.browser.post("/dashboard/accounts", data={"account": write_id(ACCOUNT, foreign["id"])})
    assert left.status_code == 422
    guest.post("/dashboard/accounts", data={"account": write_id(ACCOUNT, _account(service, owner))})
    assert goes_to(guest.post(f"{PEOPLE}/leave", data={"password": PASSWORD})) == "/dashboard/sign-in"
    assert is_signed_in(other.browser)
    assert role_of(service, other.phone) == ["owner"]


def _account(service: Service, person: Person) -> UUID:
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    return UUID(str(row["id"]))


def test_a_removed_owner_does_not_return_through_an_invitation(service: Service) -> None:
    owner = sign_up(service)
    second = add(service, owner, MemberRole.OWNER)
    phone = new_phone()
    invite(second, phone, MemberRole.OWNER)
    path, _code = link_and_code(service, phone)
    assert new_browser(service).get(path).status_code == 200
    one = member_path(service, second.phone)
    owner.browser.post(f"{one}/role", data={"role": "viewer", "password": PASSWORD})
    assert new_browser(service).get(path).status_code == 404
    assert invite(second, phone, MemberRole.OWNER).status_code == 403
    refused = owner.browser.post(
        f"{member_path(service, owner.phone)}/remove", data={"password_to_remove": PASSWORD}
    )
    assert "needs an owner" in alert(refused)


def test_people_of_another_account_are_not_there(service: Service) -> None:
    owner, other = sign_up(service), sign_up(service)
    theirs, phone = add(service, other, MemberRole.VIEWER), new_phone()
    invite(other, phone, MemberRole.VIEWER)
    before = count(service, "SELECT count(*) FROM members")
    one, invited = member_path(service, theirs.phone), invite_path(service, phone)
    unknown = one[:-4] + "0000"
    for path in (one, unknown):
        assert owner.browser.get(path).status_code == 404
        assert (
            owner.browser.post(f"{path}/role", data={"role": "owner", "password": PASSWORD}).status_code
            == 404
        )
        gone = owner.browser.post(f"{path}/remove", data={"password_to_remove": PASSWORD})
        assert gone.status_code == 404
    for what in ("again", "revoke"):
        assert press(owner, f"{invited}/{what}").status_code == 404
    assert count(service, "SELECT count(*) FROM members") == before


def test_a_password_and_its_sessions_are_the_persons_own(service: Service) -> None:
    owner = sign_up(service)
    sender = add(service, owner, MemberRole.SENDER)
    elsewhere = new_browser(service)
    sign_in(elsewhere, sender.phone)
    form = {"current_password": PASSWORD, "new_password": "an entirely new password"}
    assert goes_to(sender.browser.post("/dashboard/settings/password", data=form)) is not None
    assert not elsewhere.get("/dashboard").is_success
    assert sender.browser.get("/dashboard").is_success
    assert owner.browser.get("/dashboard").is_success
    assert goes_to(sign_in(new_browser(service), owner.phone)) == "/dashboard"
    assert goes_to(sign_in(new_browser(service), sender.phone, "an entirely new password")) == "/dashboard"


@pytest.mark.long
def test_an_operator_names_an_owner_in_place_of_a_lost_phone(service: Service) -> None:
    lost = sign_up(service)
    account = write_id(ACCOUNT, _account(service, lost))
    cli, phone = QuickCli(service.url), new_phone()
    named = ("account", "owner", account, "--phone", phone)
    cli.check_refused(
        ("say who it is with --name", named),
        ("is not a mobile number", ("account", "owner", account, "--phone", "12")),
        ("no such account", ("account", "owner", "acc_" + "0" * 26, "--phone", phone)),
        ("is not the number of another person", (*named, "--name", "Rudo", "--lost", new_phone())),
        ("is not the number of another person", (*named, "--name", "Rudo", "--lost", phone)),
    )
    assert role_of(service, phone) == []

    done = cli.json(*named, "--name", "Rudo Dube", "--lost", lost.phone, "--note", "came with a passport")
    assert done == {"account_id": account, "phone": phone, "name": "Rudo Dube", "role": "owner"}
    assert (role_of(service, phone), role_of(service, lost.phone)) == (["owner"], [])
    # Whoever has the lost phone is out at once, and is told.
    assert not is_signed_in(lost.browser)
    assert "by support" in texts_to(service, lost.phone)[-1]
    browser = new_browser(service)
    browser.post("/dashboard/forgotten", data={"phone": phone})
    assert goes_to(set_password(browser, code_to(service, phone), PASSWORD)) == "/dashboard"
    history = page_text(browser.get("/dashboard/settings/changes"))
    assert "owner named" in history.lower()
    assert "Rudo Dube" in history
    assert "passport" not in history
    (change,) = service.sql("SELECT actor, detail FROM operator_changes WHERE what = 'owner named'")
    assert change["actor"].startswith("cli:")
    assert change["detail"] == "Rudo Dube; came with a passport"

    # One who is in the account already gets the role, and nobody has to go.
    viewer = add(service, Person(browser, phone, PASSWORD), MemberRole.VIEWER, "Thabo Dlamini")
    assert cli.json("account", "owner", account, "--phone", viewer.phone)["name"] == "Thabo Dlamini"
    assert viewer.browser.get("/dashboard/settings/changes").status_code == 200
    assert role_of(service, phone) == ["owner"]
    # The number of who left every account is as good as new: the old password is not.
    cli.json("account", "owner", account, "--phone", lost.phone, "--name", "Tariro Moyo")
    assert role_of(service, lost.phone) == ["owner"]
    assert goes_to(sign_in(new_browser(service), lost.phone)) != "/dashboard"


def test_a_key_and_a_secret_need_the_password(service: Service) -> None:
    developer = add(service, sign_up(service), MemberRole.DEVELOPER)
    form = {"name": "till", "scope": "messages:send"}
    assert "Wrong password" in alert(developer.browser.post("/dashboard/keys", data=form))
    made = developer.browser.post("/dashboard/keys", data={**form, "password": PASSWORD})
    assert "tmr_" in made.text
