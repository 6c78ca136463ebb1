"""The error envelope in OpenAPI, and the advice on each error code."""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from tumira.content.verdict import Category
from tumira.core import errors
from tumira.core.errors import ContentRejected, FieldCode, RecipientCode, Refusal, all_refusals
from tumira.sending.views import Money


class ContentReason(Struct):
    """Words because of which the text was refused."""

    words: Annotated[str, Meta(description="The words as they are in the text.", examples=["20% off"])]
    start: Annotated[
        int,
        Meta(ge=0, description="Where they begin, in Unicode characters; the first one is 0.", examples=[40]),
    ]
    end: Annotated[int, Meta(ge=0, description="The character after their last one.", examples=[47])]
    category: Annotated[
        str,
        Meta(
            description="What they make of the text. New categories may be added.",
            examples=[category.value for category in Category],
        ),
    ]


class ErrorDetail(Struct):
    """One fault, or figures about the refusal. Some codes add members of their own; more may come."""

    # Open, because new codes may be added; the closed set is what a field's fault can be today.
    code: Annotated[
        str,
        Meta(
            description="In `VALIDATION_FAILED` what is wrong with the field, else the code of the refusal.",
            examples=["REQUIRED"],
            extra_json_schema={"anyOf": [{"$ref": "#/components/schemas/FieldCode"}, {"type": "string"}]},
        ),
    ]
    message: Annotated[str, Meta(description="One sentence.", examples=["This field is missing."])]
    field: Annotated[
        str | UnsetType, Meta(description="The field at fault.", examples=["to", "to[3]", "body"])
    ] = UNSET
    required: Annotated[Money, Meta(description="What the batch costs.")] | UnsetType = UNSET
    available: Annotated[Money, Meta(description="The balance.")] | UnsetType = UNSET
    shortfall: Annotated[Money, Meta(description="What is missing.")] | UnsetType = UNSET
    spent_today: Annotated[Money, Meta(description="What was spent today.")] | UnsetType = UNSET
    daily_limit: Annotated[Money, Meta(description="The account's limit for a day.")] | UnsetType = UNSET
    recipients: Annotated[int | UnsetType, Meta(description="Numbers in the call.", examples=[1001])] = UNSET
    recipients_max: Annotated[int | UnsetType, Meta(description="Numbers allowed.", examples=[1000])] = UNSET
    segments: Annotated[int | UnsetType, Meta(description="Segments of the text.", examples=[6])] = UNSET
    segments_max: Annotated[int | UnsetType, Meta(description="Segments allowed.", examples=[5])] = UNSET
    encoding: (
        Annotated[
            str,
            Meta(
                description="How the text travels.",
                examples=["UCS-2"],
                extra_json_schema={"enum": ["GSM-7", "UCS-2"]},
            ),
        ]
        | UnsetType
    ) = UNSET
    ucs2_characters: Annotated[
        list[str] | UnsetType,
        Meta(description="The characters that forced UCS-2, each once.", examples=[["ş", "😀"]]),
    ] = UNSET
    category: Annotated[
        str | UnsetType,
        Meta(
            description="What the text was refused as. New categories may be added.",
            examples=[*[category.value for category in Category], ContentRejected.BLOCKED],
        ),
    ] = UNSET
    score: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1,
                description="How promotional the text is, from 0 to 1; from 0.5 on it is refused.",
                examples=[0.97],
            ),
        ]
        | UnsetType
    ) = UNSET
    reasons: Annotated[
        list[ContentReason] | UnsetType,
        Meta(description="The words that decided, the most decisive first; at most 10."),
    ] = UNSET
    drop: Annotated[
        list[str] | UnsetType,
        Meta(
            description="The sentences without which the text could be sent; empty when no rest could.",
            examples=[["Get 20% off your next order!"]],
        ),
    ] = UNSET


