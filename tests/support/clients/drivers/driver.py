"""Runs calls of the Python client: one JSON object on standard input, a JSON list on standard output.

`python driver.py` uses the synchronous client, `python driver.py async` the asynchronous one.
"""

import asyncio
import json
import sys
from typing import Any

from tumira_client import (
    ApiError,
    AsyncTumira,
    Batch,
    NoAnswerError,
    Policy,
    SendInterruptedError,
    Sent,
    SentMany,
    Tumira,
    TumiraError,
)


def plain(value: Any) -> Any:
    if isinstance(value, Sent):
        return {"batches": [value.batch_id], **_common(value), "replayed": value.replayed}
    if isinstance(value, SentMany):
        return {
            "batches": [one.batch_id for one in value.batches],
            **_common(value),
            "replayed": all(one.replayed for one in value.batches),
        }
    if isinstance(value, Batch):
        return {
            "status": value.status,
            "to": [one.to for one in value.messages],
            "ids": [one.message_id for one in value.messages],
        }
    if isinstance(value, list):
        return {"prices": sorted({one.country for one in value})}
    return {
        name: str(getattr(value, name)) for name in ("balance", "total_cost", "to") if hasattr(value, name)
    }


def _common(value: Sent | SentMany) -> dict[str, Any]:
    return {
        "accepted": value.accepted,
        "rejected": [[one.to, one.code] for one in value.rejected],
        "total_cost": str(value.total_cost),
        "key": value.idempotency_key,
    }


def failed(error: TumiraError) -> dict[str, Any]:
    told: dict[str, Any] = {"error": type(error).__name__.removesuffix("Error")}
    if isinstance(error, ApiError | NoAnswerError | SendInterruptedError):
        told["key"] = error.idempotency_key
    if isinstance(error, ApiError):
        told |= {"code": error.code, "status": error.status, "details": error.details}
    if isinstance(error, SendInterruptedError):
        assert isinstance(error.__cause__, TumiraError)
        told |= {"batches": [one.batch_id for one in error.batches], "cause": failed(error.__cause__)}
    return told


def run(order: dict[str, Any]) -> list[Any]:
    with Tumira(order["url"], order["key"], country="ZW", policy=policy(order)) as tumira:
        answers = []
        for name, *arguments, options in order["calls"]:
            try:
                answers.append(plain(getattr(tumira, name)(*arguments, **options)))
            except TumiraError as error:
                answers.append(failed(error))
        return answers


async def run_async(order: dict[str, Any]) -> list[Any]:
    async with AsyncTumira(order["url"], order["key"], country="ZW", policy=policy(order)) as tumira:
        answers = []
        for name, *arguments, options in order["calls"]:
            try:
                answers.append(plain(await getattr(tumira, name)(*arguments, **options)))
            except TumiraError as error:
                answers.append(failed(error))
        return answers


def policy(order: dict[str, Any]) -> Policy:
    return Policy(timeout_s=order["timeout"])


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps(asyncio.run(run_async(given)) if "async" in sys.argv else run(given)))
