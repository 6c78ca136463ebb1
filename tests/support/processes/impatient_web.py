"""A web process with other limits than usual, so that a test need not wait for minutes.

Run it as `python -m tests.support.processes.impatient_web '{"HEAD_S": 0.5}'`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import Service, wait_until_ready
from tumira import http_protocol
from tumira.cli.main import main


@contextmanager
def run_impatient_web(url: str, **limits: float) -> Iterator[Service]:
    """Run `tumira web` on a database with other values for the limits of `tumira.http_protocol`."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.impatient_web", json.dumps(limits)],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "TUMIRA_DATABASE_URL": url,
            "TUMIRA_PORT": str(port),
            "TUMIRA_LOG_LEVEL": "error",
        },
    )
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until_ready(base, process)
        yield Service(base, url, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


if __name__ == "__main__":
    for name, value in json.loads(sys.argv[1]).items():
        assert hasattr(http_protocol, name)
        setattr(http_protocol, name, value)
    main(["web", "--quiet"])