class ErrorBody(Struct):
    """Why the call was refused."""

    code: Annotated[
        str,
        Meta(
            pattern="^[A-Z][A-Z_]*$",
            description="What happened, for programs. New codes may be added; go by the status for others.",
            examples=[refusal.code for refusal in all_refusals()],
        ),
    ]
    message: Annotated[
        str,
        Meta(
            description="What happened, for people: one sentence or two to act on. Its wording may change.",
            examples=["Some fields are not valid; `details` lists every fault."],
        ),
    ]
    retryable: Annotated[
        bool, Meta(description="Whether the same call can succeed later, unchanged.", examples=[False])
    ]
    details: Annotated[list[ErrorDetail], Meta(description="All faults at once; may be empty.")]
    request_id: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9._-]{1,64}$",
            description="The same as the header `X-Request-Id`; quote it when you report a problem.",
            examples=["req_01m7f57pxvfmg952sf6c65rzyg"],
        ),
    ]


class ErrorResponse(Struct):
    """The one error envelope: every answer that is not 2xx has this shape."""

    error: ErrorBody


class ErrorAdvice(NamedTuple):
    """When a refusal is given, and how the caller reacts."""

    when: str
    do: str


ADVICE: Final[Mapping[type[Refusal], ErrorAdvice]] = {
    errors.MalformedRequest: ErrorAdvice(
        "The body is not JSON, not one object, not UTF-8, or names a field twice; or the request is not "
        "valid HTTP, for example with two `Host` headers.",
        "Correct the request; the message says where reading stopped.",
    ),
    errors.InvalidIdempotencyKey: ErrorAdvice(
        "The header `Idempotency-Key` is not 6 to 64 visible ASCII characters, or is given twice.",
        "Send a key of that form, such as a UUID, or leave the header out.",
    ),
    errors.MissingApiKey: ErrorAdvice(
        "The header `Authorization` is absent or is not `Bearer` and a key.",
        "Send `Authorization: Bearer` and your API key.",
    ),
    errors.InvalidApiKey: ErrorAdvice(
        "No such API key exists.",
        "Check that the key was copied whole. From the 61st unknown key in a minute an address gets "
        "`RATE_LIMITED`.",
    ),
    errors.ApiKeyRevoked: ErrorAdvice("The API key was revoked.", "Create a new key and use that."),
    errors.InsufficientBalance: ErrorAdvice(
        "The balance does not cover the whole batch. No part of it is sent.",
        "Top up by the `shortfall` in `details`, then repeat the call with the same Idempotency-Key.",
    ),
    errors.InsufficientScope: ErrorAdvice(
        "The API key lacks the scope of this operation; `WWW-Authenticate` names it.",
        "Use a key that has the scope.",
    ),
    errors.AccountSuspended: ErrorAdvice(
        "The account is suspended: it can read but not send.", "Contact support."
    ),
    errors.NotFound: ErrorAdvice(
        "The address or id is unknown, misspelt or belongs to another account. The response is the same.",
        "Check the id and the account of the key.",
    ),
    errors.MethodNotAllowed: ErrorAdvice(
        "The address exists but does not allow this method.", "Use one of the methods in the header `Allow`."
    ),
    errors.RequestTimeout: ErrorAdvice(
        "The headers took longer than 20 seconds to arrive, or the body longer than a minute and a second "
        "for every kilobyte.",
        "Send the request again in one go, a send with the same Idempotency-Key.",
    ),
    errors.IdempotencyConflict: ErrorAdvice(
        "The Idempotency-Key was used in the last 72 hours with another payload.",
        "Use a new key for a new send, and the same payload for a retry.",
    ),
    errors.IdempotencyInProgress: ErrorAdvice(
        "The first call with this Idempotency-Key is still being written.",
        "Repeat the call after `Retry-After` seconds; you get the response of the first call.",
    ),
    errors.PayloadTooLarge: ErrorAdvice(
        "The body is larger than 256 KiB.", "Split the recipients over several calls."
    ),
    errors.UnsupportedMediaType: ErrorAdvice(
        "`Content-Type` is not `application/json` in UTF-8, or the body is compressed.",
        "Send plain JSON with `Content-Type: application/json`.",
    ),
    errors.ValidationFailed: ErrorAdvice(
        "Fields are missing, unknown or wrong.",
        "Correct every field in `details`; each has one of the field codes.",
    ),
    errors.ChannelNotAvailable: ErrorAdvice(
        "`channel` is `telegram` or `whatsapp`, which are reserved.", "Use `sms`."
    ),
    errors.TooManyRecipients: ErrorAdvice(
        "`to` has more than 1,000 entries, duplicates included.", "Split them over several calls."
    ),
    errors.TooManySegments: ErrorAdvice(
        "The text takes more than 5 segments.",
        "Shorten it, or replace the characters in `ucs2_characters`, each of which forces UCS-2.",
    ),
    errors.ContentRejected: ErrorAdvice(
        "The text is promotional, in whole or in part, or texts like it are blocked.",
        "Leave out the sentences in `drop`, or the words in `reasons`, and repeat the call. Nothing was "
        "billed, and the Idempotency-Key can be used again. If a service message was refused by mistake, "
        "ask for a review in the dashboard, under Settings.",
    ),
    errors.RateLimited: ErrorAdvice(
        "The account used up its calls of the last 60 seconds, sent too many batches today of which every "
        "number was rejected, or an address tried too many unknown keys.",
        "Wait `Retry-After` seconds. The call was not processed and is always safe to repeat.",
    ),
    errors.SpendLimitReached: ErrorAdvice(
        "The batch would exceed the spending limit of the account. Days end at midnight, UTC+02:00.",
        "Wait `Retry-After` seconds, or raise the limit in the dashboard, under Settings.",
    ),
    errors.HeadersTooLarge: ErrorAdvice(
        "The request line and headers are larger than 32 KiB together, or there are more than 100 headers.",
        "Send fewer or shorter headers; a proxy or a cookie may have added some.",
    ),
    errors.InternalError: ErrorAdvice(
        "Something failed on our side.",
        "Repeat a send with the same Idempotency-Key; report the `request_id` if it persists.",
    ),
    errors.ServiceUnavailable: ErrorAdvice(
        "The service cannot answer right now, for example while its database restarts.",
        "Repeat the call after `Retry-After`, a send with the same Idempotency-Key.",
    ),
}

