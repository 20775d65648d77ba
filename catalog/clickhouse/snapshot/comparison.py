"""Compares a clone with its source: the table's definition, and the parts by their content.

- A clone renumbers its parts. Only hash and rows show which source part each of them is.
- A server without `hash_of_all_files` shows only names and sizes. A mutation may keep every size
  but never the name, and a name has one content on all replicas. The text
  `name:202401_1_1_0:sizes:...` therefore replaces the hash, and copies are compared by its
  sizes.
- `Clone` is the filled staging table that the snapshot passes to the proof
  (`catalog/clickhouse/snapshot/proof.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tableformat.errors import TableFormatError
from tableformat.mergetree.table import Column, KeeperUnavailable, MergeTreeTable, Part
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_string
from tableformat.source import FrozenPart, LeftPart

__all__ = [
    "Clone",
    "Refused",
    "differences",
    "is_hash",
    "named_sizes_sql",
    "paired",
    "same_in_copies",
    "within",
]

_NAMED: Final = re.compile(r"name:[^:]*:(?P<sizes>sizes:.*)\Z")
_SIZES: Final = ("bytes_on_disk", "data_compressed_bytes", "data_uncompressed_bytes", "marks_bytes")


def named_sizes_sql(parts: str) -> str:
    """Return the SQL of the text that replaces a missing hash; `parts` names system.parts."""
    sizes = ", ".join(f"':', toString({parts}.{size})" for size in _SIZES)
    return f"concat('name:', {parts}.name, ':sizes', {sizes})"


def is_hash(content: str) -> bool:
    """Whether a part's content is identified by its hash, not by the text that replaces one."""
    return _NAMED.match(content) is None


def same_in_copies(content: str) -> str:
    """Return the piece of a part's hash, or of its replacement, that a clone of the part shares."""
    named = _NAMED.match(content)
    return named["sizes"] if named else content


def differences(
    planned: MergeTreeTable,
    found: MergeTreeTable,
    *,
    copy: bool,
    bare: tuple[Column, ...] | None = None,
) -> str:
    """Return how a table differs from its earlier description, '' if it does not.

    Args:
        planned: the earlier description.
        found: the current one.
        copy: `found` is a staging table, with another identity and always a plain MergeTree.
        bare: the columns that it may have instead, without columns that none of its parts needs.
    """
    is_bare = bare is not None and _columns(bare) == _columns(found.columns)
    of_both = (
        ("its columns", is_bare or _columns(planned.columns), is_bare or _columns(found.columns)),
        ("its partition key", planned.engine.partition_by, found.engine.partition_by),
        ("its sorting key", planned.engine.order_by, found.engine.order_by),
        ("its primary key", planned.engine.primary_key, found.engine.primary_key),
    )
    of_source = (
        ("its identity", planned.identity, found.identity),
        ("its node in Keeper", _known(planned), _known(found)),
        ("its engine", planned.engine.name, found.engine.name),
        ("its engine's arguments", planned.engine.arguments, found.engine.arguments),
    )
    compared = of_both if copy else of_both + of_source
    return ", ".join(what for what, before, after in compared if before != after)


def paired(
    copies: tuple[Part, ...], originals: Iterable[LeftPart], *, place: str = ""
) -> tuple[FrozenPart, ...] | None:
    """Assign to each part of a clone the part that it was cloned from; None if one has no pair.

    Equal parts are paired in order, which a clone keeps. `visible_rows` are set to all rows,
    because they are counted later. A pair has the original's content, in which the original's name
    occurs.

    Args:
        copies: all parts of one partition in a staging table.
        originals: all parts of that partition in the source.
        place: the table from which tasks read them; '' to read each from its disk.
    """
    found: dict[tuple[str, int], list[LeftPart]] = {}
    for original in originals:
        key = (same_in_copies(original.hash_of_all_files), original.rows)
        found.setdefault(key, []).append(original)
    pairs = []
    for part in copies:
        left = found.get((same_in_copies(part.hash_of_all_files), part.rows))
        if not left:
            return None
        original = left.pop(0)
        content = original.hash_of_all_files
        held = (
            part if content == part.hash_of_all_files else replace(part, hash_of_all_files=content)
        )
        held = replace(held, lacks=original.lacks or part.lacks)
        pairs.append(FrozenPart(held, original.source_name, part.rows, place or part.disk))
    return None if any(found.values()) else tuple(pairs)


def _columns(columns: tuple[Column, ...]) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((c.name, c.type_text, c.default_kind, c.default_expression) for c in columns)


def _known(table: MergeTreeTable) -> object:
    """Return a table's node in Keeper; if Keeper does not respond, a value equal to no other."""
    node = table.keeper_node
    return object() if isinstance(node, KeeperUnavailable) else node


# A number of names that fits into a query.
_MOST_IN_ONE_ALTER: Final = 3000

Refused = Mapping[PartitionId, TableFormatError]


@dataclass(frozen=True, slots=True)
class Clone:
    """A filled staging table of a source table, with the parts of its partitions, uncounted."""

    source: TableName
    staging: TableName
    parts: Mapping[PartitionId, tuple[FrozenPart, ...]]

    def within(self, partition_ids: tuple[PartitionId, ...]) -> str:
        """Return the WHERE condition that selects the rows of partitions in the clone."""
        condition = within(partition_ids)
        if len(partition_ids) != 1:
            return condition
        # By a partition id alone, old versions read all parts, including damaged ones of other
        # partitions.
        names = [quote_string(part.part.name) for part in self.parts[partition_ids[0]]]
        few = 0 < len(names) <= _MOST_IN_ONE_ALTER
        return f"{condition} AND {SOURCE_ALIAS}._part IN ({', '.join(names)})" if few else condition


def within(partition_ids: tuple[PartitionId, ...]) -> str:
    """Return the WHERE condition that selects the rows of partitions of a table."""
    ids = ", ".join(quote_string(str(one)) for one in partition_ids)
    return f"{SOURCE_ALIAS}._partition_id IN ({ids})"
