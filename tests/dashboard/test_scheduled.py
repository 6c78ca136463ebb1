"""A message or a file scheduled from the dashboard, changed, cancelled, and shown with its outcome."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.dashboard.test_compose import COMPOSE, ORDER, Writer, hidden, typed
from tests.dashboard.test_upload import Uploader
from tests.support.identity.customers import ONE, open_session, words
from tests.support.identity.people import goes_to
from tests.support.processes.service import Service
from tests.support.schedules.sends import check_and_schedule, make_due, start_due
from tumira.audit_log import OPERATOR
from tumira.core.days import local_time
from tumira.core.ids import SCHEDULE, UPLOAD, ScheduleId, read_id, write_id
from tumira.pricing.actions import set_price
from tumira.pricing.destinations import Price, PriceStatus
from tumira.schedules.manage import Scheduled

SCHEDULED: Final = "/dashboard/scheduled"
TWO: Final = f"{ONE} +27821230001"
# A browser sends an empty file where none was chosen.
NO_FILE: Final = {"file": ("", b"", "application/octet-stream")}


@dataclass(frozen=True, slots=True)
class Planner(Writer):
    """A customer who sends later."""

    def plan(self, at: datetime, recipients: str = TWO, message: str = ORDER, **more: str) -> httpx.Response:
        fields = {"recipients": recipients, "message": message, "reference": "", **when(at), **more}
        return self.post(COMPOSE, **fields)

    def schedule(self, at: datetime, recipients: str = TWO) -> str:
        """Schedule a message and return the address of its page."""
        return planned(self.confirm(self.plan(at, recipients)))


def when(at: datetime) -> dict[str, str]:
    local = local_time(at)
    return {"day": f"{local:%Y-%m-%d}", "clock": f"{local:%H:%M}"}


def soon(**ahead: float) -> datetime:
    return datetime.now(UTC).replace(second=0) + timedelta(**(ahead or {"days": 2}))


def planned(answer: httpx.Response) -> str:
    assert answer.status_code == 303, words(answer.text)
    location = answer.headers["location"]
    assert location.startswith(f"{SCHEDULED}/sch_")
    return str(location.partition("?")[0])


def id_of(path: str) -> ScheduleId:
    found = read_id(SCHEDULE, path.rpartition("/")[2])
    assert found is not None
    return ScheduleId(found)


def sign_in(service: Service, balance: str = "1") -> Planner:
    caller = service.open_account(balance)
    return Planner(service, caller, open_session(service, caller))


def test_a_message_is_scheduled_changed_and_cancelled(service: Service) -> None:
    customer = sign_in(service)
    at = soon()
    asked = customer.plan(at)
    said = words(asked.text)
    assert "Send this message later?" in said
    assert f"Begins {local_time(at):%-d %b %Y, %H:%M} , Harare time (UTC+02:00)" in said
    assert "Balance now US$1.00 Balance after US$0.94" in said
    path = planned(customer.confirm(asked))
    # A second press makes no second one.
    assert planned(customer.confirm(asked)) == path
    assert service.balance(customer.caller) == Decimal("0.94")
    said = words(customer.page(path, done="scheduled"))
    assert "Price when scheduled US$0.06" in said
    assert "Held US$0.06" in said
    assert ORDER in said
    listed = words(customer.page(SCHEDULED))
    assert "US$0.06 of your money is held" in listed
    assert f"{local_time(at):%-d %b %Y, %H:%M}" in words(customer.page("/dashboard"))
    assert "Held for a scheduled send" in words(customer.page("/dashboard/ledger"))

    # Another text, one recipient less, another time.
    form = customer.ask(path + "/edit")
    assert typed(form) == ("\n".join(TWO.split()), ORDER, "")
    kept = {"schedule": hidden(form)["schedule"]}
    asked = customer.plan(soon(days=3), ONE, "Your order 1042 is late.", **kept)
    assert "Balance after US$0.96" in words(asked.text)
    assert planned(customer.confirm(asked)) == path
    assert service.balance(customer.caller) == Decimal("0.96")
    assert "Your order 1042 is late." in words(customer.page(path))

    answer = customer.post(path + "/time", **when(soon(days=4)))
    assert planned(answer) == path
    assert f"{local_time(soon(days=4)):%-d %b %Y}" in words(customer.page(path))
    assert planned(customer.post(path + "/cancel")) == path
    assert service.balance(customer.caller) == 1
    assert "cancelled" in words(customer.page(path))
    late = customer.post(path + "/cancel")
    assert late.status_code == 409
    assert "nothing was changed" in words(late.text)
    assert not customer.batches()


@pytest.mark.parametrize(
    ("day", "clock", "field", "said"),
    [
        ("", "08:00", "day", "Choose a day."),
        ("2026-13-01", "08:00", "day", "Enter the date as in"),
        ("{today}", "", "clock", "Choose a time."),
        ("{today}", "25:00", "clock", "Enter the time as in 08:30."),
        ("{today}", "noon", "clock", "Enter the time as in 08:30."),
        ("2026-01-01", "08:00", "clock", "at least 5 minutes from now"),
        ("2099-01-01", "08:00", "day", "90 days from now"),
    ],
)
def test_a_time_that_does_not_do_is_said_under_its_field(
    service: Service, day: str, clock: str, field: str, said: str
) -> None:
    customer = sign_in(service)
    day = day.format(today=when(soon())["day"])
    answer = customer.post(COMPOSE, recipients=ONE, message=ORDER, reference="", day=day, clock=clock)
    assert answer.status_code == 422
    assert f'id="{field}-fault"' in answer.text
    assert said in words(answer.text)
    # What was typed is still there.
    assert typed(answer) == (ONE, ORDER, "")
    assert f'value="{clock}"' in answer.text


def test_what_the_balance_does_not_cover_is_not_scheduled(service: Service) -> None:
    customer = sign_in(service, "0.05")
    assert "Your balance is too low" in words(customer.plan(soon()).text)
    asked = customer.plan(soon(), ONE)
    service.sql("UPDATE accounts SET call_limit = 0.01 WHERE id = $1", customer.caller.id)
    refused = customer.confirm(asked)
    assert "more than your limit" in words(refused.text)
    assert service.balance(customer.caller) == Decimal("0.05")
    assert not service.sql("SELECT FROM schedules WHERE account_id = $1", customer.caller.id)


def test_a_price_that_changed_is_shown_before_and_after(service: Service) -> None:
    customer = sign_in(service)
    asked = customer.plan(soon(), ONE)
    path = customer.schedule(soon(), ONE)
    try:
        service.run(set_price, Price("sms", "ZW", Decimal("0.05"), PriceStatus.ACTIVE), OPERATOR)
        # What was shown is no longer so: it is asked again.
        again = customer.confirm(asked)
        assert again.status_code == 409
        assert "Send this message later?" in words(again.text)
        said = words(customer.page(path))
        assert "Price when scheduled US$0.04 Price now US$0.05" in said
        service.run(make_due, id_of(path))
        service.run(start_due)
    finally:
        service.run(set_price, Price("sms", "ZW", Decimal("0.04"), PriceStatus.ACTIVE), OPERATOR)
    said = words(customer.page(path))
    assert "Price when scheduled US$0.04 Price when it began US$0.05" in said
    assert len(customer.batches()) == 1
    assert "See the batch" in said
    # It has begun: the form leads to its outcome.
    assert planned(customer.ask(path + "/edit")) == path


def test_a_send_that_was_not_made_says_why(service: Service) -> None:
    customer = sign_in(service)
    path = customer.schedule(soon())
    service.run(make_due, id_of(path), timedelta(hours=7))
    service.run(start_due)
    said = words(customer.page(path))
    assert "not sent The service was away at that time, and for more than 6 hours." in said
    assert "was not made. See why" in words(customer.page("/dashboard"))
    assert service.balance(customer.caller) == 1


def test_a_file_is_scheduled_on_its_confirmation(service: Service) -> None:
    customer = sign_in(service)
    rows = [f"{ONE},Tariro", "+27821230001,Rudo"]
    upload_id, made = service.run(check_and_schedule, customer.caller.id, rows)
    assert isinstance(made, Scheduled)
    path = f"{SCHEDULED}/{write_id(SCHEDULE, made.id)}"
    file_path = f"/dashboard/upload/{write_id(UPLOAD, upload_id)}"
    # Its own page leads to the schedule, and it cannot be sent twice.
    assert planned(customer.ask(file_path)) == path
    assert customer.ask(file_path + "/send").status_code == 303
    assert "scheduled" in words(customer.page("/dashboard/upload"))
    assert planned(customer.post(path + "/cancel")) == path
    confirmation = customer.ask(file_path + "/send")
    agreed = hidden(confirmation)["agreed"]
    wrong = customer.post(file_path + "/schedule", agreed=agreed, day="", clock="08:00")
    assert (wrong.status_code, 'id="day-fault"' in wrong.text) == (422, True)
    dearer = customer.post(file_path + "/schedule", agreed="0.05", **when(soon()))
    assert dearer.status_code == 409
    again = planned(customer.post(file_path + "/schedule", agreed=agreed, **when(soon())))
    assert again != path
    assert service.balance(customer.caller) == Decimal("0.94")
    assert "people.csv" in words(customer.page(again))


def test_a_scheduled_file_is_edited_without_the_file(service: Service) -> None:
    caller = service.open_account("1")
    at, later = soon(days=2), soon(days=3)
    customer = Uploader(service, caller, open_session(service, caller))
    data = f"to,name\n{ONE},Tariro\n+27821230001,Rudo\n12,Nobody"
    file_path = customer.checked(data, "Dear {name}, your parcel is here.", reference="may")
    agreed = hidden(customer.ask(file_path + "/send"))["agreed"]
    path = planned(customer.post(file_path + "/schedule", agreed=agreed, **when(at)))
    assert "Edit text or file" in words(customer.page(path))
    # Another file was uploaded since; that of the schedule is still there.
    customer.checked(f"to\n{ONE}", "Hello.")

    form_path = str(goes_to(customer.post(path + "/edit")))
    form = customer.page(form_path)
    assert "Edit scheduled file" in words(form)
    assert "We still have p.csv" in words(form)
    assert "Dear {name}, your parcel is here." in form
    kept = hidden(customer.ask(form_path))
    assert kept["schedule"] == path.rpartition("/")[2]
    # A message that does not fit changes nothing.
    wrong = customer.request(
        "POST", "/dashboard/upload", data={**kept, "message": "Dear {nmae}"}, files=NO_FILE
    )
    assert wrong.status_code == 422
    assert "Edit scheduled file" in words(wrong.text)
    text = "Dear {name}, your parcel is here. " + "Please bring your identity document with you. " * 3
    checked = str(
        goes_to(
            customer.request(
                "POST",
                "/dashboard/upload",
                data={**kept, "message": text, "reference": "june"},
                files=NO_FILE,
            )
        )
    )
    start = f"{local_time(at):%-d %b %Y, %H:%M}"
    assert f"This changes your send of {start}" in words(customer.page(checked))
    # Until that is confirmed, the send is as it was.
    assert service.balance(caller) == Decimal("0.94")
    assert planned(customer.ask(file_path)) == path
    asked = customer.ask(checked + "/send")
    said = words(asked.text)
    assert f"Change the send of {start}?" in said
    assert "Balance now US$0.94 Balance after US$0.88" in said
    assert f'value="{when(at)["clock"]}"' in asked.text
    # It is not sent beside the other, and not at another price.
    assert goes_to(customer.post(checked + "/send", agreed="0.1200")) == checked + "/send"
    assert customer.post(checked + "/schedule", agreed="0.0600", **when(later)).status_code == 409
    assert planned(customer.post(checked + "/schedule", agreed="0.1200", **when(later))) == path
    assert service.balance(caller) == Decimal("0.88")
    said = words(customer.page(path))
    assert "Held US$0.12" in said
    assert "june" in said
    assert f"{local_time(later):%-d %b %Y, %H:%M}" in said
    assert customer.ask(file_path).status_code == 404


def test_an_edit_that_comes_too_late_or_without_the_file_says_so(service: Service) -> None:
    caller = service.open_account("1")
    at = soon()
    customer = Uploader(service, caller, open_session(service, caller))
    file_path = customer.checked(f"to,name\n{ONE},Tariro\n+27821230001,Rudo")
    path = planned(customer.post(file_path + "/schedule", agreed="0.0600", **when(at)))
    # The file is gone, as after an erasure, and is chosen again.
    service.sql("DELETE FROM scheduled_files WHERE schedule_id = $1", id_of(path))
    form_path = str(goes_to(customer.post(path + "/edit")))
    form = customer.page(form_path)
    assert "We no longer have this file" in words(form)
    assert "your parcel is here." in form
    checked = customer.checked(f"to,name\n{ONE},Tariro", schedule=hidden(customer.ask(form_path))["schedule"])
    assert planned(customer.post(checked + "/schedule", agreed="0.0400", **when(at))) == path
    assert service.balance(caller) == Decimal("0.96")
    # Once it has begun, an edit that is under way says so.
    form_path = str(goes_to(customer.post(path + "/edit")))
    kept = hidden(customer.ask(form_path))
    checked = str(
        goes_to(
            customer.request("POST", "/dashboard/upload", data={**kept, "message": "Later."}, files=NO_FILE)
        )
    )
    service.run(make_due, id_of(path))
    service.run(start_due)
    assert "has begun or was cancelled" in words(customer.page(checked + "/send"))
    late = customer.post(checked + "/schedule", agreed="0.0400", **when(at))
    assert (late.status_code, "nothing was changed" in words(late.text)) == (409, True)
    assert customer.post(path + "/edit").status_code == 409
    assert not service.sql("SELECT FROM scheduled_files WHERE schedule_id = $1", id_of(path))


def test_a_foreign_schedule_cannot_be_replaced(service: Service) -> None:
    path = sign_in(service).schedule(soon())
    caller = service.open_account("1")
    other = Uploader(service, caller, open_session(service, caller))
    assert other.post(path + "/edit").status_code == 404
    assert other.ask(f"/dashboard/upload?schedule={path.rpartition('/')[2]}").status_code == 404
    checked = other.checked(f"to,name\n{ONE},Tariro", schedule=path.rpartition("/")[2])
    answer = other.post(checked + "/schedule", agreed="0.0400", **when(soon()))
    assert answer.status_code == 409
    assert service.balance(caller) == 1


def test_the_zone_is_chosen_on_the_page(service: Service) -> None:
    customer = sign_in(service)
    assert "Harare time (UTC+02:00)" in words(customer.page(SCHEDULED))
    assert customer.post(SCHEDULED + "/time-zone", zone="Mars").status_code == 422
    answer = customer.post(SCHEDULED + "/time-zone", zone="Africa/Johannesburg")
    assert answer.headers["location"] == f"{SCHEDULED}?done=zone"
    assert "Johannesburg time (UTC+02:00)" in words(customer.page(SCHEDULED))
    assert "time zone changed" in words(customer.page("/dashboard/settings/changes")).lower()


def test_a_foreign_schedule_looks_like_an_unknown_one(service: Service) -> None:
    path = sign_in(service).schedule(soon())
    other = sign_in(service)
    unknown = f"{SCHEDULED}/sch_{'0' * 26}"
    for ask, more in ((other.ask, ""), (other.ask, "/edit"), (other.post, "/cancel")):
        answers = [ask(one + more) for one in (path, unknown)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert len({re.sub(r"req_\w+", "", answer.text) for answer in answers}) == 1
