"""The OpenAPI document, made from the endpoints, the schemas and the refusals."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tumira import VERSION
from tumira.accounts.rate_limit import WINDOW_S
from tumira.api import schemas
from tumira.api.app import PREFIX
from tumira.api.docs import events, examples
from tumira.api.docs.errors import ADVICE, ErrorResponse
from tumira.api.docs.examples import REQUEST_ID
from tumira.api.docs.operations import OPERATIONS, TAGS, guide
from tumira.api.endpoints import ENDPOINTS, ApiEndpoint
from tumira.core.errors import FieldCode, Refusal, all_refusals
from tumira.events import EVENT_TYPES
from tumira.sending.lookups import IDEMPOTENCY_HOURS
from tumira.sending.views import BatchIdText, MessageIdText

Json = dict[str, Any]

SECURITY_SCHEME: Final = "apiKey"

_JSON: Final = "application/json"
_REF_TEMPLATE: Final = "#/components/schemas/{name}"
_PATH_IDS: Final[Mapping[str, Any]] = {"getBatch": BatchIdText, "getMessage": MessageIdText}
_ANSWERS: Final = {
    ("sendMessages", 202): "The batch was accepted: it is stored, paid and waiting for a carrier.",
    ("sendMessages", 200): "What the batch would cost. Given to a dry run.",
    ("getMessage", 200): "The message.",
    ("getBatch", 200): "The batch.",
    ("getBalance", 200): "The balance.",
    ("getPricing", 200): "The price list.",
}


def _header(description: str, type_: str = "string", **schema: Any) -> Json:
    return {"description": description, "schema": {"type": type_, **schema}}


_HEADERS: Final[Mapping[str, Json]] = {
    "Allow": _header("The methods that this address takes.", examples=["GET, HEAD"]),
    "Cache-Control": _header("Answers are not to be kept by caches.", const="no-store"),
    "Idempotency-Replayed": _header(
        "`true` when this answer was first given to an earlier call; absent otherwise.", const="true"
    ),
    "RateLimit": _header(
        "How many calls are left (`r`), and in how many seconds one more is (`t`).",
        pattern='^"account";r=[0-9]+;t=[0-9]+$',
        examples=['"account";r=59;t=60'],
    ),
    "RateLimit-Policy": _header(
        "How many calls (`q`) the account may make in how many seconds (`w`).",
        pattern=f'^"account";q=[0-9]+;w={WINDOW_S}$',
        examples=[f'"account";q=60;w={WINDOW_S}'],
    ),
    "Retry-After": _header(
        "After how many seconds the call can be repeated.", "integer", minimum=0, examples=[12]
    ),
    "WWW-Authenticate": _header(
        "What a key must be or have, after RFC 6750.", pattern="^Bearer ", examples=['Bearer realm="tumira"']
    ),
    "X-RateLimit-Limit": _header(
        "The same as `q` of `RateLimit-Policy`.", "integer", minimum=0, examples=[60]
    ),
    "X-RateLimit-Remaining": _header("The same as `r` of `RateLimit`.", "integer", minimum=0, examples=[59]),
    "X-RateLimit-Reset": _header(
        "The same as `t` of `RateLimit`, in seconds.", "integer", minimum=0, examples=[60]
    ),
    "X-Request-Id": _header(
        "The id of this call: yours if you sent a fitting one, else a new one.",
        pattern="^[A-Za-z0-9._-]{1,64}$",
        examples=[REQUEST_ID],
    ),
}

_ALWAYS: Final = ("X-Request-Id", "Cache-Control")
_RATE: Final = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
# The account is not known yet, or may not be known if the service could not go on.
_ACCOUNT_UNKNOWN: Final = frozenset([401, 405, 408, 431])
_ACCOUNT_PERHAPS_KNOWN: Final = frozenset([400, 429, 500, 503])

# Further headers by status: on every answer (True), or with some codes only (False).
_MORE: Final[Mapping[int, Mapping[str, bool]]] = {
    202: {"Idempotency-Replayed": False},
    401: {"WWW-Authenticate": True},
    403: {"WWW-Authenticate": False},
    405: {"Allow": True},
    409: {"Retry-After": False},
    429: {"Retry-After": True},
    503: {"Retry-After": True},
}


def document() -> bytes:
    """Return the OpenAPI document, the same bytes for the same code."""
    return (json.dumps(_document(), indent=2, ensure_ascii=False) + "\n").encode()


def _document() -> Json:
    paths: dict[str, Json] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tumira API",
            "version": VERSION,
            "summary": "A prepaid SMS gateway for Zimbabwe and South Africa.",
            "description": guide(),
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": PREFIX}],
        "security": [{SECURITY_SCHEME: []}],
        "tags": [{"name": name, "description": description} for name, description in TAGS.items()],
        "paths": paths,
        "webhooks": events.webhooks(),
        "components": _components(),
    }


def _operation(endpoint: ApiEndpoint) -> Json:
    operation = OPERATIONS[endpoint.operation]
    refusals = operation.statuses()
    written: Json = {
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "description": f"{operation.description}\n\nNeeds the scope `{endpoint.scope}`.",
        "tags": [operation.tag],
        "security": [{SECURITY_SCHEME: [endpoint.scope.value]}],
        "parameters": _parameters(endpoint),
    }
    if endpoint.method == "POST":
        written["requestBody"] = {
            "description": "What to send, and to whom.",
            "required": True,
            "content": {_JSON: _content("SendRequest", examples.REQUESTS)},
        }
    answers = {status: _answer(endpoint, status) for status in endpoint.answers}
    answers |= {status: _refused(status, group) for status, group in refusals.items()}
    written["responses"] = {str(status): answers[status] for status in sorted(answers)}
    written["x-codeSamples"] = [{"lang": "Shell", "label": "curl", "source": _curl(endpoint)}]
    return written


def _parameters(endpoint: ApiEndpoint) -> Sequence[Json]:
    parameters: list[Json] = []
    if endpoint.operation in _PATH_IDS:
        schema = msgspec.json.schema(_PATH_IDS[endpoint.operation])
        parameters.append(
            {
                "name": "id",
                "in": "path",
                "required": True,
                "description": schema.pop("description"),
                "schema": schema,
                "example": schema["examples"][0],
            }
        )
    if endpoint.method == "POST":
        parameters.append({"$ref": "#/components/parameters/Idempotency-Key"})
    return [*parameters, {"$ref": "#/components/parameters/X-Request-Id"}]


def _content(schema: str, named: Json) -> Json:
    return {"schema": {"$ref": _REF_TEMPLATE.format(name=schema)}, "examples": named}


def _answer(endpoint: ApiEndpoint, status: int) -> Json:
    key = (endpoint.operation, status)
    answer: Json = {
        "description": _ANSWERS[key],
        "headers": _headers(status),
        "content": {_JSON: _content(endpoint.answers[status].__name__, examples.ANSWERS[key])},
    }
    if key == ("sendMessages", 202):
        answer["links"] = {
            "getBatch": {
                "operationId": "getBatch",
                "parameters": {"id": "$response.body#/batch_id"},
                "description": "Follow what became of the batch.",
            }
        }
    return answer


def _refused(status: int, refusals: Sequence[type[Refusal]]) -> Json:
    named = {refusal.code: {"$ref": f"#/components/examples/{refusal.code}"} for refusal in refusals}
    return {
        "description": "\n".join(f"- `{refusal.code}`: {ADVICE[refusal].when}" for refusal in refusals),
        "headers": _headers(status),
        "content": {_JSON: _content("ErrorResponse", named)},
    }


def _headers(status: int) -> Json:
    return {
        name: {"$ref": f"#/components/headers/{name if always else _sometimes(name)}"}
        for name, always in sorted(_headers_of(status).items())
    }


def _headers_of(status: int) -> Mapping[str, bool]:
    """Return the headers of an answer, each with whether every answer has it."""
    headers = dict.fromkeys(_ALWAYS, True)
    headers.update(_MORE.get(status, {}))
    if status not in _ACCOUNT_UNKNOWN:
        headers.update(dict.fromkeys(_RATE, status not in _ACCOUNT_PERHAPS_KNOWN))
    return headers


def _sometimes(name: str) -> str:
    """Return the name of the optional variant of a header: a reference cannot say that it is optional."""
    return f"{name}-Optional"


def _curl(endpoint: ApiEndpoint) -> str:
    path = endpoint.path.replace("{id}", _example_id(endpoint))
    lines = [f'curl "$BASE_URL{path}"', '  -H "Authorization: Bearer $API_KEY"']
    if endpoint.method == "POST":
        body = json.dumps(examples.REQUESTS["many"]["value"], indent=2, ensure_ascii=False)
        lines += [
            f'  -H "Idempotency-Key: {examples.IDEMPOTENCY_KEY}"',
            f'  -H "Content-Type: {_JSON}"',
            "  -d '" + body.replace("\n", "\n  ") + "'",
        ]
    return " \\\n".join(lines)


def _example_id(endpoint: ApiEndpoint) -> str:
    return {"getBatch": examples.BATCH_ID, "getMessage": examples.MESSAGE_ID}.get(endpoint.operation, "")


def _components() -> Json:
    shapes = {schemas.SendRequest, ErrorResponse, FieldCode, *events.KINDS}
    for endpoint in ENDPOINTS:
        shapes.update(endpoint.answers.values())
    _, components = msgspec.json.schema_components(
        sorted(shapes, key=lambda shape: shape.__name__), ref_template=_REF_TEMPLATE
    )
    headers = {name: {**header, "required": True} for name, header in _HEADERS.items()}
    headers |= {_sometimes(name): {**header, "required": False} for name, header in _HEADERS.items()}
    used = {
        reference["$ref"].rpartition("/")[2]
        for status in _statuses()
        for reference in _headers(status).values()
    }
    # Each type of event has a schema of its own, so the schemas of the kinds are left out.
    components |= events.schemas(components)
    kinds = {kind.__name__ for kind in events.KINDS} - {events.schema_name(type_) for type_ in EVENT_TYPES}
    return {
        "schemas": {name: components[name] for name in sorted(components.keys() - kinds)},
        "parameters": _shared_parameters() | events.parameters(),
        "headers": {name: headers[name] for name in sorted(used)},
        "examples": {
            refusal.code: {
                "summary": ADVICE[refusal].when,
                "description": ADVICE[refusal].do,
                "value": examples.example_refusal(refusal),
            }
            for refusal in sorted(all_refusals(), key=lambda refusal: refusal.code)
        },
        "securitySchemes": {
            SECURITY_SCHEME: {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "tmr_<public id>_<secret>",
                "description": "An API key. Its scopes are those that each operation names.",
            }
        },
    }


def _statuses() -> set[int]:
    answered = {status for endpoint in ENDPOINTS for status in endpoint.answers}
    return answered | {status for operation in OPERATIONS.values() for status in operation.statuses()}


def _shared_parameters() -> Json:
    return {
        "Idempotency-Key": {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "Names this send, so that a retry cannot bill twice: 6 to 64 visible ASCII "
            f"characters. Kept for {IDEMPOTENCY_HOURS} hours after a 202.",
            "schema": {"type": "string", "pattern": "^[!-~]{6,64}$", "minLength": 6, "maxLength": 64},
            "example": examples.IDEMPOTENCY_KEY,
        },
        # Any text is accepted, and an unsuitable one replaced, so the schema allows every string.
        "X-Request-Id": {
            "name": "X-Request-Id",
            "in": "header",
            "required": False,
            "description": "Your own id for this call, of 1 to 64 letters, digits, `.`, `_` or `-`; given "
            "back in the answer. Another value is replaced by a new id.",
            "schema": {"type": "string"},
            "example": "checkout-7f3a",
        },
    }
