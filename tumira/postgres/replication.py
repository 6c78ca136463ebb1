"""Does the primary wait for a standby that is not there?"""

from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Who may not see the replication of others sees its rows without their state; then nothing can be said.
SQL_LACKS_STANDBY: Final = Statement("""
SELECT current_setting('synchronous_standby_names') <> ''
   AND NOT EXISTS (
           SELECT
             FROM pg_stat_replication
            WHERE sync_state IS NULL
               OR sync_state IN ('sync', 'quorum') AND state = 'streaming'
       )
""")


async def lacks_standby(connection: Connection) -> bool:
    """Tell whether commits wait because no synchronous standby follows; reading goes on meanwhile."""
    return bool(await SQL_LACKS_STANDBY.value(connection))
