"""The end of a partition's export: what its earlier attempts left behind is removed (step 10).

Only after it has landed and was settled, and under its lease. An export that was never begun before
has nothing to remove, and asks for nothing; what is more than a bounded share is left to `gc`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.errors import TableFormatError
from tableformat.export.cleaning import Cleaning
from tableformat.export.destination import Destination
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.settling import Ports
from tableformat.export.work import Claimed

__all__ = ["Tidying"]

_LANDED = (Status.COMMITTED, Status.REPLACED)


@dataclass(frozen=True, slots=True)
class Tidying:
    """Tidies up after exports into one destination."""

    ports: JobPorts
    commit_ports: Ports
    to: Destination

    def after(self, one: Claimed, outcome: Outcome) -> None:
        """Remove what attempts before this one left behind; what goes wrong is only told."""
        earlier = bool(one.row.old) or one.row.claim.begun < one.begun
        if outcome.status not in _LANDED or not earlier:
            return
        try:
            cleaning = Cleaning(self.commit_ports, self.ports.storage, self.to.location)
            cleaning.clean(one.row.key.hash)
        except TableFormatError as error:
            self.ports.observer.note(
                f"partition {outcome.partition_id}: what earlier attempts left behind stays: "
                f"{error} `mergeberg gc` removes it"
            )
