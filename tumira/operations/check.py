"""What is a check of the audit?"""

from dataclasses import dataclass

from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Check:
    """A promise in words, and a query that finds what breaks it."""

    name: str
    promise: str
    statement: Statement
