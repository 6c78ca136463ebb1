"""Send text messages with Tumira.

tumira = Tumira("https://sms.example.com", "tmr_…", country="ZW")
sent = tumira.send("0771200001", "Your order 1042 is ready.", idempotency_key="order-1042-ready")

`tumira_client.codes` has an error class for each code of the service.
"""

from tumira_client.client import VERSION, AsyncTumira, Tumira
from tumira_client.errors import (
    ApiError,
    ErrorDetail,
    InvalidNumberError,
    NoAnswerError,
    SendInterruptedError,
    TumiraError,
    WebhookError,
)
from tumira_client.models import (
    Balance,
    Batch,
    Message,
    Price,
    Rejected,
    SegmentPrice,
    Sent,
    SentMany,
)
from tumira_client.numbers import e164
from tumira_client.passcodes import (
    AsyncCodeStore,
    AsyncPasscodes,
    CodeRules,
    CodeStore,
    MemoryCodeStore,
    Passcodes,
    StoredCode,
)
from tumira_client.retry import Policy
from tumira_client.webhooks import Event, Webhooks

__version__ = VERSION
__all__ = [
    "ApiError",
    "AsyncCodeStore",
    "AsyncPasscodes",
    "AsyncTumira",
    "Balance",
    "Batch",
    "CodeRules",
    "CodeStore",
    "ErrorDetail",
    "Event",
    "InvalidNumberError",
    "MemoryCodeStore",
    "Message",
    "NoAnswerError",
    "Passcodes",
    "Policy",
    "Price",
    "Rejected",
    "SegmentPrice",
    "SendInterruptedError",
    "Sent",
    "SentMany",
    "StoredCode",
    "Tumira",
    "TumiraError",
    "WebhookError",
    "Webhooks",
    "e164",
]
