"""Lists the part folders in a directory, and opens them in our own ClickHouse.

`find_folders` needs no ClickHouse: it returns the facts in the folders' names and first bytes.
ClickHouse silently skips parts that it cannot load, and parts that another part's name covers
(docs/reference/source-parts.md). So the folders are listed here, and exactly these must be loaded.

`open_parts` creates a read-only table over the directory itself: a plain MergeTree on a plain disk.
Nothing is written into the directory, and every system table shows its parts as a server would. The
loaded parts are compared with the folders.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, texts
from catalog.clickhouse.embedded import OwnClickHouse
from catalog.clickhouse.frozen.definition import Definition, FrozenSettings, read_definition
from catalog.clickhouse.part_directories import plain_disk_sql
from catalog.clickhouse.snapshot.staging import files_layout
from catalog.clickhouse.table_description import (
    describe,
    list_parts,
    of_table,
    with_missing_columns,
)
from catalog.network import some
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    UnsupportedError,
    UsageError,
)
from tableformat.mergetree.engine_text import staging_engine
from tableformat.mergetree.missing_columns import column_list, columns_of_parts
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartName, TableName, quote_identifier, quote_string

__all__ = [
    "OpenedParts",
    "PartFolder",
    "PartFolders",
    "check_unchanged",
    "find_folders",
    "open_clickhouse",
    "open_parts",
]

_PATCH: Final = re.compile(r"patch-[0-9a-f]{32}-(?P<partition>.+)\Z")
_OLD_NAME: Final = re.compile(r"\d{8}_\d{8}_\d+_\d+_\d+(?:_\d+)?\Z")
_PACKED: Final = re.compile(r"(?P<name>.+?)\.(?:zip|tgz|tar|tzst|gz|zst|bz2|xz|lz4|7z)(?:\.\w+)?\Z")
# Parts of every version have at least one of these files; a folder without them is no part,
# whatever its name.
_FILES_OF_PARTS: Final = ("checksums.txt", "columns.txt", "count.txt")
_CHECKSUMS: Final = "checksums.txt"
_CHECKSUMS_BEGIN: Final = b"checksums format version: "
_ENCRYPTED_BEGIN: Final = b"ENC"
_BACKUP: Final = ".backup"
_DEEPEST: Final = 12
_some: Final = partial(some, most=5)


@dataclass(frozen=True, slots=True)
class PartFolder:
    """A folder with the name of a part; `damage` is the reason why it cannot be read, '' for none.

    `partition_id` is that of the rows: a patch part has another one in its name.
    """

    name: PartName
    path: Path
    partition_id: str
    damage: str


@dataclass(frozen=True, slots=True)
class PartFolders:
    """The directory of the parts, its part folders, and the names of other folders."""

    directory: Path
    parts: tuple[PartFolder, ...]
    others: tuple[str, ...]


def find_folders(given: Path) -> PartFolders:
    """List the part folders of a directory, or of the only directory below it that has any.

    Raises:
        NotFoundError: there is none.
        RefusedError: there are several, or it is a backup that must be restored first.
        UnsupportedError: the parts have the old syntax.
        SourceError: the directory cannot be read.
    """
    if not given.is_dir():
        raise _no_directory(given)
    root = given.resolve()
    try:
        found = tuple(_directories_of_parts(root, _DEEPEST))
        if len(found) != 1:
            raise _several(given, found) if found else _nothing(given, root)
        (directory,) = found
        _refuse_backup(given, directory)
        return _listed(directory)
    except OSError as error:
        message = (
            f"Cannot read the parts in {given}: {error}. Run as a user who may read the directory "
            "and everything in it."
        )
        raise SourceError(message) from error


def _directories_of_parts(directory: Path, deeper: int) -> Iterator[Path]:
    below = sorted(p for p in directory.iterdir() if p.is_dir())
    if any(_is_part(path) for path in below):
        yield directory
        return
    for path in below:
        # Detached parts do not belong to the table.
        if deeper and not path.is_symlink() and path.name != "detached":
            yield from _directories_of_parts(path, deeper - 1)


def _is_part(path: Path) -> bool:
    if _part_name(path.name) is None and not _OLD_NAME.match(path.name):
        return False
    return any((path / name).is_file() for name in _FILES_OF_PARTS)


def _part_name(text: str) -> PartName | None:
    try:
        return PartName.parse(text)
    except UsageError:
        return None


def _listed(directory: Path) -> PartFolders:
    held = sorted(directory.iterdir())
    if old := [p.name for p in held if _OLD_NAME.match(p.name) and _is_part(p)]:
        message = (
            f"Cannot read the parts in {directory}: {_some(old)} has the name of a part of a table "
            "of the old syntax, and such parts cannot be opened in a table of another syntax. Copy "
            "the rows into a table with PARTITION BY and ORDER BY on its server."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    names = {p.name: name for p in held if (name := _part_name(p.name)) and _is_part(p)}
    packed = [p.name for p in held if (m := _PACKED.match(p.name)) and _part_name(m["name"])]
    if packed:
        message = (
            f"Cannot read the parts in {directory}: {_some(packed)} is packed, and packed parts "
            "cannot be opened. Unpack it, or move it away if it is not needed."
        )
        raise RefusedError(message)
    unlike = [p.name for p in held if _part_name(p.name) and p.is_dir() and p.name not in names]
    if unlike:
        message = (
            f"Cannot read the parts in {directory}: {_some(unlike)} has the name of a part and "
            f"none of {', '.join(_FILES_OF_PARTS)} in it. Copy it again, or move it away if it is "
            "no part."
        )
        raise RefusedError(message)
    overlapping = _overlapping(names.values())
    parts = tuple(
        PartFolder(
            name,
            directory / text,
            _rows_of(name),
            overlapping.get(name) or _damage(name, directory / text),
        )
        for text, name in names.items()
    )
    others = tuple(p.name for p in held if p.name not in names and p.is_dir())
    return PartFolders(directory, parts, others)


def _rows_of(name: PartName) -> str:
    """Return the partition of a part, or the partition that a patch part changes."""
    found = _PATCH.match(str(name.partition_id))
    return found["partition"] if found else str(name.partition_id)


def _damage(name: PartName, path: Path) -> str:
    """Return what is wrong with a part alone, as far as its folder shows it."""
    if _PATCH.match(str(name.partition_id)):
        return (
            f"the part {name} holds lightweight updates of its rows. Run ALTER TABLE ... APPLY "
            "PATCHES IN PARTITION on the server and copy the parts again"
        )
    if path.is_symlink():
        return (
            f"the part {name} is a symbolic link, which ClickHouse does not follow. Copy the folder"
        )
    return _damaged_checksums(name, path / _CHECKSUMS)


def _overlapping(names: Iterable[PartName]) -> dict[PartName, str]:
    """Return the parts whose blocks overlap with another part, each with the reason."""
    ordered = sorted(names, key=lambda n: (n.partition_id, n.low, -n.high, -n.level, -_mutation(n)))
    wrong = {}
    widest: PartName | None = None
    for name in ordered:
        if (
            widest is None
            or widest.partition_id != name.partition_id
            or widest.high < name.low
            or widest == name
        ):
            widest = name
            continue
        if _covers(widest, name):
            wrong[name] = (
                f"the part {name} is covered by {widest}, so that ClickHouse shows only the rows "
                f"of {widest}. If a merge or a mutation replaced it by that part, move {name} "
                "away; otherwise give each set of parts a separate directory"
            )
        else:
            wrong[name] = (
                f"the parts {widest} and {name} hold some of the same blocks, so they are not "
                "parts of one table at one time. Give each set of parts a separate directory"
            )
        widest = max(widest, name, key=lambda n: n.high)
    return wrong


def _covers(one: PartName, other: PartName) -> bool:
    """Whether a part's name shows that it was merged or mutated from another part."""
    return (
        one.low <= other.low
        and one.high >= other.high
        and one.level >= other.level
        and _mutation(one) >= _mutation(other)
    )