FIELD_CODES: Final[Mapping[FieldCode, str]] = {
    FieldCode.REQUIRED: "The field is missing.",
    FieldCode.WRONG_TYPE: "The value has the wrong JSON type; null is not a value.",
    FieldCode.EMPTY: "The text or list is empty, or the text has only blanks and invisible characters.",
    FieldCode.TOO_LONG: "The text has too many characters.",
    FieldCode.INVALID_VALUE: "The value is not one of those allowed.",
    FieldCode.INVALID_CHARACTER: "The text holds half of a surrogate pair, or NUL.",
    FieldCode.UNKNOWN_FIELD: "There is no such field. A misspelt `dry_run` is refused, not billed.",
}

RECIPIENT_CODES: Final[Mapping[RecipientCode, str]] = {
    RecipientCode.UNSUPPORTED_DESTINATION: "The number's country has no active price.",
    RecipientCode.INVALID_NUMBER: "Not a mobile number in international form: send `+263771200001`, not "
    "`0771200001` or `263771200001`. Landlines are not sent to.",
    RecipientCode.RECIPIENT_OPTED_OUT: "The recipient has opted out of your messages, by replying STOP or on "
    "your page of opt-outs. One-time codes are still sent, unless the operator decided otherwise.",
    RecipientCode.RECIPIENT_LIMIT: "Too many passcodes went to this number, or to numbers next to it, in a "
    "short time. See Passcode guard in the dashboard.",
}
