"""FETCH PARTITION|PART … FROM '…' on a lake table: what stands in the quotes, and what is there.

The name of another lake table, the address of Parquet files (a path, or a location in a storage),
that of frozen parts, or a path in ZooKeeper under which a table of the session's sources is
replicated.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from catalog.clickhouse.frozen.source import FrozenPartsSource
from catalog.clickhouse.frozen.uri import is_parts, parse_parts
from catalog.clickhouse.row_partitions import RowPartitions
from catalog.foreign_files import ForeignFiles
from catalog.parquet_directory import ForeignFile, ParquetDirectory
from catalog.replicated_tables import replica_at, tables_under
from catalog.sources import SourcePlace, open_source, server_of
from spark_ext.operations.copying_from import copying, fetched_from
from spark_ext.operations.fetching_parts import PartsOrigin, fetching_parts
from spark_ext.operations.other_tables import OtherTables, RememberingTable
from tableformat.clickhouse_codes import BAD_ARGUMENTS, KEEPER_EXCEPTION, NO_REPLICA_HAS_PART
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.iceberg.live_files import lake_part_name
from tableformat.ledger import Key
from tableformat.names import PartitionId, TableName, quote_string, split_identifiers
from tableformat.operations.copying import OtherKey
from tableformat.operations.fetching import Fetch
from tableformat.operations.running import Running
from tableformat.operations.which import OnePart, OnePartition

__all__ = ["fetching", "key_of_nobodys"]

_A_NAME: Final = re.compile(r"[^/:]+\.[^/:]+")
_A_LOCATION: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_SHOWN: Final = 5


def fetching(
    path: str,
    which: OnePartition | OnePart,
    running: Running,
    to: RememberingTable,
    others: OtherTables,
    stack: ExitStack,
) -> tuple[Running, Fetch]:
    """Return FETCH of a partition or part, and what runs it; everything is looked at.

    Args:
        path: what stands in quotes.
        which: what is fetched.
        running: what runs statements on the table.
        to: the table.
        others: how names of lake tables are looked up, and the session's sources.
        stack: closes what is opened.

    Raises:
        UsageError: it is no name of a lake table and no location.
        NotFoundError: there is no such table (code 60), place (257) or part (234).
        RefusedError: what is there cannot be rows of the table.
        TableFormatError: a catalog, a storage or the ledger failed.
    """
    what = f"Cannot run FETCH {which} FROM {quote_string(path)} on {to.name}"
    key_of = partial(key_of_nobodys, what, which.partition_id, running, to)
    if _A_NAME.fullmatch(path):
        other, copy = fetched_from(what, split_identifiers(path), which, to, others)
        return copying(running, copy), Fetch(which, str(other.name), other.keys)
    if is_parts(path):
        parts = stack.enter_context(FrozenPartsSource(parse_parts(path)))
        named = parts.named(to.source.table.name)
        origin = PartsOrigin(quote_string(path), parts, named)
        return fetching_parts(what, origin, which, running, to, key_of, stack)
    if path.startswith("/") and not Path(path).exists():
        origin = _replicated(what, path, others, stack)
        return fetching_parts(what, origin, which, running, to, key_of, stack)
    if _A_LOCATION.match(path):
        return _from_files(what, path, which, running, to)
    message = (
        f"{what}: it is neither the name of a lake table ('lake.ns.t') nor the address of Parquet "
        "files ('/directory', 'file:///directory', 's3://bucket/directory') or of frozen parts "
        "('parts:/directory?ddl=/file.sql')."
    )
    raise UsageError(message, code=BAD_ARGUMENTS)


def _from_files(
    what: str,
    path: str,
    which: OnePartition | OnePart,
    running: Running,
    to: RememberingTable,
) -> tuple[Running, Fetch]:
    state, storages = to.found.load(), to.found.storages
    with RowPartitions(to.source, storages) as rows:
        files = ParquetDirectory(what, path, storages, state, rows).files(which.partition_id)
    wanted = _part(what, which, files) if isinstance(which, OnePart) else files
    keys: tuple[OtherKey, ...] = ()
    if wanted:
        key = key_of_nobodys(what, which.partition_id, running, to)
        keys = (OtherKey(key, tuple(one.file for one in wanted)),)
    seen = {one.file.path: one for one in wanted}
    ready = replace(running, ports=replace(running.ports, copy=ForeignFiles(seen, state, storages)))
    return ready, Fetch(which, quote_string(path), keys, state.layout.schema_id)


def _replicated(what: str, path: str, others: OtherTables, stack: ExitStack) -> PartsOrigin:
    """Return the table that is replicated under a path in ZooKeeper.

    Raises:
        NotFoundError: no source of the session has one (code 999, as ClickHouse says it).
        RefusedError: several have, and they are not replicas of one table: a path may mean another
            table in another ZooKeeper.
        SourceError: a source cannot be read.
    """
    found = [
        (name, place, table)
        for name, place in sorted(others.sources.items())
        for table in tables_under(place, path)
    ]
    if not found:
        sources = ", ".join(sorted(others.sources)) or "none"
        message = (
            f"{what}: there is no such directory on this host, and no source of the session "
            f"({sources}) has a table that is replicated under this path in ZooKeeper. Name the "
            "server of one as a source, or its part folders: 'parts:/directory?ddl=/file.sql'."
        )
        raise NotFoundError(message, code=KEEPER_EXCEPTION)
    best = _best(found, path)
    if best is None:
        several = ", ".join(f"{name}.{table}" for name, _, table in found)
        message = (
            f"{what}: {several} are replicated under this path, which may be of different "
            "ZooKeepers. Run it in a session with one of these sources."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    _, place, table = best
    source = stack.enter_context(open_source(place, is_exporting=True))
    return PartsOrigin(quote_string(path), source, table, server_of(place))


def _best(
    found: list[tuple[str, SourcePlace, TableName]], path: str
) -> tuple[str, SourcePlace, TableName] | None:
    """Return the replica that is behind the least; None where they are not of one table.

    They are where their Keepers have the same node under the path. One that has lost its Keeper, or
    is read-only, may lack what the others have.

    Raises:
        SourceError: a source cannot be read.
    """
    if len(found) == 1:
        return found[0]
    replicas = [replica_at(place, table, path) for _, place, table in found]
    nodes = {one.node for one in replicas}
    if None in nodes or len(nodes) > 1:
        return None
    ranked = [
        (one.lag.rank, number)
        for number, one in enumerate(replicas)
        if one.lag is not None and not one.lag.read_only
    ]
    return found[min(ranked)[1]] if ranked else None


def _part(what: str, which: OnePart, files: tuple[ForeignFile, ...]) -> tuple[ForeignFile, ...]:
    """Return the file that a part is: by its name, or as the files of a lake table are named.

    Raises:
        NotFoundError: none is (code 234).
        RefusedError: several in different directories are.
    """
    names = {one.file.path: _name_of(which.partition_id, one) for one in files}
    found = tuple(f for f in files if str(which.part) in (f.stem, names[f.file.path]))
    if len(found) > 1:
        several = " and ".join(sorted(one.file.path for one in found)[:2])
        message = f"{what}: {several} are both named so. Name the directory of one of them."
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if found:
        return found
    there = ", ".join(sorted(names.values())[:_SHOWN])
    more = " …" if len(names) > _SHOWN else ""
    message = (
        f"{what}: there is no part of that name. A file is named as a part by its name without "
        f"{'.parquet'!r}, where that is one"
        + (f"; here are {there}{more}." if names else f"; of {which.partition_id} there is none.")
    )
    raise NotFoundError(message, code=NO_REPLICA_HAS_PART)


def _name_of(partition_id: PartitionId, one: ForeignFile) -> str:
    return str(lake_part_name(partition_id, one.file.path))


def key_of_nobodys(
    what: str,
    partition_id: PartitionId,
    running: Running,
    to: RememberingTable,
    identity: str = "",
) -> Key:
    """Return the key of rows that came from a place that no ledger knows.

    It is that of the exports of the partition, so that none of them comes beside rows that may be
    its own: those of a table that was restored have another identity.

    Args:
        what: begins errors: what cannot be run.
        partition_id: where the rows lie.
        running: what runs statements on the table.
        to: the table.
        identity: of the table that they are rows of, '' where nobody knows it.

    Raises:
        RefusedError: the partition was exported from several sources.
    """
    state = to.found.load()
    rows = running.partitions.rows_of(state, partition_id)
    keys = [row.key for row in rows if row.key.is_of_export]
    if own := next((key for key in keys if key.source == identity), None):
        return own
    if odd := next((row for row in rows if not running.partitions.lying.is_own(row)), None):
        message = (
            f"{what}: the partition has rows of {odd.source_table}, which has another partition "
            "key, and nobody can tell whose rows these are. Export it again, or append the rows "
            "with another engine."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if len(keys) > 1:
        message = (
            f"{what}: the partition was exported from {len(keys)} sources (shards), and nobody can "
            "tell whose rows these are. Export it again, or append the rows with another engine."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if keys:
        return keys[0]
    return Key(to.source.table.key_source, str(partition_id), state.layout.table_uuid)
