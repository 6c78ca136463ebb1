"""The type of a database connection."""

from typing import TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

# A pooled connection has the same methods as a plain one, behind a proxy with a type of its own.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
