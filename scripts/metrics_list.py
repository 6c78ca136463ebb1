"""The list of metrics and alerts in `docs/metrics.md`, read from the code and the rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Metric

from tumira.core import metrics

ALERTS: Final = Path(__file__).parent.parent / "deploy" / "prometheus" / "alerts.yml"

_RULE: Final = re.compile(
    r"- alert: (\w+)\n\s+expr: '((?:[^']|'')*)'\n\s+for: (\w+)\n\s+labels: {severity: (\w+)}"
)
_SUFFIX: Final = re.compile(r"_(?:total|bucket|sum|count)$")

_OPENING: Final = """\
# Metrics

`web` shows its metrics at `/metrics` of its own port, with what is read from the database, and a worker at
`/metrics` of `TUMIRA_WORKER_METRICS_PORT`, if that is set. Under `tumira serve` with two cores or more, the
worker for webhooks shows its own on the next port. They name no account, no number and no text; let your
balancer pass `/metrics` to nobody from outside all the same.

```yaml
scrape_configs:
  - {job_name: tumira-web, static_configs: [{targets: ["web-1:8080", "web-2:8080"]}]}
  - {job_name: tumira-worker, static_configs: [{targets: ["worker-1:9100", "worker-2:9100"]}]}
rule_files: [deploy/prometheus/alerts.yml]
```

The alerts are in [alerts.yml](../deploy/prometheus/alerts.yml), what to do about each in
[operations.md](operations.md#alerts), and a board to import into Grafana is
[tumira.json](../deploy/grafana/tumira.json).

What is read from the database is the same at every web process: look at it with `max` or `min`. It is read at
most every second, and every look is bounded. Both processes also show the usual `process_…` and
`python_…` of their own.

This page is made from `tumira/core/metrics.py` and the alerts by `make docs`.
"""

_PLACES: Final = (
    ("Both processes", "both"),
    ("Counted by `web`", "web"),
    ("Counted by a worker", "worker"),
    ("Read from the database", "database"),
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A metric as people look it up."""

    name: str
    type: str
    labels: Sequence[str]
    meaning: str
    place: str


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    expression: str
    wait: str
    severity: str


def rules() -> Sequence[Rule]:
    """Return the alerts in the order of their file."""
    found = _RULE.findall(ALERTS.read_text(encoding="utf-8"))
    return [
        Rule(name, expression.replace("''", "'"), wait, severity)
        for name, expression, wait, severity in found
    ]


def _own(registry: CollectorRegistry) -> Mapping[str, tuple[Any, Metric]]:
    """Return the metrics of a registry that are ours, by name, each with what it collects."""
    collectors = registry._collector_to_names  # noqa: SLF001 - there is no other list of them
    return {
        described.name: (collector, described)
        for collector in collectors
        if hasattr(collector, "_labelnames")
        for described in collector.describe()
    }


def listed() -> Sequence[Listed]:
    """Return all metrics in the order in which they are declared."""
    web, worker, database = (_own(one) for one in (metrics.WEB, metrics.WORKER, metrics.DATABASE))
    places = dict.fromkeys(database, "database")
    places |= dict.fromkeys(worker, "worker")
    places |= {name: "both" if name in worker else "web" for name in web}
    found = []
    for name, (collector, described) in {**web, **worker, **database}.items():
        is_counter = described.type == "counter"
        labels = tuple(collector._labelnames)  # noqa: SLF001 - as above
        found.append(
            Listed(
                f"{name}_total" if is_counter else name,
                described.type,
                labels,
                described.documentation,
                places[name],
            )
        )
    return found


def alerts_using(name: str, known: Sequence[Rule]) -> Sequence[str]:
    """Return the alerts that look at a metric."""
    stem = _SUFFIX.sub("", name)
    pattern = re.compile(rf"\b{stem}(?:_total|_bucket|_sum|_count)?\b")
    return [rule.name for rule in known if pattern.search(rule.expression)]


def metrics_page() -> str:
    """Write the list of all metrics."""
    known = rules()
    parts = [_OPENING]
    for title, place in _PLACES:
        rows = [one for one in listed() if one.place == place]
        lines = [f"\n## {title}\n\n| Name | Type | Labels | Meaning | Alerts |\n|---|---|---|---|---|\n"]
        for one in rows:
            labels = ", ".join(f"`{label}`" for label in one.labels)
            used = ", ".join(
                f"[{alert}](operations.md#{alert.lower()})" for alert in alerts_using(one.name, known)
            )
            lines.append(f"| `{one.name}` | {one.type} | {labels} | {one.meaning} | {used} |\n")
        parts.append("".join(lines))
    return "".join(parts)
