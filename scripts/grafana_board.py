"""What is on the board for Grafana? Every metric has its place; `make docs` writes it to `deploy/`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture on the board: its queries with their legends, and the unit."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"


def _quantiles(metric: str, by: str, where: str = "") -> Sequence[tuple[str, str]]:
    return [
        (
            f"histogram_quantile({share / 100}, sum by ({by}, le) (rate({metric}_bucket{where}[5m])))",
            f"p{share} {{{{{by}}}}}",
        )
        for share in (50, 95, 99)
    ]


def _overall(metric: str) -> Sequence[tuple[str, str]]:
    return [
        (f"histogram_quantile({share / 100}, sum by (le) (rate({metric}_bucket[5m])))", f"p{share}")
        for share in (50, 95, 99)
    ]


_ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "Now",
        (
            Panel(
                "Alerts",
                [('count(ALERTS{alertname=~"Tumira.*",alertstate="firing"}) or vector(0)', "firing")],
                kind="stat",
            ),
            Panel(
                "Oldest passcode waits",
                [('max(tumira_queue_oldest_seconds{lane="0"})', "lane 0")],
                "s",
                "stat",
            ),
            Panel(
                "Workers and web processes",
                [("max(tumira_workers)", "workers"), ("max(tumira_web_nodes)", "web")],
                kind="stat",
            ),
            Panel(
                "Database",
                [("min(tumira_database_up)", "up"), ("max(tumira_standby_missing)", "standby missing")],
                kind="stat",
            ),
        ),
    ),
    (
        "Traffic",
        (
            Panel(
                "API calls",
                [
                    (
                        "sum by (operation, status) (rate(tumira_api_calls_total[5m]))",
                        "{{operation}} {{status}}",
                    )
                ],
                "reqps",
            ),
            Panel("Refusals", [("sum by (code) (rate(tumira_api_refusals_total[5m]))", "{{code}}")], "reqps"),
            Panel("Time to answer", _quantiles("tumira_api_call_seconds", "operation"), "s"),
            Panel(
                "Calls that wait to be decided",
                [("max by (instance) (tumira_gate_waiting_calls)", "{{instance}}")],
            ),
            Panel(
                "Pages",
                [("sum by (face, status) (rate(tumira_page_requests_total[5m]))", "{{face}} {{status}}")],
                "reqps",
            ),
            Panel("Time of pages", _quantiles("tumira_page_request_seconds", "face"), "s"),
        ),
    ),
    (
        "Queue",
        (
            Panel(
                "Waiting", [("max by (country, lane) (tumira_queue_messages)", "{{country}} lane {{lane}}")]
            ),
            Panel(
                "Oldest",
                [("max by (country, lane) (tumira_queue_oldest_seconds)", "{{country}} lane {{lane}}")],
                "s",
            ),
            Panel(
                "Claimed",
                [
                    (
                        "sum by (country, lane) (rate(tumira_messages_claimed_total[5m]))",
                        "{{country}} lane {{lane}}",
                    )
                ],
                "reqps",
            ),
            Panel(
                "Accept to hand-over, lane 0",
                _quantiles("tumira_handover_seconds", "country", '{lane="0"}'),
                "s",
            ),
            Panel(
                "Elsewhere",
                [
                    ("max(tumira_in_flight_messages)", "in flight"),
                    ("max(tumira_retry_messages)", "another try"),
                    ("max(tumira_doubt_messages)", "in doubt"),
                ],
            ),
            Panel(
                "Files",
                [
                    ("max(tumira_uploads_waiting)", "waiting"),
                    ("max(tumira_uploads_oldest_seconds)", "oldest, seconds"),
                    ("sum by (result) (rate(tumira_upload_chunks_total[5m]))", "chunks {{result}}"),
                ],
            ),
        ),
    ),
    (
        "Carriers",
        (
            Panel("Binds", [("max by (carrier, state) (tumira_binds) > 0", "{{carrier}} {{state}}")]),
            Panel(
                "Countries without a carrier",
                [("max by (country) (tumira_country_covered) == 0", "{{country}}")],
            ),
            Panel(
                "Window in use",
                [
                    (
                        "max by (carrier) (tumira_window_used_segments / tumira_window_segments)",
                        "{{carrier}}",
                    )
                ],
                "percentunit",
            ),
            Panel(
                "Submitted",
                [("sum by (carrier) (rate(tumira_segments_submitted_total[5m]))", "{{carrier}}")],
                "reqps",
            ),
            Panel(
                "Answers",
                [
                    (
                        "sum by (carrier, answer) (rate(tumira_carrier_answers_total[5m]))",
                        "{{carrier}} {{answer}}",
                    )
                ],
                "reqps",
            ),
            Panel("Time to answer", _quantiles("tumira_carrier_answer_seconds", "carrier"), "s"),
            Panel(
                "How messages end",
                [
                    (
                        "sum by (carrier, status) (rate(tumira_messages_ended_total[5m]))",
                        "{{carrier}} {{status}}",
                    )
                ],
                "reqps",
            ),
            Panel(
                "Receipts",
                [("sum by (carrier, result) (rate(tumira_receipts_total[5m]))", "{{carrier}} {{result}}")],
                "reqps",
            ),
            Panel("Hand-over to receipt", _quantiles("tumira_receipt_seconds", "country"), "s"),
            Panel(
                "Receipts without a message",
                [("max by (carrier) (tumira_unmatched_receipts)", "{{carrier}}")],
            ),
            Panel(
                "Doubts",
                [("sum by (carrier) (rate(tumira_messages_doubted_total[5m]))", "{{carrier}}")],
                "reqps",
            ),
            Panel(
                "Tries to bind",
                [
                    (
                        "sum by (carrier, result) (increase(tumira_bind_attempts_total[5m]))",
                        "{{carrier}} {{result}}",
                    )
                ],
            ),
        ),
    ),
    (
        "Webhooks and mails",
        (
            Panel(
                "Tries",
                [("sum by (result) (rate(tumira_webhook_attempts_total[5m]))", "{{result}}")],
                "reqps",
            ),
            Panel("Event to delivery", _overall("tumira_webhook_delay_seconds"), "s"),
            Panel("Time of a try", _overall("tumira_webhook_attempt_seconds"), "s"),
            Panel("Endpoints", [("max by (state) (tumira_webhook_endpoints)", "{{state}}")]),
            Panel(
                "Events that wait",
                [
                    ("max by (state) (tumira_webhook_events_waiting)", "{{state}}"),
                    ("max(tumira_webhook_oldest_seconds)", "oldest, seconds"),
                ],
            ),
            Panel(
                "Mails",
                [
                    ("max(tumira_mails_waiting)", "waiting"),
                    ("max(tumira_mails_oldest_seconds)", "oldest, seconds"),
                    ("sum by (result) (increase(tumira_mails_total[5m]))", "{{result}}"),
                ],
            ),
        ),
    ),
    (
        "Money and house",
        (
            Panel("Top-ups", [("max by (state) (tumira_top_ups)", "{{state}}")]),
            Panel(
                "Top-ups moved",
                [
                    (
                        "sum by (method, state) (increase(tumira_top_up_moves_total[15m]))",
                        "{{method}} {{state}}",
                    )
                ],
            ),
            Panel("USDT last looked at", [("max(tumira_usdt_look_age_seconds)", "ago")], "s"),
            Panel(
                "Audit",
                [
                    ("max(tumira_audit_broken_checks)", "broken"),
                    ("max(tumira_ledgers_broken)", "ledgers broken"),
                ],
            ),
            Panel("Last audit", [("min(tumira_audit_age_seconds)", "ago")], "s"),
            Panel(
                "Chores",
                [
                    (
                        "sum by (chore, result) (increase(tumira_chore_runs_total[15m]))",
                        "{{chore}} {{result}}",
                    ),
                    ("sum by (chore) (increase(tumira_chore_items_total[15m]))", "{{chore}} items"),
                ],
            ),
            Panel("Weeks ahead", [("min(tumira_partition_weeks_left)", "weeks")]),
            Panel("Database", [("max(tumira_database_size_bytes)", "size")], "bytes"),
            Panel(
                "Disk",
                [
                    ("tumira_disk_free_bytes", "free {{instance}}"),
                    ("tumira_disk_size_bytes", "size {{instance}}"),
                ],
                "bytes",
            ),
            Panel(
                "Log lines",
                [("sum by (job, level) (rate(tumira_log_lines_total[5m]))", "{{job}} {{level}}")],
                "reqps",
            ),
            Panel(
                "Since a worker was last well",
                [("time() - tumira_worker_beat_timestamp_seconds", "{{instance}}")],
                "s",
            ),
            Panel(
                "Spans",
                [
                    ("sum by (job, result) (rate(tumira_spans_total[5m]))", "{{job}} {{result}}"),
                    ("count by (version) (tumira_build_info)", "version {{version}}"),
                ],
            ),
        ),
    ),
)

_WIDTH: Final = 24
_ACROSS: Final = 3
_HEIGHT: Final = 8


def board() -> str:
    """Write the board as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in _ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y},
                "panels": [],
            }
        )
        y += 1
        across = len(row) if row[0].kind == "stat" else _ACROSS
        width, height = _WIDTH // across, _HEIGHT // 2 if row[0].kind == "stat" else _HEIGHT
        for place, panel in enumerate(row):
            at = {"h": height, "w": width, "x": place % across * width, "y": y + place // across * height}
            panels.append(_panel(panel, len(panels) + 1, at))
        y += -(-len(row) // across) * height
    written = {
        "uid": "tumira",
        "title": "Tumira",
        "tags": ["tumira"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"


def _panel(panel: Panel, identifier: int, at: Mapping[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": identifier,
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": dict(at),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": source, "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }
