"""Signature checks by the `standardwebhooks` packages for Python and Node.js."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.npm import node_with

_FOLDER: Final = Path(__file__).parent
_VERIFY_S: Final = 30


def verify_with_npm(secret: str, requests: Sequence[tuple[Mapping[str, str], bytes]]) -> Sequence[object]:
    """Return for each request's headers and body True, or what the package says against it."""
    node = node_with(_FOLDER)
    asked = [
        {"secret": secret, "headers": dict(headers), "body": body.decode()} for headers, body in requests
    ]
    done = subprocess.run(
        [node.program, _FOLDER / "verify.mjs"],
        cwd=node.folder,
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
        timeout=_VERIFY_S,
    )
    verdicts: Sequence[object] = json.loads(done.stdout)
    return verdicts
