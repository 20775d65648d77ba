"""Partitions that are refused for what lies in their folders, before a row of them is read.

A part that ClickHouse did not load is a part all the same: it is listed with the rows that it
claims, so that its partition is refused and never taken for a smaller one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from catalog.clickhouse.frozen.folders import PartFolder
from catalog.clickhouse.frozen.opening import OpenedParts
from catalog.clickhouse.frozen.uri import FrozenSettings
from tableformat.errors import RefusedError, SourceError
from tableformat.mergetree.parts import Part
from tableformat.names import PartitionId
from tableformat.quantities import counted

__all__ = ["refused_folders", "unloaded_parts"]

_NOT_LOADED: Final = "not loaded"


def unloaded_parts(opened: OpenedParts) -> tuple[Part, ...]:
    """Return the parts that ClickHouse passed over, as their folders show them.

    Raises:
        SourceError: a folder cannot be read.
    """
    try:
        return tuple(_part(folder) for folder in opened.missing)
    except OSError as error:
        message = (
            f"Cannot read the parts in {opened.folders.directory}: {error}. Run as a user who may "
            "read the directory and everything in it."
        )
        raise SourceError(message) from error


def refused_folders(
    opened: OpenedParts,
    settings: FrozenSettings,
    loaded: Iterable[Part],
    partition_ids: Collection[PartitionId],
) -> dict[PartitionId, RefusedError]:
    """Return the partitions of which a part is damaged, covered, there twice or not loaded.

    Args:
        opened: the parts.
        settings: what the user said of them.
        loaded: the parts that ClickHouse has loaded.
        partition_ids: those that are asked for.
    """
    damage: dict[str, str] = {}
    for folder in opened.folders.parts:
        if folder.damage:
            damage.setdefault(folder.partition_id, folder.damage)
    for folder in opened.missing:
        damage.setdefault(folder.partition_id, _not_loaded(opened, settings, folder))
    if not settings.keep_equal_parts:
        for one, twice in _equal_parts(loaded).items():
            damage.setdefault(one, twice)
    return {
        one: RefusedError(
            f"Cannot export partition {one} of {opened.table} from {opened.folders.directory}: "
            f"{damage[str(one)]}."
        )
        for one in partition_ids
        if str(one) in damage
    }


def _not_loaded(opened: OpenedParts, settings: FrozenSettings, folder: PartFolder) -> str:
    return (
        f"ClickHouse did not load the part {folder.name}, so it is damaged, or its keys are not "
        f"PARTITION BY {opened.definition.engine.partition_by or 'tuple()'} ORDER BY "
        f"{opened.definition.engine.order_by}. Copy it again, or correct {settings.ddl_file}"
    )


def _equal_parts(parts: Iterable[Part]) -> dict[str, str]:
    """Return, by partition, what to say of two parts that hold the same bytes."""
    first: dict[tuple[str, str, int], str] = {}
    twice: dict[str, str] = {}
    for part in parts:
        other = first.setdefault(part.content, part.name)
        if other != part.name:
            twice.setdefault(
                str(part.partition_id),
                f"the parts {other} and {part.name} hold the same {counted(part.rows, 'row')}, "
                "byte by "
                "byte. Move one of them away if it is a copy; add &equal-parts=keep to the source "
                "if the same rows were inserted twice",
            )
    return twice


def _part(folder: PartFolder) -> Part:
    name = folder.name
    return Part(
        name=str(name),
        partition_id=PartitionId(folder.partition_id),
        rows=_claimed_rows(folder.path),
        bytes_on_disk=_bytes(folder.path),
        uncompressed_bytes=0,
        hash_of_all_files=_NOT_LOADED,
        disk=f"{folder.path.parent}/",
        path=f"{folder.path}/",
        part_type=_NOT_LOADED,
        min_block=name.low,
        max_block=name.high,
        level=name.level,
        data_version=name.low if name.mutation is None else name.mutation,
        has_lightweight_delete=False,
    )


def _claimed_rows(path: Path) -> int:
    """Return what count.txt says; a part of which nothing is known counts as one row, not none."""
    try:
        return max(1, int((path / "count.txt").read_text()))
    except (OSError, ValueError):
        return 1


def _bytes(path: Path) -> int:
    return sum(
        (Path(directory) / name).lstat().st_size
        for directory, _, names in os.walk(path)
        for name in names
    )
