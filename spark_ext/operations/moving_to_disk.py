"""MOVE PARTITION|PART … TO DISK|VOLUME on a lake table: where that is, and what copies files."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from catalog.intact_files import Checks
from catalog.moved_files import MovedFiles
from spark_ext.operations.other_tables import RememberingTable
from spark_ext.sql.statement_text import render_command
from spark_ext.sql.statements import MoveToDisk, MoveToVolume
from tableformat.disks import Disks
from tableformat.operations.move_to_disk import MoveToDisk as Moving
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, Which

__all__ = ["moving_to_disk"]

_PLANS: Final = 2
"""Planned again once when others changed the partition: each plan copies its files."""


def moving_to_disk(
    command: MoveToDisk | MoveToVolume,
    which: Which,
    running: Running,
    of: RememberingTable,
    checks: Checks,
) -> tuple[Running, Moving]:
    """Return MOVE TO DISK or TO VOLUME of a partition or part, and what runs it.

    Args:
        command: as it was given.
        which: what it is about.
        running: what runs statements on the table.
        of: the table.
        checks: refuses files that are not as they were written.

    Raises:
        NotFoundError: there is no such disk (code 479) or volume (548).
        RefusedError: a property of the table names no place (code 36).
        UsageError: the disk's storage is not served, or cannot be reached as the catalog says.
    """
    what = f"Cannot run {render_command(command)} on {of.name}"
    if isinstance(which, AllPartitions):
        # The grammar has refused it.
        raise TypeError(command)
    disks, storages = Disks.of(of.found.load()), of.found.storages
    match command:
        case MoveToDisk(_, name):
            to = disks.disk(name, what)
        case MoveToVolume(_, name):
            to = disks.volume(name, what)
    for place in to.places:
        # Refused before anything is claimed when it cannot be served.
        storages(place)
    ports = replace(running.ports, rewrite=MovedFiles(storages, running.ports.note, checks))
    return replace(running, ports=ports, most_plans=_PLANS), Moving(which, to, disks)
