"""A flood of sign-ups from one address, against real hashing in a real process."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx
import pytest

from tests.support.identity.people import (
    filled,
    new_address,
    new_browser,
    new_phone,
    sign_in,
    sign_up,
)
from tests.support.postgres.databases import clone
from tests.support.processes.ports import free_port
from tests.support.processes.service import Service, wait_until_ready

RATE_S: Final = 60
# As many connections as the attacker has.
OPEN_MAX: Final = 200
POSTS_MIN: Final = 300
SIGN_INS: Final = 20
WAIT_S: Final = 30


@contextmanager
def run_real_web(server_url: str) -> Iterator[Service]:
    """Run `tumira web` with passwords that take as long to hash as they do in earnest."""
    port = free_port()
    with clone(server_url) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "tumira", "web"],
            env={
                **os.environ,
                "TUMIRA_DATABASE_URL": url,
                "TUMIRA_PORT": str(port),
                "TUMIRA_LOG_LEVEL": "error",
                "TUMIRA_TRUSTED_PROXIES": "127.0.0.1",
            },
        )
        try:
            service = Service(f"http://127.0.0.1:{port}", url, process)
            wait_until_ready(service.base, process)
            yield service
        finally:
            process.terminate()
            process.wait(WAIT_S)


async def flood(service: Service, address: str, is_over: asyncio.Event) -> Counter[int]:
    """Post sign-ups from one address, each for another number, at a steady rate until it is over."""
    answers: Counter[int] = Counter()
    async with httpx.AsyncClient(
        base_url=service.base,
        headers={"X-Forwarded-For": address, "Sec-Fetch-Site": "same-origin"},
        limits=httpx.Limits(max_connections=OPEN_MAX),
        timeout=120,
        trust_env=False,
    ) as attacker:
        free = asyncio.Semaphore(OPEN_MAX)

        async def post(phone: str) -> None:
            try:
                answers[(await attacker.post("/dashboard/sign-up", data=filled(phone))).status_code] += 1
            finally:
                free.release()

        began = time.monotonic()
        count = 0
        async with asyncio.TaskGroup() as posts:
            while count < POSTS_MIN or not is_over.is_set():
                await free.acquire()
                posts.create_task(post(new_phone()))
                count += 1
                await asyncio.sleep(max(0.0, began + count / RATE_S - time.monotonic()))
    return answers


@pytest.mark.long
async def test_sixty_sign_ups_a_second_from_one_address_keep_nobody_from_signing_in(server_url: str) -> None:
    with run_real_web(server_url) as service:
        owner = await asyncio.to_thread(sign_up, service)
        is_over = asyncio.Event()
        attack = asyncio.create_task(flood(service, new_address(), is_over))
        statuses: Counter[int] = Counter()
        for _ in range(SIGN_INS):
            browser = new_browser(service)
            statuses[(await asyncio.to_thread(sign_in, browser, owner.phone)).status_code] += 1
        is_over.set()
        answers = await attack
    assert statuses == {303: SIGN_INS}, (statuses, answers)
    # Forty in an hour. While they are hashed, more from the same address find their share of the queue full.
    assert set(answers) <= {303, 429, 503}
    assert answers[303] <= 40
