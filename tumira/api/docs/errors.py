"""What does a refusal look like? The OpenAPI document is made from these classes."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tumira.content.verdict import Category
from tumira.core.errors import ContentRejected, all_refusals
from tumira.sending.fields import Money


class ContentReason(Struct):
    """Words of the text that weighed against it."""

    words: Annotated[str, Meta(description="The words as they stand in the text.", examples=["20% off"])]
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
        Meta(description="The words that weighed, the heaviest first; at most 10."),
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
