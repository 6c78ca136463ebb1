"""Parses a posted send: headers and JSON strictly, with every fault listed at once."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, cast

from tumira.content.check import classify_early
from tumira.core.errors import (
    ChannelNotAvailable,
    FieldCode,
    InvalidIdempotencyKey,
    MalformedRequest,
    PayloadTooLarge,
    Refusal,
    UnsupportedMediaType,
    ValidationFailed,
)
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.quote import REFERENCE_MAX, ValidRequest
from tumira.sending.types import IdempotencyKey, InvalidSend, Send

BODY_BYTES_MAX: Final = 256 * 1024
FAULTS_MAX: Final = 100

_KEY: Final = re.compile(r"[\x21-\x7e]{6,64}")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_MEDIA_TYPE: Final = re.compile(r'application/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?', re.IGNORECASE)
# JSON can contain these, UTF-8 or PostgreSQL cannot: halves of a surrogate pair, and NUL.
_UNSTORABLE: Final = re.compile("[\ud800-\udfff\x00]")
_RESERVED_CHANNELS: Final = frozenset(["telegram", "whatsapp"])
_FIELDS: Final = frozenset(["channel", "to", "body", "reference", "dry_run"])

Fault = dict[str, str]


def read_send(
    content_type: str | None,
    content_encoding: str | None,
    idempotency_keys: Sequence[str],
    body: bytes | None,
) -> Send | InvalidSend:
    """Parse a posted send; `body` is None when it was larger than allowed."""
    refusal = _check_media(content_type, content_encoding)
    if refusal is not None:
        return InvalidSend(refusal)
    document = PayloadTooLarge() if body is None else _read_json(body)
    if isinstance(document, Refusal):
        return InvalidSend(document)
    key = read_idempotency_key(idempotency_keys)
    if isinstance(key, Refusal):
        return InvalidSend(key)
    idempotency = None
    # The key of a dry run is ignored, also when its fields are invalid: a conflict would hide their faults.
    if key is not None and document.get("dry_run") is not True:
        try:
            idempotency = IdempotencyKey(key, fingerprint(document))
        except RecursionError:
            # Writing JSON reaches the recursion limit a little earlier than reading it.
            return InvalidSend(MalformedRequest(_TOO_DEEP))
    request = _read_fields(document)
    if isinstance(request, Refusal):
        return InvalidSend(request, idempotency)
    return Send(request, idempotency, classify_early(request.body))


def read_idempotency_key(headers: Sequence[str]) -> str | Refusal | None:
    """Read the Idempotency-Key, bare or as one quoted string."""
    if not headers:
        return None
    text = headers[0].strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        text = re.sub(r"\\(.)", r"\1", quoted[1])
    return text if len(headers) == 1 and _KEY.fullmatch(text) else InvalidIdempotencyKey()


def fingerprint(document: dict[str, Any]) -> bytes:
    """Return a digest of the payload that ignores the order of keys and white space."""
    return sha256(_ENCODER.encode(document).encode()).digest()


def _check_media(content_type: str | None, content_encoding: str | None) -> Refusal | None:
    if content_type == "application/json" and content_encoding is None:
        return None
    plain = content_encoding is None or content_encoding.strip().lower() == "identity"
    if content_type is None or not _MEDIA_TYPE.fullmatch(content_type.strip()) or not plain:
        return UnsupportedMediaType()
    return None


_TOO_DEEP: Final = "The body is not JSON that can be read: nested too deep, or a number too long."


def _read_json(body: bytes) -> dict[str, Any] | Refusal:
    try:
        document = _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        return MalformedRequest(f"The body is not UTF-8: byte {error.start} cannot be read.")
    except json.JSONDecodeError as error:
        return MalformedRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        )
    except _DuplicateNameError as error:
        return MalformedRequest(f"The body names {error} twice; say each field once.")
    except (ValueError, RecursionError):
        return MalformedRequest(_TOO_DEEP)
    if not isinstance(document, dict):
        return MalformedRequest("The body must be one JSON object.")
    return document


def _decode(text: str) -> Any:
    if text[:1] == "{":
        # Without the search for white space around it, which takes as long as reading it.
        document, end = _scan(text, 0)
        if end == len(text):
            return document
    return _DECODER.decode(text)


class _DuplicateNameError(ValueError):
    """A field occurs twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise _DuplicateNameError(_shown(name))
    return document


