"""Disk space on both sides of an export: what it may need, and what is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from catalog.storages.opening import is_local, open_storage
from spark_ext.cli.output import Output
from tableformat.names import TableName
from tableformat.quantities import human_bytes

__all__ = ["Space", "lacking", "measured_space", "show_space"]


@dataclass(frozen=True, slots=True)
class Space:
    """One place: `free` is None where there is no bound or it cannot be asked."""

    side: str
    path: str
    needed: int
    free: int | None

    @property
    def enough(self) -> bool:
        """Whether what is needed is free, as far as is known."""
        return self.free is None or self.needed <= self.free

    def __str__(self) -> str:
        """Return it in words."""
        free = "free space unknown" if self.free is None else f"{human_bytes(self.free)} free"
        size = human_bytes(self.needed)
        if self.side == "source":
            what = f"up to {size} of old parts are kept while the export runs"
            return f"source disk {self.path}: {what}; {free}"
        return f"{f'destination {self.path}'.rstrip()}: about {size} needed; {free}"


def measured_space(
    source: Mapping[str, int],
    *,
    destination: int | None,
    location: str | None,
    warehouse: Path | None,
    at_server: Mapping[str, int] | None = None,
) -> tuple[Space, ...]:
    """Return what is needed and free on every disk of the source and at the destination.

    Args:
        source: bytes by the root directory of a disk.
        destination: bytes that the files are expected to need; None when none was named.
        location: of the destination's table, None when it is not made yet.
        warehouse: the local warehouse, None when the catalog is another one.
        at_server: what is free on the source's disks as its server says; None when they are here.

    Raises:
        DestinationError: a place cannot be read.
    """
    # Of parts without a disk, which nobody writes, a snapshot keeps nothing.
    disks = [(disk, size) for disk, size in sorted(source.items()) if disk]
    spaces = [
        Space("source", disk, size, _free(disk) if at_server is None else at_server.get(disk))
        for disk, size in disks
    ]
    if destination is None:
        return tuple(spaces)
    at = location or (str(warehouse) if warehouse is not None else "")
    return (*spaces, Space("destination", at, destination, _free(at)))


def show_space(output: Output, spaces: tuple[Space, ...], *, as_json: bool) -> None:
    """Print the places, one line or object each."""
    for space in spaces:
        if as_json:
            output.record(asdict(space))
        else:
            output.say(f"{space}{'' if space.enough else ' - NOT ENOUGH'}")


def lacking(table: TableName, spaces: tuple[Space, ...]) -> tuple[str, ...]:
    """Return why an export is refused for want of space at its destination; nothing where it fits.

    What a source needs hangs on the merges that are made meanwhile, and refuses nothing.
    """
    return tuple(
        f"Cannot export {table}: not enough space: {s}. Free some, or export fewer partitions."
        for s in spaces
        if s.side == "destination" and not s.enough
    )


def _free(location: str) -> int | None:
    # An object store has no bound.
    if not location or not is_local(location):
        return None
    return open_storage(location).free_bytes(location)
