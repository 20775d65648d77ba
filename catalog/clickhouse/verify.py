"""The proof of a frozen partition: every part checked, every row counted, every probe measured.

`CHECK TABLE` is the only thing that sees each kind of damage; a plain SELECT lets some through, and
damaged parts may vanish from its answer (source.md section 4), so the answer must name exactly the
expected parts. All questions are asked of the staging table, which nothing changes any more.
"""

from __future__ import annotations

from typing import Final

from catalog.clickhouse.connection import Connection, flag, text, texts, whole
from catalog.clickhouse.describe import of_table
from tableformat.errors import SourceError, UnsupportedError
from tableformat.mergetree.parts import Part
from tableformat.names import PartitionId, TableName, quote_identifier, quote_string
from tableformat.source import Probe, ProbedValue

__all__ = ["check_disks", "check_parts", "count_visible", "measure"]

_SHOWN: Final = 3


def check_parts(
    connection: Connection, source: TableName, staging: TableName, partition_id: PartitionId
) -> None:
    """Check every file of a partition against its checksums.

    Raises:
        SourceError: a part is damaged, or was not looked at; the part is named.
    """
    in_partition = f"partition_id = {quote_string(str(partition_id))}"
    expected = texts(
        connection,
        f"SELECT name FROM system.parts WHERE active AND {of_table(staging)} AND {in_partition}",
    )
    answers = connection.rows(
        f"CHECK TABLE {staging.sql} PARTITION ID {quote_string(str(partition_id))}"
        " SETTINGS check_query_single_value_result = 0"
    )
    seen = {text(row[0]): (flag(row[1]), text(row[2])) for row in answers}
    damaged = [f"{name} ({what})" for name, (passed, what) in sorted(seen.items()) if not passed]
    unseen = sorted(set(expected) - set(seen))
    if damaged or unseen or set(seen) - set(expected):
        what = (
            f"CHECK TABLE finds damage in {_some(damaged)}"
            if damaged
            else f"CHECK TABLE did not look at {_some(unseen)}"
            if unseen
            else f"CHECK TABLE looked at {_some(sorted(set(seen) - set(expected)))}, which is unknown"
        )
        message = (
            f"Cannot export partition {partition_id} of {source}: {what}. "
            f"Repair the part from a replica or a backup, or detach it, and run again."
        )
        raise SourceError(message)


def check_disks(
    connection: Connection, source: TableName, partition_id: PartitionId, parts: tuple[Part, ...]
) -> None:
    """Refuse parts that a task cannot open as plain files.

    Raises:
        UnsupportedError: a part lies on a disk whose files are no plain local files.
        SourceError: the source cannot be read.
    """
    found = connection.rows("SELECT path, name, type, is_encrypted FROM system.disks")
    kinds = {text(row[0]): (text(row[1]), text(row[2]), flag(row[3])) for row in found}
    for part in parts:
        name, kind, encrypted = kinds[part.disk]
        if kind.lower() != "local" or encrypted:
            message = (
                f"Cannot export partition {partition_id} of {source}: its part {part.name} lies on the "
                f"disk {name!r} of type {kind}{', encrypted' if encrypted else ''}, whose files cannot "
                "be opened as they are. Move the partition to a plain local disk "
                "(ALTER TABLE ... MOVE PARTITION ... TO DISK)."
            )
            raise UnsupportedError(message)


def count_visible(
    connection: Connection,
    source: TableName,
    staging: TableName,
    partition_id: PartitionId,
    parts: tuple[Part, ...],
) -> dict[str, int]:
    """Return, by part name, the rows that a SELECT shows: without those deleted lightly.

    Raises:
        SourceError: a part without such deletes does not show all of its rows.
    """
    answers = connection.rows(
        f"SELECT t._part, count() FROM {staging.sql} AS t WHERE {_within(partition_id)}"
        " GROUP BY t._part"
    )
    shown = {text(row[0]): whole(row[1]) for row in answers}
    for part in parts:
        rows = shown.get(part.name, 0)
        if rows > part.rows or (rows != part.rows and not part.has_lightweight_delete):
            message = (
                f"Cannot export partition {partition_id} of {source}: its part {part.name} holds "
                f"{part.rows} rows and shows {rows}. A row policy or a setting of the user hides "
                "rows from the exporter; use another user."
            )
            raise SourceError(message)
    return {part.name: shown.get(part.name, 0) for part in parts}


def measure(
    connection: Connection,
    staging: TableName,
    partition_id: PartitionId,
    probes: tuple[Probe, ...],
) -> tuple[ProbedValue, ...]:
    """Return the least and greatest value and the NULLs of each probe over the visible rows.

    Raises:
        SourceError: a probe cannot be computed.
    """
    if not probes:
        return ()
    inner = ", ".join(f"({probe.sql}) AS {_alias('p', i)}" for i, probe in enumerate(probes))
    folded = ", ".join(
        f"min({p}) AS {_alias('low', i)}, max({p}) AS {_alias('high', i)},"
        f" countIf(isNull({p})) AS {_alias('nulls', i)}"
        for i, p in enumerate(_alias("p", i) for i in range(len(probes)))
    )
    shown = ", ".join(
        f"{_shown(probe, _alias('low', i))}, {_shown(probe, _alias('high', i))}, {_alias('nulls', i)}"
        for i, probe in enumerate(probes)
    )
    (row,) = connection.rows(
        f"SELECT rows_seen, {shown} FROM (SELECT count() AS rows_seen, {folded} FROM"
        f" (SELECT {inner} FROM {staging.sql} AS t WHERE {_within(partition_id)}))"
    )
    seen, values = whole(row[0]), row[1:]
    if seen == 0:
        return tuple(ProbedValue(None, None, 0) for _ in probes)
    return tuple(
        ProbedValue(_text_or_none(values[i]), _text_or_none(values[i + 1]), whole(values[i + 2]))
        for i in range(0, len(values), 3)
    )


def _alias(what: str, number: int) -> str:
    return quote_identifier(f"mergeberg_{what}_{number}")


def _shown(probe: Probe, value: str) -> str:
    # A lambda names the value `v` whatever columns there are.
    return f"arrayMap(v -> {probe.text_sql}, [{value}])[1]"


def _text_or_none(value: object) -> str | None:
    return None if value is None else text(value)


def _within(partition_id: PartitionId) -> str:
    return f"t._partition_id = {quote_string(str(partition_id))}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
