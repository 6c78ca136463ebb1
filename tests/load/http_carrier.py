"""A carrier over HTTP for the benchmark: the one of `carrier`, which speaks as BulkSMS does."""

import re
from typing import Final

from tests.load.carrier import Line, Submit, TimedCarrier

_LENGTH: Final = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_ANSWER: Final = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_TAKEN: Final = b'[{"id":"%b","type":"SENT","status":{"id":"ACCEPTED","type":"ACCEPTED","subtype":null}}]'
_PROFILE: Final = b'{"credits":{"balance":1000}}'


class TimedHttpCarrier(TimedCarrier):
    """Counts calls under way over all connections, because each has one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._came: dict[Line, bytes] = {}

    def received(self, line: Line, data: bytes, now: float) -> None:
        data = self._came.pop(line, b"") + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(data, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(data) < whole:
                break
            if data.startswith(b"POST"):
                self._call(line, now)
            else:
                line.out.append(_ANSWER % (b"200 OK", len(_PROFILE), _PROFILE))
            data = data[whole:]
        if data:
            self._came[line] = data

    def ended(self, line: Line) -> None:
        self._came.pop(line, None)
        super().ended(line)

    def _call(self, line: Line, now: float) -> None:
        self._last_id += 1
        self.note_submit(len(self._answers) + 1, now)
        submit = Submit(line, 0, now, b"%d" % self._last_id, b"")
        self._answers.append((now + self.manners.answer_ms / 1000, submit))

    def write_answer(self, submit: Submit) -> bytes:
        body = _TAKEN % submit.message_id
        return _ANSWER % (b"201 Created", len(body), body)
