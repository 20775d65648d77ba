"""What Keeper itself says of a replicated table: when the nodes below its path were made.

A path is no more than a name: two ensembles may each have the same one, and a table may be dropped
and made anew under it. The node is made with the table and stays while replicas come and go. Which
node stands for a table is `catalog/clickhouse/describe.py`'s, who compares it is
`export/same_table.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["KeeperNode", "KeeperSilent"]


@dataclass(frozen=True, slots=True)
class KeeperNode:
    """A node: the number of the change that made it, and when that was.

    `czxid` is counted by the ensemble, `created` is milliseconds since 1970 by its clock, in whole
    seconds. A copy of the ensemble's data keeps both.
    """

    czxid: int
    created: int

    def __str__(self) -> str:
        """Return what people need to tell two nodes apart."""
        made = datetime.fromtimestamp(self.created / 1000, UTC)
        return f"{made:%Y-%m-%d %H:%M:%S} UTC (zxid {self.czxid})"


@dataclass(frozen=True, slots=True)
class KeeperSilent:
    """There is a Keeper, and it does not say which node there is; `reason` is its answer."""

    reason: str
