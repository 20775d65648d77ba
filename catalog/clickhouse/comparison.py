"""Compares a clone with what it is a clone of: the table's definition, the parts by their content.

A clone numbers its parts anew, so only hash and rows tell which part of the source each of them is
(source.md section 1).
"""

from __future__ import annotations

from collections.abc import Iterable

from tableformat.mergetree.parts import Part
from tableformat.mergetree.table import MergeTreeTable
from tableformat.source import FrozenPart, LeftPart

__all__ = ["differences", "paired"]


def differences(planned: MergeTreeTable, found: MergeTreeTable, *, copy: bool) -> str:
    """Return what of a table is another thing now, '' when nothing is.

    Args:
        planned: as it was described.
        found: as it is.
        copy: `found` is a staging table: of another identity, and always a plain MergeTree.
    """
    of_both = (
        ("its columns", _columns(planned), _columns(found)),
        ("its partition key", planned.engine.partition_by, found.engine.partition_by),
        ("its sorting key", planned.engine.order_by, found.engine.order_by),
        ("its primary key", planned.engine.primary_key, found.engine.primary_key),
    )
    of_source = (
        ("its identity", planned.identity, found.identity),
        ("its engine", planned.engine.name, found.engine.name),
        ("its engine's arguments", planned.engine.arguments, found.engine.arguments),
    )
    told = of_both if copy else of_both + of_source
    return ", ".join(what for what, before, after in told if before != after)


def paired(
    copies: tuple[Part, ...], originals: Iterable[LeftPart], *, place: str = ""
) -> tuple[FrozenPart, ...] | None:
    """Name for each copy the original it is a clone of; None when one has no pair.

    Equal parts are taken in order. `visible_rows` are all rows: nobody has counted yet.

    Args:
        copies: all parts of one partition in a staging table.
        originals: all parts of that partition in the source.
        place: where tasks find all of them; '' for the disk of each.
    """
    names: dict[tuple[str, int], list[str]] = {}
    for original in originals:
        content = (original.hash_of_all_files, original.rows)
        names.setdefault(content, []).append(original.source_name)
    pairs = []
    for part in copies:
        left = names.get((part.hash_of_all_files, part.rows))
        if not left:
            return None
        pairs.append(FrozenPart(part, left.pop(0), part.rows, place or part.disk))
    return None if any(names.values()) else tuple(pairs)


def _columns(table: MergeTreeTable) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((c.name, c.type_text, c.default_kind, c.default_expression) for c in table.columns)
