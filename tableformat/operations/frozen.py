"""What FREEZE keeps: a tag, and a property that says of which partition and by which name.

Each has a tag and a property of its own, so that two statements at once never overwrite what the
other has noted: a property alone cannot be required to be as it was (Iceberg's specification,
commit requirements).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError

__all__ = ["FROZEN", "LAST_NUMBER", "UNFROZEN", "Frozen", "frozen_in", "is_unfrozen"]

FROZEN: Final = "mergeberg.frozen."
"""The property of a tag that FREEZE made; the tag's name follows."""
UNFROZEN: Final = "mergeberg.unfrozen."
"""The property of a partition that UNFREEZE took off a tag of all of them."""
LAST_NUMBER: Final = "mergeberg.frozen-last"
"""The property with the last number that a FREEZE without a name had."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A partition that is frozen by a name, '' for all of them.

    `by` is unique for each statement.
    """

    tag: str
    name: str
    partition: str
    snapshot_id: int
    by: str

    @property
    def property(self) -> tuple[str, str]:
        """The property's name and value."""
        told = {"name": self.name, "partition": self.partition, "by": self.by}
        return f"{FROZEN}{self.tag}", json.dumps({**told, "snapshot": self.snapshot_id})

    def unfrozen(self, partition: str) -> str:
        """Return the property that says that a partition is not frozen by this tag any more."""
        return f"{UNFROZEN}{json.dumps([self.tag, partition])}"


def frozen_in(state: LakeTableState) -> tuple[Frozen, ...]:
    """Return what is frozen of a table.

    Raises:
        DestinationError: a property cannot be read.
    """
    return tuple(
        _read(name.removeprefix(FROZEN), text)
        for name, text in sorted(state.properties.items())
        if name.startswith(FROZEN)
    )


def is_unfrozen(state: LakeTableState, one: Frozen, partition: str) -> bool:
    """Whether UNFREEZE took a partition off a tag of all of them."""
    return one.unfrozen(partition) in state.properties


def _read(tag: str, text: str) -> Frozen:
    try:
        told = json.loads(text)
        return Frozen(tag, told["name"], told["partition"], int(told["snapshot"]), told["by"])
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"Cannot read the table's property {FROZEN}{tag}: {text!r} is not what FREEZE wrote. "
            "Somebody edited it; put the value back from an earlier metadata file."
        )
        raise DestinationError(message) from error
