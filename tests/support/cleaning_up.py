"""`gc` in the small world: as a new process to which all others are dead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tableformat.effects import Direct, Effects
from tableformat.export.cleanup import Cleaning
from tableformat.export.commit import Ports
from tableformat.export.gc import Garbage, Sweeping
from tableformat.export.leases import Leases
from tableformat.ledger import Owner
from tableformat.names import LakeName
from tests.places.found import place_at
from tests.support.scenarios import CLOCK, TO, lake

__all__ = ["GC", "clean_up", "left_behind", "sweeping"]

GC: Final = Owner("host", 1, "gc")


def sweeping(
    directory: Path,
    *,
    older_than: int = 0,
    effects: Effects | None = None,
    clock: Callable[[], int] = CLOCK.__next__,
    name: LakeName = TO,
) -> Sweeping:
    """Return what `gc` works with."""
    place = place_at(directory)
    ledger = place.ledger(clock)
    table, acts = lake(directory, name), effects or Direct()
    ports = Ports(acts, table, ledger, clock, lambda _: None)
    location = table.load().location
    cleaning = Cleaning(ports, place.storage, location)
    leases = Leases(ledger, GC, effects=acts, is_alive=lambda owner: owner == GC)
    return Sweeping(cleaning, leases, lambda _: None, older_than, clock())


def clean_up(one: Sweeping) -> tuple[Garbage, ...]:
    """Do what `gc --yes` does."""
    with one.leases:
        return one.sweep()


def left_behind(
    directory: Path, *, clock: Callable[[], int] = CLOCK.__next__, name: LakeName = TO
) -> list[str]:
    """Clean up; return what is listed afterwards, which is what stays with a reason."""
    first = sweeping(directory, clock=clock, name=name)
    clean_up(first)
    first.cleaning.ports.ledger.close()
    again = sweeping(directory, clock=clock, name=name)
    try:
        return [f"{one.kind}: {one.location}: {one.why}" for one in again.find()]
    finally:
        again.cleaning.ports.ledger.close()