def _mutation(name: PartName) -> int:
    return name.mutation or 0


def _damaged_checksums(name: PartName, file: Path) -> str:
    if not file.is_file():
        return (
            f"the part {name} has no {_CHECKSUMS}, so that nothing in it can be checked. Copy it "
            "again"
        )
    with file.open("rb") as opened:
        begin = opened.read(len(_CHECKSUMS_BEGIN))
    if begin.startswith(_ENCRYPTED_BEGIN):
        return (
            f"the files of the part {name} are encrypted by the disk that they come from. Move "
            "the partition to a plain disk on the server and copy it again"
        )
    if begin != _CHECKSUMS_BEGIN:
        return (
            f"{_CHECKSUMS} of the part {name} is damaged, or only points to an object of an object "
            "storage disk. Copy the part again, from a plain disk"
        )
    return ""


def _refuse_backup(given: Path, directory: Path) -> None:
    """Refuse the directory of a BACKUP, which stores equal files of several parts only once."""
    for path in (directory, *directory.parents):
        if (path / _BACKUP).is_file():
            message = (
                f"Cannot read the parts in {given}: {path} is a backup, which stores equal files "
                "only once, or in another backup. Restore it first (RESTORE TABLE ... FROM ...) "
                "and name the data directory of the restored table."
            )
            raise RefusedError(message)


