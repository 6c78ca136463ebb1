"""What kinds of values do the fields of requests and answers hold?"""

from typing import Annotated, Final

from msgspec import Meta

from tumira.pricing.segments import SEGMENTS_MAX

# The digits of `tumira.core.ids`: 130 bits, of which the first two are always zero.
ID_DIGITS: Final = "[0-7][0-9a-hjkmnp-tv-z]{25}"

Money = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,10}\.[0-9]{4}$",
        description="US dollars with four decimals, as a string.",
        examples=["0.0800"],
    ),
]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$", description="Always `USD`.", examples=["USD"])]
Time = Annotated[
    str,
    Meta(
        description="ISO 8601, UTC, with milliseconds and offset.",
        examples=["2026-11-15T08:30:00.123+00:00"],
        extra_json_schema={"format": "date-time"},
    ),
]
BatchIdText = Annotated[
    str,
    Meta(
        pattern=f"^bat_{ID_DIGITS}$",
        description="The batch's id; ids sort by age.",
        examples=["bat_01m7f57pxve9nv59tdwh9edd1r"],
    ),
]
MessageIdText = Annotated[
    str,
    Meta(
        pattern=f"^msg_{ID_DIGITS}$",
        description="The message's id; the ids of a batch sort in the order of its recipients.",
        examples=["msg_01m7f57pxve9nv59tdr0352ckg"],
    ),
]
Number = Annotated[
    str,
    Meta(
        pattern=r"^\+[1-9](?:[0-9]{6,14}|[0-9]{0,3}(?:•erased|•{6}[0-9]{3}))$",
        description="The recipient's number, in E.164. After 90 days its country and its last three digits "
        "are left of it, and after its owner asked to be forgotten its country.",
        examples=["+263771200001"],
    ),
]
# New countries and channels are added as values, so these are strings that tools must not close.
Country = Annotated[
    str,
    Meta(
        pattern="^[A-Z]{2}$",
        description="Two-letter code of the destination. New values appear as destinations are added.",
        examples=["ZW", "ZA"],
        extra_json_schema={"x-extensible-enum": ["ZW", "ZA"]},
    ),
]
Channel = Annotated[
    str,
    Meta(
        pattern="^[a-z]+$",
        description="How the messages travel. New values appear as channels are added.",
        examples=["sms"],
        extra_json_schema={"x-extensible-enum": ["sms"]},
    ),
]
Segments = Annotated[
    int, Meta(ge=1, le=SEGMENTS_MAX, description="Segments that the text takes.", examples=[1])
]
