"""Every metric, declared once; `docs/metrics.md` is made from this.

A process shows what it counts itself: `web` on its own port, a worker on `TUMIRA_WORKER_METRICS_PORT`. Gauges
that are read from the database are shown by `web`.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

# When a counter began is of no use to anybody here, and doubles the page.
disable_created_metrics()  # type: ignore[no-untyped-call]

WEB: Final = CollectorRegistry()
WORKER: Final = CollectorRegistry()
DATABASE: Final = CollectorRegistry()

for _own in (WEB, WORKER):
    ProcessCollector(registry=_own)
    PlatformCollector(registry=_own)
    GCCollector(registry=_own)

_CALL_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_ANSWER_S: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_PASSAGE_S: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)

# Both processes.

BUILD: Final = Gauge("tumira_build_info", "Always 1; which version runs.", ["version"], registry=WEB)
LOG_LINES: Final = Counter("tumira_log_lines", "Log lines, by level.", ["level"], registry=WEB)
SPANS: Final = Counter(
    "tumira_spans",
    "Spans of traces: `sent` to the collector, or `dropped` because it was away or too slow.",
    ["result"],
    registry=WEB,
)
for _shared in (BUILD, LOG_LINES, SPANS):
    WORKER.register(_shared)

# Web.

CALLS: Final = Counter("tumira_api_calls", "API calls answered.", ["operation", "status"], registry=WEB)
CALL_SECONDS: Final = Histogram(
    "tumira_api_call_seconds",
    "Time from a call's first byte to its answer.",
    ["operation"],
    buckets=_CALL_S,
    registry=WEB,
)
REFUSALS: Final = Counter(
    "tumira_api_refusals", "API calls refused, by the code of the error.", ["code"], registry=WEB
)
PAGES: Final = Counter(
    "tumira_page_requests",
    "Requests for anything but the API, by face; `server` refused those that were too large, slow or odd.",
    ["face", "status"],
    registry=WEB,
)
PAGE_SECONDS: Final = Histogram(
    "tumira_page_request_seconds",
    "Time from such a request to the start of its answer.",
    ["face"],
    buckets=_CALL_S,
    registry=WEB,
)
CLAIMED_DIRECTLY: Final = Counter(
    "tumira_messages_claimed_directly",
    "Messages that went to a worker on this machine without waiting in the queue.",
    registry=WEB,
)
GATE_WAITING: Final = Gauge(
    "tumira_gate_waiting_calls", "Calls that wait to be decided in this process.", registry=WEB
)
DATABASE_UP: Final = Gauge(
    "tumira_database_up", "1 when the database could be read for this page, else 0.", registry=WEB
)
DISK_FREE: Final = Gauge(
    "tumira_disk_free_bytes",
    "Free space where TUMIRA_DATA_DIR is; NaN where it does not exist.",
    registry=WEB,
)
DISK_SIZE: Final = Gauge("tumira_disk_size_bytes", "Size of that disk.", registry=WEB)

# Worker: carriers.

BEAT: Final = Gauge(
    "tumira_worker_beat_timestamp_seconds",
    "When this worker last said to the database that it lives, in Unix time.",
    registry=WORKER,
)
CLAIMED: Final = Counter(
    "tumira_messages_claimed", "Messages taken from the queue.", ["country", "lane"], registry=WORKER
)
SUBMITTED: Final = Counter(
    "tumira_segments_submitted", "Segments submitted to a carrier.", ["carrier"], registry=WORKER
)
ANSWERS: Final = Counter(
    "tumira_carrier_answers",
    "Answers to submits: `taken`, `throttled`, `temporary`, `unknown`, `link`, `refused`, or `none` in time.",
    ["carrier", "answer"],
    registry=WORKER,
)
ANSWER_SECONDS: Final = Histogram(
    "tumira_carrier_answer_seconds",
    "Time from a submit to its answer.",
    ["carrier"],
    buckets=_ANSWER_S,
    registry=WORKER,
)
BINDS_TRIED: Final = Counter(
    "tumira_bind_attempts",
    "Tries to bind; `result` is `bound`, `refused`, `unreachable` or `failed`.",
    ["carrier", "result"],
    registry=WORKER,
)
SUBMISSION_SECONDS: Final = Histogram(
    "tumira_handover_seconds",
    "Time from the accept of a message until a carrier has taken all of it.",
    ["country", "lane"],
    buckets=_PASSAGE_S,
    registry=WORKER,
)
RECEIPTS: Final = Counter(
    "tumira_receipts",
    "Receipts recorded; `result` is `matched` or `unmatched`.",
    ["carrier", "result"],
    registry=WORKER,
)
REPLIES: Final = Counter(
    "tumira_replies",
    "Replies of recipients; `result` is `matched` with an account or `unmatched`.",
    ["carrier", "result"],
    registry=WORKER,
)
RECEIPT_SECONDS: Final = Histogram(
    "tumira_receipt_seconds",
    "Time from the hand-over of a message to the receipt that ended it.",
    ["country"],
    buckets=_PASSAGE_S,
    registry=WORKER,
)
ENDED: Final = Counter(
    "tumira_messages_ended",
    "Messages that came to a final status by what a carrier said.",
    ["carrier", "status"],
    registry=WORKER,
)
DOUBTED: Final = Counter(
    "tumira_messages_doubted", "Messages that became doubtful.", ["carrier"], registry=WORKER
)
SENDERS_REFUSED: Final = Counter(
    "tumira_senders_refused",
    "Submits that a carrier refused because of their sender.",
    ["carrier"],
    registry=WORKER,
)
# Carriers over HTTP report to web.
for _reported in (RECEIPTS, RECEIPT_SECONDS, ENDED):
    WEB.register(_reported)

# Worker: everything else.

WEBHOOKS: Final = Counter(
    "tumira_webhook_attempts",
    "Tries to deliver an event; `result` is `delivered`, `refused` (another status) or `failed` (no answer).",
    ["result"],
    registry=WORKER,
)
WEBHOOK_SECONDS: Final = Histogram(
    "tumira_webhook_attempt_seconds", "How long a try took.", buckets=_ANSWER_S, registry=WORKER
)
WEBHOOK_DELAY_SECONDS: Final = Histogram(
    "tumira_webhook_delay_seconds",
    "Time from an event to its delivery.",
    buckets=_PASSAGE_S,
    registry=WORKER,
)
MAILS: Final = Counter(
    "tumira_mails", "Tries to send a mail: `sent`, `put_off` or `given_up`.", ["result"], registry=WORKER
)
TOP_UPS_MOVED: Final = Counter(
    "tumira_top_up_moves",
    "Top-ups that a worker moved to another state.",
    ["method", "state"],
    registry=WORKER,
)
UPLOAD_CHUNKS: Final = Counter(
    "tumira_upload_chunks", "Turns taken at the chunks of files.", ["result"], registry=WORKER
)
TASK_RUNS: Final = Counter(
    "tumira_chore_runs",
    "Runs of maintenance tasks, `done` or `failed`.",
    ["chore", "result"],
    registry=WORKER,
)
TASK_ITEMS: Final = Counter(
    "tumira_chore_items", "Items that maintenance tasks handled.", ["chore"], registry=WORKER
)

# Read from the database.


def _read(name: str, meaning: str, *labels: str) -> Gauge:
    return Gauge(name, meaning, labels, registry=DATABASE)


QUEUE: Final = _read(
    "tumira_queue_messages", "Messages that wait for their turn, up to 20,000.", "country", "lane"
)
QUEUE_OLDEST: Final = _read("tumira_queue_oldest_seconds", "Age of the oldest of these.", "country", "lane")
IN_FLIGHT: Final = _read("tumira_in_flight_messages", "Messages claimed and not recorded yet.")
RETRYING: Final = _read("tumira_retry_messages", "Messages that wait for another try.")
IN_DOUBT: Final = _read("tumira_doubt_messages", "Messages that may have been handed over, and wait.")
BINDS: Final = _read(
    "tumira_binds",
    "Binds of a carrier by state; `absent` are those that no worker holds.",
    "carrier",
    "state",
)
WINDOW: Final = _read("tumira_window_segments", "Segments that a carrier's binds may leave open.", "carrier")
WINDOW_USED: Final = _read("tumira_window_used_segments", "Segments that wait for an answer.", "carrier")
COVERED: Final = _read(
    "tumira_country_covered", "1 when some bind of a carrier for a country is at work, else 0.", "country"
)
LOSING_ROUTES: Final = _read(
    "tumira_losing_routes", "Routes whose cost is higher than the price of their country."
)
BALANCE: Final = _read(
    "tumira_carrier_balance",
    "Credit left with a carrier, in its own currency, as the provider told it last.",
    "carrier",
    "currency",
)
UNMATCHED: Final = _read(
    "tumira_unmatched_receipts", "Receipts that match no message, up to 20,000.", "carrier"
)
ENDPOINTS: Final = _read(
    "tumira_webhook_endpoints",
    "Endpoints by state: `active`, `failing`, `paused` or `disabled`.",
    "state",
)
EVENTS_WAITING: Final = _read(
    "tumira_webhook_events_waiting",
    "Events that the endpoints of a state have not been told of; `state` is `active` or `failing`.",
    "state",
)
EVENTS_OLDEST: Final = _read(
    "tumira_webhook_oldest_seconds", "Age of the oldest event that waits for an endpoint that does not fail."
)
TOP_UPS: Final = _read(
    "tumira_top_ups",
    "Top-ups that are not over (`started`, `pending`, `doubt`), were taken back (`reversed`), or were paid "
    "after their end and wait for an operator (`paid_late`).",
    "state",
)
USDT_LOOKED: Final = _read(
    "tumira_usdt_look_age_seconds",
    "How long ago the chain was last looked at for deposits; NaN where nobody does.",
)
MAILS_WAITING: Final = _read("tumira_mails_waiting", "Mails that were not sent yet, up to 20,000.")
MAILS_OLDEST: Final = _read("tumira_mails_oldest_seconds", "Age of the oldest of these.")
UPLOADS_WAITING: Final = _read("tumira_uploads_waiting", "Files that are being sent.")
UPLOADS_OLDEST: Final = _read("tumira_uploads_oldest_seconds", "How long ago the oldest was confirmed.")
WEEKS_LEFT: Final = _read(
    "tumira_partition_weeks_left", "Weeks after this one that every table is ready for."
)
STANDBY_MISSING: Final = _read(
    "tumira_standby_missing", "1 while commits wait for a synchronous standby that does not follow, else 0."
)
AUDIT_AGE: Final = _read(
    "tumira_audit_age_seconds", "How long ago an audit last ended with a result, or the database was made."
)
AUDIT_BROKEN: Final = _read("tumira_audit_broken_checks", "Promises that it found broken.")
LEDGERS_BROKEN: Final = _read(
    "tumira_ledgers_broken", "Accounts whose transfers do not come to their balance."
)
WORKERS: Final = _read("tumira_workers", "Workers that were seen in the last ten seconds.")
WEB_NODES: Final = _read("tumira_web_nodes", "Web processes that were seen in the last two minutes.")
DATABASE_SIZE: Final = _read("tumira_database_size_bytes", "Size of the database.")