def _no_directory(given: Path) -> NotFoundError:
    what = "is a file; unpack it first" if given.exists() else "does not exist"
    return NotFoundError(
        f"Cannot read the parts in {given}: it {what}. Name the directory that holds the part "
        "folders, such as shadow/NAME/store/123/UUID of a FREEZE."
    )


def _several(given: Path, found: tuple[Path, ...]) -> RefusedError:
    return RefusedError(
        f"Cannot read the parts in {given}: {len(found)} directories below it hold parts: "
        f"{_some([str(p) for p in found])}. Name one of them; if they belong to one table on "
        "several disks, copy their parts into one directory first."
    )


def _nothing(given: Path, root: Path) -> RefusedError:
    if (root / _BACKUP).is_file():
        _refuse_backup(given, root)
    held = sorted(p.name for p in root.iterdir())
    what = f"it holds {_some(held)}" if held else "it is empty"
    return NotFoundError(
        f"Cannot read the parts in {given}: there is no part folder in it or below it; {what}. "
        "Name the directory that holds the part folders, such as shadow/NAME/store/123/UUID of a "
        "FREEZE."
    )


_STATED: Final = "mergeberg_statement"
"""The database in which a statement's table is described, apart from that of the table."""


def open_clickhouse(zone: str) -> Connection:
    """Start our own ClickHouse to open parts in.

    Args:
        zone: the time zone for keys and defaults, '' for this host's.

    Raises:
        UsageError: there is no such time zone.
        SourceError: ClickHouse does not start.
    """
    clickhouse = OwnClickHouse("parts")
    try:
        if zone:
            clickhouse.command(f"SET session_timezone = {quote_string(zone)}")
    except ClickHouseError as error:
        clickhouse.close()
        message = (
            f"Cannot use the time zone {zone!r}: {error.reason}. Name it as the server does that "
            "wrote the parts, for example &zone=Europe/Berlin."
        )
        raise UsageError(message, code=error.code) from error
    except BaseException:
        clickhouse.close()
        raise
    return clickhouse


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """Parts that are open as `table`: their folders, their statement, and the parts not loaded.

    `stated` is the statement's table if the parts had to be opened without default expressions that
    cannot be evaluated here and that no part needs; else None.
    """

    table: TableName
    definition: Definition
    folders: PartFolders
    missing: tuple[PartFolder, ...]
    stated: MergeTreeTable | None = None


def open_parts(
    connection: Connection, capabilities: Capabilities, settings: FrozenSettings, table: TableName
) -> OpenedParts:
    """Create the table over the directory, under its own name, and check which parts are loaded.

    Raises:
        NotFoundError: there are no parts, or the statement is another table's.
        RefusedError: the parts cannot be read, or the statement does not fit them.
        UsageError: the statement cannot be parsed.
        SourceError: ClickHouse does not open them, or loads none of them.
    """
    folders = find_folders(settings.directory)
    definition = read_definition(connection, settings.ddl_file)
    definition.check_name(table, settings.ddl_file)
    connection.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(table.database)}")
    try:
        stated = _open(connection, capabilities, definition, table, folders.directory)
    except ClickHouseError as error:
        message = (
            f"Cannot open the parts in {folders.directory} as {table}: {error.reason}. Check that "
            f"the statement in {settings.ddl_file} is that of the table when they were frozen."
        )
        raise RefusedError(message, code=error.code) from error
    loaded = _loaded(connection, table)
    listed = {str(folder.name) for folder in folders.parts}
    if foreign := sorted(loaded - listed):
        message = (
            f"Cannot read the parts in {folders.directory}: ClickHouse also loaded "
            f"{some(foreign)}. Another process writes there; name a directory that no process "
            "changes."
        )
        raise SourceError(message)
    missing = tuple(folder for folder in folders.parts if str(folder.name) not in loaded)
    if not loaded and not any(folder.damage for folder in folders.parts):
        raise _nothing_loaded(settings, definition, folders)
    return OpenedParts(table, definition, folders, missing, stated)


