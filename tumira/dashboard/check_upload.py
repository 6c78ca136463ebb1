"""Starts the check of a file, whatever page it comes from."""

from typing import Final
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from tumira.core.errors import ServiceUnavailable
from tumira.core.ids import UPLOAD, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.session import CustomerSession
from tumira.html.forms import FormRefused
from tumira.html.redirect import redirect
from tumira.uploads import kept_files
from tumira.uploads.check_file import Busy, Pending, Unfinished
from tumira.uploads.check_rows import BadFile, BadMessage, Wanted
from tumira.uploads.workbooks.convert import ManySheets

UPLOADS: Final = "/dashboard/upload"
_SHEETS: Final = mark("Several sheets of this workbook have rows. Choose one of them, then check again.")
_QUEUE_FULL: Final = mark("Too many files are being checked right now. Try again in a minute.")


async def start_check(session: CustomerSession, kept_id: UUID, wanted: Wanted) -> Response:
    """Check a kept file and lead to its page; or refuse it."""
    checked = await session.services.checker.check(
        session.account_id, wanted, lambda: _hang_up(session.request)
    )
    match checked:
        case BadMessage():
            raise FormRefused({"message": checked.problem})
        case BadFile():
            raise FormRefused({"file": checked.problem})
        case ManySheets():
            raise FormRefused({"sheet": _(_SHEETS)})
        case Unfinished():
            raise FormRefused({"": checked.problem})
        case Busy():
            raise FormRefused({"": _(_QUEUE_FULL)}, status=ServiceUnavailable.status)
    upload_id = checked.upload_id if isinstance(checked, Pending) else checked
    async with session.database.transaction() as connection:
        await kept_files.set_upload(connection, session.account_id, kept_id, upload_id)
    return redirect(f"{UPLOADS}/{write_id(UPLOAD, upload_id)}")


async def _hang_up(request: Request) -> None:
    """Wait until the browser that sent this request is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
