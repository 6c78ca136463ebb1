"""Receives webhooks of Tumira. WEBHOOK_SECRET=whsec_… python3 receiver.py (Python 3.9+, no packages)."""

import base64
import hmac
import json
import os
import re
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].replace("whsec_", "", 1))
PORT = int(os.environ.get("PORT", "8000"))
TOLERANCE_S = 5 * 60
BODY_MAX = 64 * 1024


def is_genuine(event_id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Tell whether Tumira sent this, and just now."""
    if not re.fullmatch("[0-9]{1,12}", timestamp) or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    signed = f"{event_id}.{timestamp}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, "sha256"))
    # While a secret is being changed there are two signatures; one match is enough.
    return any(hmac.compare_digest(expected, one.encode()) for one in signatures.split())


def keep(event_id: str, body: bytes) -> bool:
    """Write an event down, to be worked on later; False if we have it already."""
    database = sqlite3.connect("events.db")
    with database:
        database.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, body BLOB)")
        row = (event_id, body)
        is_new = database.execute("INSERT OR IGNORE INTO events VALUES (?, ?)", row).rowcount == 1
    database.close()
    return is_new


class Receiver(BaseHTTPRequestHandler):
    """Takes one event per request."""

    timeout = 15

    def do_POST(self) -> None:
        """Check an event, write it down, and answer at once."""
        length = self.headers.get("content-length", "")
        body = self.rfile.read(min(int(length), BODY_MAX)) if length.isdecimal() else b""
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        event_id, timestamp, signatures = (self.headers.get(name, "") for name in names)
        genuine = is_genuine(event_id, timestamp, signatures, body)
        if genuine and keep(event_id, body):
            print("new", event_id, json.loads(body)["type"], flush=True)
        self.send_response(204 if genuine else 400)
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
