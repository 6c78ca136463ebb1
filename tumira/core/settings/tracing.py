"""Settings of traces: the collector, and the share of batches that is traced."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tumira.core import urls
from tumira.core.errors import OperatorError

SHARE: Final = "0.01"
# Where collectors take traces, unless the operator names a path; OpenTelemetry's protocol specification.
PATH: Final = "/v1/traces"

_SHARE: Final = re.compile(r"0(\.[0-9]{1,6})?|1(\.0{1,6})?")


@dataclass(frozen=True, slots=True)
class Tracing:
    """The collector's address, and the share of all batches that is traced."""

    url: str
    share: float


def read_tracing(values: Mapping[str, str]) -> Tracing | None:
    """Read how traces are sent; None without a collector."""
    share = values.get("TUMIRA_OTLP_SAMPLE", SHARE)
    if not _SHARE.fullmatch(share):
        raise OperatorError(
            f"TUMIRA_OTLP_SAMPLE is {share!r}; it must be a number from 0 to 1, such as {SHARE}."
        )
    url = values.get("TUMIRA_OTLP_URL")
    if url is None:
        return None
    parts = urls.parse(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.host or parts.port == 0:
        raise OperatorError(
            "TUMIRA_OTLP_URL is no address of a collector: write it as http://collector:4318."
        )
    return Tracing(url.rstrip("/") + PATH if parts.path in {"", "/"} else url, float(share))
