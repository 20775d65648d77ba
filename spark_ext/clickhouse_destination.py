"""What no export can fill: the table itself, a table of ClickHouse, one that is not Iceberg's.

The words are the requirement's (RQ...Restrictions.SameTable, .DestinationSupport), the codes
ClickHouse's.
"""

from __future__ import annotations

from catalog.clickhouse.source import ClickHouseSource
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.names import TableName

__all__ = ["refuse_clickhouse_table", "unsupported"]


def refuse_clickhouse_table(
    source: ClickHouseSource, named: TableName, what: str, where: str
) -> None:
    """Refuse a table of ClickHouse as a destination, when there is one of that name.

    Args:
        source: where it would be.
        named: its name there.
        what: how the message begins, "Cannot export ... to ...".
        where: what to write instead, a sentence.

    Raises:
        UnsupportedError: there is one (code 48).
        SourceError: the source cannot be read.
    """
    engine = source.engine_of(named)
    if engine:
        raise unsupported(what, "MergeTree" if engine.endswith("MergeTree") else engine, where)


def unsupported(what: str, storage: str, where: str) -> UnsupportedError:
    """Return the refusal of a storage that holds no table of the lake."""
    message = (
        f"{what}: Destination storage {storage} does not support MergeTree parts or uses "
        f"unsupported partitioning. {where}"
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)