def check_unchanged(opened: OpenedParts) -> None:
    """Check that the directory has the same folders as when it was opened.

    Raises:
        SourceError: it does not.
    """
    before = {str(folder.name) for folder in opened.folders.parts}
    now = {str(folder.name) for folder in find_folders(opened.folders.directory).parts}
    if changed := sorted(before ^ now):
        message = (
            f"Cannot read the parts in {opened.folders.directory}: its folders changed while they "
            f"were read: {some(changed)}. Name a directory that no process changes."
        )
        raise SourceError(message)


def _open(
    connection: Connection,
    capabilities: Capabilities,
    definition: Definition,
    table: TableName,
    directory: Path,
) -> MergeTreeTable | None:
    """Create the table; return that of the statement if the table differs from it.

    Raises:
        ClickHouseError: it cannot be created.
    """
    try:
        connection.command(_create_sql(capabilities, definition, table, directory))
    except ClickHouseError as error:
        # Expressions may need functions or tables of the server, but the parts may not need them.
        with contextlib.suppress(ClickHouseError):
            return _open_bare(connection, capabilities, definition, table, directory)
        raise error from None
    return None


def _open_bare(
    connection: Connection,
    capabilities: Capabilities,
    definition: Definition,
    table: TableName,
    directory: Path,
) -> MergeTreeTable:
    """Create the table with only the expressions that its parts need; return the statement's table.

    Raises:
        ClickHouseError: a needed expression cannot be evaluated, or something else is wrong.
    """
    stated = TableName(_STATED, table.name)
    connection.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(_STATED)}")
    # ClickHouse evaluates no expression when it attaches a table.
    engine = staging_engine(replace(definition.engine, settings=()), ())
    connection.command(
        f"ATTACH TABLE {stated.sql} UUID {quote_string(str(uuid.uuid4()))}"
        f" ({definition.columns}) {engine}"
    )
    found = describe(connection, capabilities, stated)
    connection.command(f"DROP TABLE {stated.sql} SYNC")
    lacked: frozenset[str] = frozenset()
    while True:
        columns = column_list(columns_of_parts(found.columns, lacked))
        bare = replace(definition, columns=columns)
        connection.command(_create_sql(capabilities, bare, table, directory))
        parts = with_missing_columns(connection, table, list_parts(connection, capabilities, table))
        missing = frozenset(column for part in parts for column in part.lacks)
        if missing <= lacked:
            return found
        lacked = missing
        connection.command(f"DROP TABLE {table.sql} SYNC")


def _create_sql(
    capabilities: Capabilities, definition: Definition, table: TableName, directory: Path
) -> str:
    nothing = MergeTreeTable(table, "", "", definition.engine, (), "", "", "")
    opening = files_layout(nothing, capabilities).settings
    bare = replace(definition.engine, settings=())
    disk = plain_disk_sql(directory)
    engine = staging_engine(bare, (*opening, ("table_disk", "1"), ("disk", disk)))
    return f"CREATE TABLE {table.sql} ({definition.columns}) {engine}"


def _loaded(connection: Connection, table: TableName) -> frozenset[str]:
    """Return the parts that ClickHouse has loaded, empty and patch parts included."""
    return frozenset(
        texts(connection, f"SELECT name FROM system.parts WHERE active AND {of_table(table)}")
    )


def _nothing_loaded(
    settings: FrozenSettings, definition: Definition, folders: PartFolders
) -> SourceError:
    engine = definition.engine
    return SourceError(
        f"Cannot read the parts in {folders.directory}: ClickHouse loaded none of "
        f"{len(folders.parts)} under PARTITION BY {engine.partition_by or 'tuple()'} ORDER BY "
        f"{engine.order_by}, so they are damaged, or {settings.ddl_file} is not the statement of "
        "their table. Check its keys."
    )
