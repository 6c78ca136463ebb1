"""Alert rules: each fires when it should, and only then.

The rules are judged by Prometheus's own promtool, which plays them against made-up series.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.metrics_list import ALERTS, rules

ROOT: Final = Path(__file__).parents[2]
RUNBOOK: Final = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
NAMES: Final = [rule.name for rule in rules()]
# When the series are judged; every alert's patience is over by then.
AT: Final = "2h"
CHECK_S: Final = 60

WEB: Final = 'job="tumira-web", instance="web-1"'
WORKER: Final = 'job="tumira-worker", instance="worker-1"'

Series = Mapping[str, str]


def web(name: str, labels: str = "") -> str:
    return f"{name}{{{', '.join(one for one in (labels, WEB) if one)}}}"


def worker(name: str, labels: str = "") -> str:
    return f"{name}{{{', '.join(one for one in (labels, WORKER) if one)}}}"


def answers(answer: str) -> str:
    return worker("tumira_carrier_answers_total", f'carrier="one", answer="{answer}"')


def ended(status: str) -> str:
    return worker("tumira_messages_ended_total", f'carrier="one", status="{status}"')


# A gateway that is well: busy, and nothing waits for long. `a+bxn` begins at a and grows by b each minute.
WELL: Final[Series] = {
    f"up{{{WEB}}}": "1x150",
    f"up{{{WORKER}}}": "1x150",
    worker("tumira_worker_beat_timestamp_seconds"): "0+60x150",
    web("tumira_workers"): "2x150",
    web("tumira_database_up"): "1x150",
    web("tumira_standby_missing"): "0x150",
    web("tumira_queue_oldest_seconds", 'country="ZW", lane="0"'): "1x150",
    web("tumira_queue_oldest_seconds", 'country="ZW", lane="1"'): "600x150",
    worker("tumira_handover_seconds_bucket", 'country="ZW", lane="0", le="1"'): "0+6000x150",
    worker("tumira_handover_seconds_bucket", 'country="ZW", lane="0", le="10"'): "0+6000x150",
    worker("tumira_handover_seconds_bucket", 'country="ZW", lane="0", le="+Inf"'): "0+6000x150",
    worker("tumira_senders_refused_total", 'carrier="one"'): "0x150",
    web("tumira_country_covered", 'country="ZW"'): "1x150",
    web("tumira_binds", 'carrier="one", state="bound"'): "2x150",
    web("tumira_binds", 'carrier="one", state="throttled"'): "0x150",
    web("tumira_binds", 'carrier="one", state="failing"'): "0x150",
    web("tumira_binds", 'carrier="one", state="down"'): "0x150",
    answers("taken"): "0+6000x150",
    answers("throttled"): "0+60x150",
    answers("refused"): "0+60x150",
    ended("delivered"): "0+5500x150",
    ended("undelivered"): "0+500x150",
    web("tumira_doubt_messages"): "3x150",
    worker("tumira_receipts_total", 'carrier="one", result="matched"'): "0+5900x150",
    worker("tumira_receipts_total", 'carrier="one", result="unmatched"'): "0+1x150",
    web("tumira_unmatched_receipts", 'carrier="one"'): "20x150",
    web("tumira_webhook_oldest_seconds"): "2x150",
    web("tumira_webhook_endpoints", 'state="active"'): "40x150",
    web("tumira_webhook_endpoints", 'state="failing"'): "6x150",
    web("tumira_api_calls_total", 'operation="sendMessages", status="202"'): "0+6000x150",
    web("tumira_api_calls_total", 'operation="sendMessages", status="503"'): "0+1x150",
    web("tumira_api_call_seconds_bucket", 'operation="sendMessages", le="0.5"'): "0+6000x150",
    web("tumira_api_call_seconds_bucket", 'operation="sendMessages", le="5"'): "0+6000x150",
    web("tumira_api_call_seconds_bucket", 'operation="sendMessages", le="+Inf"'): "0+6000x150",
    web("tumira_gate_waiting_calls"): "12x150",
    web("tumira_partition_weeks_left"): "8x150",
    web("tumira_audit_broken_checks"): "0x150",
    web("tumira_audit_age_seconds"): "40000+60x150",
    web("tumira_ledgers_broken"): "0x150",
    web("tumira_losing_routes"): "0x150",
    web("tumira_top_ups", 'state="started"'): "2x150",
    web("tumira_top_ups", 'state="doubt"'): "0x150",
    web("tumira_top_ups", 'state="reversed"'): "3x150",
    web("tumira_top_ups", 'state="paid_late"'): "0x150",
    web("tumira_usdt_look_age_seconds"): "5x150",
    web("tumira_mails_oldest_seconds"): "10x150",
    web("tumira_uploads_oldest_seconds"): "100x150",
    worker("tumira_chore_runs_total", 'chore="create partitions", result="done"'): "0+1x150",
    worker("tumira_chore_runs_total", 'chore="create partitions", result="failed"'): "0x150",
    worker("tumira_chore_runs_total", 'chore="drop old messages", result="failed"'): "0x150",
    worker("tumira_log_lines_total", 'level="error"'): "0x150",
    web("tumira_disk_free_bytes"): "60e9x150",
    web("tumira_disk_size_bytes"): "100e9x150",
}

# What is different when an alert is due.
TROUBLE: Final[Mapping[str, Series]] = {
    "TumiraWebDown": {f"up{{{WEB}}}": "1x100 0x50"},
    "TumiraWorkerDown": {worker("tumira_worker_beat_timestamp_seconds"): "0+60x110 6600x40"},
    "TumiraNoWorkers": {web("tumira_workers"): "2x110 0x40"},
    "TumiraStandbyMissing": {web("tumira_standby_missing"): "0x110 1x40"},
    "TumiraDatabaseUnreachable": {web("tumira_database_up"): "1x110 0x40"},
    "TumiraPasscodesWait": {web("tumira_queue_oldest_seconds", 'country="ZW", lane="0"'): "1x110 20+20x40"},
    "TumiraHandoverSlow": {
        worker("tumira_handover_seconds_bucket", 'country="ZW", lane="0", le="1"'): "0+4000x150"
    },
    "TumiraBulkWaits": {web("tumira_queue_oldest_seconds", 'country="ZW", lane="1"'): "8000x150"},
    "TumiraCountryUncovered": {web("tumira_country_covered", 'country="ZW"'): "1x110 0x40"},
    "TumiraCarrierDown": {
        web("tumira_binds", 'carrier="one", state="bound"'): "2x110 0x40",
        web("tumira_binds", 'carrier="one", state="down"'): "0x110 2x40",
    },
    "TumiraCarrierFails": {
        web("tumira_binds", 'carrier="one", state="bound"'): "2x110 0x40",
        web("tumira_binds", 'carrier="one", state="failing"'): "0x110 2x40",
    },
    "TumiraCarrierThrottles": {answers("throttled"): "0+600x150"},
    "TumiraCarrierRefuses": {answers("refused"): "0+1200x150"},
    "TumiraSenderRefused": {worker("tumira_senders_refused_total", 'carrier="one"'): "0+1x150"},
    "TumiraDeliveriesFail": {ended("undelivered"): "0+4000x150"},
    "TumiraDoubts": {web("tumira_doubt_messages"): "300x150"},
    "TumiraReceiptsMissing": {
        worker("tumira_receipts_total", 'carrier="one", result="matched"'): "0+100x150"
    },
    "TumiraUnmatchedReceipts": {web("tumira_unmatched_receipts", 'carrier="one"'): "20+10x150"},
    "TumiraWebhooksBehind": {web("tumira_webhook_oldest_seconds"): "2x100 10+60x50"},
    "TumiraWebhookEndpointsFail": {web("tumira_webhook_endpoints", 'state="failing"'): "60x150"},
    "TumiraApiErrors": {web("tumira_api_calls_total", 'operation="sendMessages", status="503"'): "0+300x150"},
    "TumiraApiSlow": {
        web("tumira_api_call_seconds_bucket", 'operation="sendMessages", le="0.5"'): "0+5000x150"
    },
    "TumiraGateFull": {web("tumira_gate_waiting_calls"): "12x110 3000x40"},
    "TumiraPartitionsRunOut": {web("tumira_partition_weeks_left"): "3x150"},
    "TumiraAuditBroken": {web("tumira_audit_broken_checks"): "0x110 1x40"},
    "TumiraAuditOld": {web("tumira_audit_age_seconds"): "130000+60x150"},
    "TumiraLedgerBroken": {web("tumira_ledgers_broken"): "0x110 1x40"},
    "TumiraRouteLosesMoney": {web("tumira_losing_routes"): "0x100 1x50"},
    "TumiraTopUpInDoubt": {web("tumira_top_ups", 'state="doubt"'): "1x150"},
    "TumiraTopUpReversed": {web("tumira_top_ups", 'state="reversed"'): "3x110 4x40"},
    "TumiraTopUpPaidLate": {web("tumira_top_ups", 'state="paid_late"'): "1x150"},
    "TumiraTopUpsStuck": {web("tumira_top_ups", 'state="started"'): "20x150"},
    "TumiraUsdtWatchStopped": {web("tumira_usdt_look_age_seconds"): "5x90 60+60x60"},
    "TumiraMailsStuck": {web("tumira_mails_oldest_seconds"): "10x100 60+60x50"},
    "TumiraUploadsStuck": {web("tumira_uploads_oldest_seconds"): "4000x150"},
    "TumiraChoreFails": {
        worker("tumira_chore_runs_total", 'chore="create partitions", result="failed"'): "0+1x150"
    },
    "TumiraOldWeeksStay": {
        worker(
            "tumira_chore_runs_total", 'chore="drop old messages", result="failed"'
        ): "0x24 1x24 2x24 3x24 4x24 5x24"
    },
    "TumiraErrorLines": {worker("tumira_log_lines_total", 'level="error"'): "0+10x150"},
    "TumiraDiskFills": {web("tumira_disk_free_bytes"): "5e9x150"},
    "TumiraDiskWillFill": {web("tumira_disk_free_bytes"): "60e9-100e6x150"},
}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool") or shutil.which("promtool", path=str(ROOT / ".tools"))
    if found is None:
        pytest.skip("the alerts are not tried: there is no promtool; `make peers` fetches it where it can")
    return found


def judge(promtool: str, folder: Path, *series: tuple[str, Series]) -> "subprocess.CompletedProcess[str]":
    """Play the rules against series, each with the name of the one alert that should be on at the end."""
    tests: list[dict[str, Any]] = [
        {
            "name": name or "well",
            "interval": "1m",
            "input_series": [{"series": key, "values": values} for key, values in one.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": AT,
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}] if name else [],
                }
            ],
        }
        for name, one in series
    ]
    # JSON is YAML too.
    file = folder / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "5m", "tests": tests}))
    return subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=CHECK_S
    )


def test_the_rules_are_well_written(promtool: str) -> None:
    checked = subprocess.run(
        [promtool, "check", "rules", str(ALERTS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_S,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(NAMES)} rules found" in checked.stdout


@pytest.mark.long
def test_each_alert_and_no_other_is_on_when_it_is_due(promtool: str, tmp_path: Path) -> None:
    assert TROUBLE.keys() == set(NAMES)
    for series in TROUBLE.values():
        assert series.keys() <= WELL.keys()
    judged = judge(promtool, tmp_path, *[(name, {**WELL, **series}) for name, series in TROUBLE.items()])
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_nobody_is_woken_when_all_is_well_or_nothing_happens_yet(promtool: str, tmp_path: Path) -> None:
    quiet = {name: re.sub(r"\+[0-9]+x", "+0x", values) for name, values in WELL.items() if "_total" in name}
    nothing = " ".join(["NaN"] * 150)
    unknown = {web("tumira_usdt_look_age_seconds"): nothing, web("tumira_disk_free_bytes"): nothing}
    judged = judge(promtool, tmp_path, ("", WELL), ("", {**WELL, **quiet}), ("", {**WELL, **unknown}))
    assert judged.returncode == 0, judged.stdout + judged.stderr


def _links() -> Sequence[str]:
    return re.findall(r"runbook_url: (\S+)", ALERTS.read_text(encoding="utf-8"))


def test_each_alert_leads_to_what_to_do_about_it() -> None:
    assert _links() == [f"docs/operations.md#{name.lower()}" for name in NAMES]
    headings = re.findall(r"^### (Tumira\w+)$", RUNBOOK, re.MULTILINE)
    assert headings == NAMES


def test_the_judge_would_notice(promtool: str, tmp_path: Path) -> None:
    """Its twin: a gateway that is well does not pass for one in error."""
    judged = judge(promtool, tmp_path, ("TumiraPasscodesWait", WELL))
    assert judged.returncode != 0