def _no_constant(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is not a JSON value", "", 0)


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_scan: Final = cast("Any", _DECODER).scan_once


def _read_fields(document: dict[str, Any]) -> ValidRequest | Refusal:
    faults: list[Fault] = []
    channel = _read_text(document, "channel", faults)
    if channel is not None and channel != "sms" and channel not in _RESERVED_CHANNELS:
        faults.append(_fault("channel", FieldCode.INVALID_VALUE, "Use `sms`."))
    to = _read_recipients(document, faults)
    body = _read_text(document, "body", faults)
    if body is not None and is_blank(body):
        faults.append(_fault("body", FieldCode.EMPTY, "Write the message text."))
    reference = _read_text(document, "reference", faults, required=False)
    if reference is not None and len(reference) > REFERENCE_MAX:
        faults.append(_fault("reference", FieldCode.TOO_LONG, f"At most {REFERENCE_MAX} characters."))
    dry_run = document.get("dry_run", False)
    if not isinstance(dry_run, bool):
        faults.append(_fault("dry_run", FieldCode.WRONG_TYPE, "Must be true or false."))
    if not _FIELDS.issuperset(document):
        faults.extend(
            _fault(_shown(name), FieldCode.UNKNOWN_FIELD, f"Known are {', '.join(sorted(_FIELDS))}.")
            for name in document
            if name not in _FIELDS
        )
    if faults or channel is None or to is None or body is None:
        return ValidationFailed(_summary(faults), details=faults[:FAULTS_MAX])
    if channel in _RESERVED_CHANNELS:
        return ChannelNotAvailable(f"The channel {channel} is reserved and not usable yet; use `sms`.")
    return ValidRequest(channel, to, body, reference, dry_run)


def _read_text(
    document: dict[str, Any], field: str, faults: list[Fault], *, required: bool = True
) -> str | None:
    if field not in document:
        if required:
            faults.append(_fault(field, FieldCode.REQUIRED, "This field is missing."))
        return None
    value = document[field]
    if not isinstance(value, str):
        faults.append(_fault(field, FieldCode.WRONG_TYPE, "Must be a string."))
        return None
    return value if _is_storable(field, value, faults) else None


def _read_recipients(document: dict[str, Any], faults: list[Fault]) -> Sequence[str] | None:
    if "to" not in document:
        faults.append(_fault("to", FieldCode.REQUIRED, "This field is missing."))
        return None
    value = document["to"]
    if isinstance(value, str):
        return [value] if _is_storable("to", value, faults) else None
    if not isinstance(value, list):
        faults.append(_fault("to", FieldCode.WRONG_TYPE, "Must be a string or an array of strings."))
        return None
    if not value:
        faults.append(_fault("to", FieldCode.EMPTY, "Name at least one recipient."))
        return None
    # A longer list is refused for its length, whatever its entries are.
    sound = True
    for place, entry in enumerate(value[:RECIPIENTS_MAX]):
        if not isinstance(entry, str):
            faults.append(_fault(f"to[{place}]", FieldCode.WRONG_TYPE, "Must be a string."))
            sound = False
        else:
            sound = _is_storable(f"to[{place}]", entry, faults) and sound
    return value if sound else None


def _is_storable(field: str, value: str, faults: list[Fault]) -> bool:
    # Nearly every value, in a fraction of the time of a search.
    if value.isascii() and "\x00" not in value:
        return True
    unstorable = _UNSTORABLE.search(value)
    if unstorable is None:
        return True
    faults.append(
        _fault(
            field,
            FieldCode.INVALID_CHARACTER,
            f"Character {unstorable.start() + 1} is U+{ord(unstorable[0]):04X}, which is not text.",
        )
    )
    return False


def _fault(field: str, code: FieldCode, message: str) -> Fault:
    return {"field": field, "code": code.value, "message": message}


def _summary(faults: Sequence[Fault]) -> str:
    first = f"{faults[0]['field']}: {faults[0]['message']}"
    if len(faults) == 1:
        return first
    listed = "listed" if len(faults) <= FAULTS_MAX else f"the first {FAULTS_MAX} listed"
    return f"{len(faults)} faults, {listed} in `details`; the first: {first}"


def _shown(name: str) -> str:
    """Return a name from the request in a form that an answer can contain."""
    return name[:64].encode("utf-8", "backslashreplace").decode()
