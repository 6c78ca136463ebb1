"""When does a caller meet each code, and what should they do about it?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tumira.core import errors
from tumira.core.errors import FieldCode, RecipientCode, Refusal


@dataclass(frozen=True, slots=True)
class Advice:
    """When a code is given, and what to do then."""

    when: str
    do: str


ADVICE: Final[Mapping[type[Refusal], Advice]] = {
    errors.MalformedRequest: Advice(
        "The body is not JSON, not one object, not UTF-8, or names a field twice; or the request is not "
        "valid HTTP, for example with two `Host` headers.",
        "Correct the request; the message says where reading stopped.",
    ),
    errors.InvalidIdempotencyKey: Advice(
        "The header `Idempotency-Key` is not 6 to 64 visible ASCII characters, or is given twice.",
        "Send a key of that form, such as a UUID, or leave the header out.",
    ),
    errors.MissingApiKey: Advice(
        "The header `Authorization` is absent or is not `Bearer` and a key.",
        "Send `Authorization: Bearer` and your API key.",
    ),
    errors.InvalidApiKey: Advice(
        "No such API key exists.",
        "Check that the key was copied whole. From the 61st unknown key in a minute an address gets "
        "`RATE_LIMITED`.",
    ),
    errors.ApiKeyRevoked: Advice(
        "The API key was revoked.",
        "Create a new key and use that.",
    ),
    errors.InsufficientBalance: Advice(
        "The balance does not cover the whole batch. Nothing is sent in part.",
        "Top up by the `shortfall` in `details`, then repeat the call; the Idempotency-Key is free again.",
    ),
    errors.InsufficientScope: Advice(
        "The API key lacks the scope of this operation; `WWW-Authenticate` names it.",
        "Use a key that has the scope.",
    ),
    errors.AccountSuspended: Advice(
        "The account is suspended: it can look things up but not send.",
        "Contact the operator.",
    ),
    errors.NotFound: Advice(
        "The address or id is unknown, misspelt or another account's; the answer is the same for all three.",
        "Check the id and the account of the key.",
    ),
    errors.MethodNotAllowed: Advice(
        "The address exists and does not take this method.",
        "Use one of the methods in the header `Allow`.",
    ),
    errors.RequestTimeout: Advice(
        "The headers took longer than 20 seconds to arrive, or the body longer than a minute and a second "
        "for every kilobyte.",
        "Send the request again in one go, a send with the same Idempotency-Key.",
    ),
    errors.IdempotencyConflict: Advice(
        "The Idempotency-Key was used in the last 72 hours with another payload.",
        "Use a new key for a new send, and the same payload for a retry.",
    ),
    errors.IdempotencyInProgress: Advice(
        "The first call with this Idempotency-Key is still being written.",
        "Repeat the call after `Retry-After`; you will get the first call's answer.",
    ),
    errors.PayloadTooLarge: Advice(
        "The body is larger than 256 KiB.",
        "Split the recipients over several calls.",
    ),
    errors.UnsupportedMediaType: Advice(
        "`Content-Type` is not `application/json` in UTF-8, or the body is compressed.",
        "Send plain JSON with `Content-Type: application/json`.",
    ),
    errors.ValidationFailed: Advice(
        "Fields are missing, unknown or wrong.",
        "Correct every field in `details`; each has one of the field codes.",
    ),
    errors.ChannelNotAvailable: Advice(
        "`channel` is `telegram` or `whatsapp`, which are reserved.",
        "Use `sms`.",
    ),
    errors.TooManyRecipients: Advice(
        "`to` has more than 1,000 entries, counted as given.",
        "Split them over several calls.",
    ),
    errors.TooManySegments: Advice(
        "The text takes more than 5 segments.",
        "Shorten it, or replace the characters in `ucs2_characters`, each of which forces UCS-2.",
    ),
    errors.ContentRejected: Advice(
        "The text is promotional, in whole or in part, or the operator has blocked texts of its form.",
        "Leave out the sentences in `drop`, or what the `reasons` point at, and repeat the call; nothing was "
        "debited, and the Idempotency-Key is free again. For a service message that was misread, ask the "
        "operator to allow it as a template.",
    ),
    errors.RateLimited: Advice(
        "The account made its calls of the last 60 seconds, had too many sends stored today of which every "
        "number was rejected, or an address tried too many unknown keys.",
        "Wait `Retry-After` seconds. The call was not processed and is always safe to repeat.",
    ),
    errors.SpendLimitReached: Advice(
        "The batch would pass the account's own spending limit for the day; days end at midnight, UTC+02:00.",
        "Wait `Retry-After` seconds, or have the limit raised.",
    ),
    errors.HeadersTooLarge: Advice(
        "The request line and headers are larger than 32 KiB together, or there are more than 100 headers.",
        "Send fewer or shorter headers; a proxy or a cookie may have added some.",
    ),
    errors.InternalError: Advice(
        "Something failed on our side.",
        "Repeat a send with the same Idempotency-Key; report the `request_id` if it persists.",
    ),
    errors.ServiceUnavailable: Advice(
        "The service cannot answer right now, for example while its database restarts.",
        "Repeat the call after `Retry-After`, a send with the same Idempotency-Key.",
    ),
}

FIELD_CODES: Final[Mapping[FieldCode, str]] = {
    FieldCode.REQUIRED: "The field is missing.",
    FieldCode.WRONG_TYPE: "The value is of another JSON type; null is no value.",
    FieldCode.EMPTY: "The text or list is empty, or the text has only blanks and invisible characters.",
    FieldCode.TOO_LONG: "The text has too many characters.",
    FieldCode.INVALID_VALUE: "The value is not one of those that the field takes.",
    FieldCode.INVALID_CHARACTER: "The text holds half of a surrogate pair, or NUL.",
    FieldCode.UNKNOWN_FIELD: "There is no such field; a mistyped `dry_run` must not become a bill.",
}

RECIPIENT_CODES: Final[Mapping[RecipientCode, str]] = {
    RecipientCode.UNSUPPORTED_DESTINATION: "The number's country has no active price.",
    RecipientCode.INVALID_NUMBER: "Not `+` and 7 to 15 digits, or not the length of its country's numbers.",
}


def advice(refusal: type[Refusal]) -> Advice:
    """Return the advice on a refusal; its own words serve for one that has none here."""
    words = " ".join((refusal.__doc__ or "").split())
    return ADVICE.get(refusal, Advice(words, words))
