"""What tests share: real servers, accounts and helpers.

Databases of tests have fewer weeks ahead than those of an operator: with 30 partitions instead of 60 each
statement costs less, and so does each copy. Programs that are started as an operator starts them make all.
"""

from typing import Final
from unittest.mock import patch

from tumira.postgres import partitions

WEEKS_AHEAD: Final = partitions.WEEKS_AHEAD
# One more than a node needs to be ready, so that a run may go past the end of a week.
patch.object(partitions, "WEEKS_AHEAD", partitions.WEEKS_AHEAD_MIN + 1).start()
