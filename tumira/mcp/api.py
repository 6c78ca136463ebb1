"""Calls to the API of a service, with the key of a customer."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx

from tumira.core.errors import OperatorError

ANSWER_S: Final = 30.0
_PREFIX: Final = "/api/v1"


class ApiCallError(Exception):
    """A call without a result; `refused` if the service has certainly not carried it out."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class ApiClient:
    """Makes one call at a time; redirects are not followed."""

    def __init__(self, url: str, key: str) -> None:
        if not url.startswith(("http://", "https://")) or not key.isascii() or not key.isprintable():
            raise OperatorError("TUMIRA_URL is the address of a service, and TUMIRA_API_KEY an API key.")
        self._http = httpx.Client(
            base_url=url.rstrip("/") + _PREFIX,
            headers={"Authorization": f"Bearer {key}", "User-Agent": "tumira-mcp/1"},
            timeout=ANSWER_S,
        )

    def close(self) -> None:
        self._http.close()

    def post(self, body: Mapping[str, Any], idempotency_key: str | None = None) -> Mapping[str, Any]:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._call("POST", "/messages", json=body, headers=headers)

    def get(self, *path: str) -> Mapping[str, Any]:
        return self._call("GET", "/" + "/".join(quote(part, safe="") for part in path))

    def _call(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        try:
            answer = self._http.request(method, path, **options)
            body = answer.json()
        except (httpx.RequestError, ValueError) as error:
            raise ApiCallError(
                "The service gave no readable answer. Call again; a send with the same confirmation is billed"
                " once.",
                refused=False,
            ) from error
        if answer.is_success and isinstance(body, dict):
            return body
        refusal = body.get("error", {}) if isinstance(body, dict) else {}
        message = f"{refusal.get('code', answer.status_code)}: {refusal.get('message', 'The call failed.')}"
        raise ApiCallError(message, refused=refusal.get("retryable") is False)
