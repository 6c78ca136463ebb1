"""Signals that stop a process."""

import subprocess
import sys

import pytest

# What is raised in the hooks of a fork is printed and forgotten; what is noted there is not.
IN_A_FORK = """
import os, signal
from tumira.core.shutdown import Stopping
stopping = Stopping()
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGTERM))
assert not stopping
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
assert stopping
try:
    stopping.heed()
except KeyboardInterrupt:
    print("heard")
"""

IN_A_LOOP = """
import asyncio, os, signal
from tumira.core.shutdown import Stopping
async def work():
    try:
        os.kill(os.getpid(), signal.{name})
        await asyncio.sleep(60)
    finally:
        print("cleaned up")
stopping = Stopping()
asyncio.run(stopping.cancel(work()))
assert stopping
print("heard")
"""

TO_THE_END = """
import asyncio
from tumira.core.shutdown import Stopping
async def work():
    print("done")
stopping = Stopping()
asyncio.run(stopping.cancel(work()))
assert not stopping
async def fail():
    raise ValueError("told")
try:
    asyncio.run(stopping.cancel(fail()))
except ValueError as error:
    print(error)
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_wish_that_comes_while_a_process_is_made_is_heard() -> None:
    assert run(IN_A_FORK) == "heard\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_wish_cancels_work_that_waits(name: str) -> None:
    assert run(IN_A_LOOP.format(name=name)) == "cleaned up\nheard\n"


def test_work_that_nobody_stops_is_done_and_its_fault_is_told() -> None:
    assert run(TO_THE_END) == "done\ntold\n"
