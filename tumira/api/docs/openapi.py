"""What does the API look like, in OpenAPI's words? Made from the endpoints, the schemas and the refusals."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tumira import VERSION
from tumira.api import schemas
from tumira.api.app import PREFIX
from tumira.api.docs import errors as error_schemas
from tumira.api.docs import events, examples
from tumira.api.docs.advice import advice
from tumira.api.docs.guide import guide
from tumira.api.docs.operations import OPERATIONS, TAGS
from tumira.api.docs.response_headers import HEADERS, headers_of
from tumira.api.endpoints import ENDPOINTS, Endpoint
from tumira.core.errors import FieldCode, Refusal, all_refusals
from tumira.events import EVENT_TYPES
from tumira.sending.fields import BatchIdText, MessageIdText
from tumira.sending.lookups import IDEMPOTENCY_HOURS

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


def _operation(endpoint: Endpoint) -> Json:
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


def _parameters(endpoint: Endpoint) -> Sequence[Json]:
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


def _content(schema: str, named: Mapping[str, examples.Example]) -> Json:
    return {
        "schema": {"$ref": _REF_TEMPLATE.format(name=schema)},
        "examples": {
            name: {"summary": example.summary, "value": example.value} for name, example in named.items()
        },
    }


def _answer(endpoint: Endpoint, status: int) -> Json:
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
    return {
        "description": "\n".join(f"- `{refusal.code}`: {advice(refusal).when}" for refusal in refusals),
        "headers": _headers(status),
        "content": {
            _JSON: {
                "schema": {"$ref": _REF_TEMPLATE.format(name="ErrorResponse")},
                "examples": {
                    refusal.code: {"$ref": f"#/components/examples/{refusal.code}"} for refusal in refusals
                },
            }
        },
    }


def _headers(status: int) -> Json:
    return {
        name: {"$ref": f"#/components/headers/{name if always else _sometimes(name)}"}
        for name, always in sorted(headers_of(status).items())
    }


def _sometimes(name: str) -> str:
    """Name the twin of a header that need not be there: a reference cannot say so itself."""
    return f"{name}-Optional"


def _curl(endpoint: Endpoint) -> str:
    path = endpoint.path.replace("{id}", _example_id(endpoint))
    lines = [f'curl "$BASE_URL{path}"', '  -H "Authorization: Bearer $API_KEY"']
    if endpoint.method == "POST":
        body = json.dumps(examples.REQUESTS["many"].value, indent=2, ensure_ascii=False)
        lines += [
            f'  -H "Idempotency-Key: {examples.IDEMPOTENCY_KEY}"',
            f'  -H "Content-Type: {_JSON}"',
            "  -d '" + body.replace("\n", "\n  ") + "'",
        ]
    return " \\\n".join(lines)


def _example_id(endpoint: Endpoint) -> str:
    return {"getBatch": examples.BATCH_ID, "getMessage": examples.MESSAGE_IDS[0]}.get(endpoint.operation, "")


def _components() -> Json:
    shapes = {schemas.SendRequest, error_schemas.ErrorResponse, FieldCode, *events.KINDS}
    for endpoint in ENDPOINTS:
        shapes.update(endpoint.answers.values())
    _, components = msgspec.json.schema_components(
        sorted(shapes, key=lambda shape: shape.__name__), ref_template=_REF_TEMPLATE
    )
    headers = {name: {**header, "required": True} for name, header in HEADERS.items()}
    headers |= {_sometimes(name): {**header, "required": False} for name, header in HEADERS.items()}
    used = {
        reference["$ref"].rpartition("/")[2]
        for status in _statuses()
        for reference in _headers(status).values()
    }
    # Each type of event has a schema of its own, so those of their kinds are not needed beside them.
    components |= events.schemas(components)
    kinds = {kind.__name__ for kind in events.KINDS} - {events.schema_name(type_) for type_ in EVENT_TYPES}
    return {
        "schemas": {name: components[name] for name in sorted(components.keys() - kinds)},
        "parameters": _shared_parameters() | events.parameters(),
        "headers": {name: headers[name] for name in sorted(used)},
        "examples": {
            refusal.code: {
                "summary": advice(refusal).when,
                "description": advice(refusal).do,
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
        # Any text is taken, and one that does not fit is replaced, so the schema does not narrow it.
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
