"""Errors of a database that is away, as opposed to those of a statement that is wrong."""

import asyncio
from typing import Final

import asyncpg

UNAVAILABLE: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    # How a connection complains that the server ended it just before it was used.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    # The server ended the session of a process that got no processor time in the middle of a transaction.
    asyncpg.IdleInTransactionSessionTimeoutError,
)


def is_unavailable(error: BaseException) -> bool:
    # A value that cannot be sent is reported as an InterfaceError too; that is the statement's fault.
    away = isinstance(error, UNAVAILABLE) and not isinstance(error, ValueError)
    return away or is_partition_missing(error)


def is_partition_missing(error: BaseException) -> bool:
    """Tell that a table has no partition for a row: a worker creates it, and the statement then succeeds."""
    # Reported as a violated CHECK; one of ours has a name.
    return isinstance(error, asyncpg.CheckViolationError) and error.constraint_name is None
