"""A check for Schemathesis: every refusal is documented for its operation and status.

Loaded by Schemathesis, as one more of its checks.
"""

from typing import Any

import schemathesis


@schemathesis.check
def documented_code(
    _context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """Fail when the document shows no example with the code of this answer."""
    if response.status_code < 400:
        return
    document = case.operation.definition.raw["responses"].get(str(response.status_code))
    code = response.json()["error"]["code"]
    assert document is not None, f"{code} with the undocumented status {response.status_code}"
    documented = document["content"]["application/json"]["examples"]
    assert code in documented, f"{code} is not among {', '.join(documented)}"
