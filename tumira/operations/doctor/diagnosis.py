"""The result of a check: its level, what was found, and what to do."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GIGABYTE: Final = 1_000_000_000


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report; `advice` is empty where nothing has to be done."""

    subject: str
    level: Level
    found: str
    advice: str = ""


def ok(subject: str, found: str) -> Diagnosis:
    return Diagnosis(subject, Level.OK, found)


def warning(subject: str, found: str, advice: str) -> Diagnosis:
    return Diagnosis(subject, Level.WARNING, found, advice)


def problem(subject: str, found: str, advice: str) -> Diagnosis:
    return Diagnosis(subject, Level.PROBLEM, found, advice)


def write_size(size: int) -> str:
    """Write a number of bytes in GB, or in MB where that is less than ten of them."""
    if size >= 10 * GIGABYTE:
        return f"{size / GIGABYTE:,.0f} GB"
    return f"{size / GIGABYTE:.1f} GB" if size >= GIGABYTE else f"{size / 1_000_000:.0f} MB"
