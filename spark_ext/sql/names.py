"""What a table's name in a statement means: a table of a ClickHouse, or one of the lake.

    ch.db.t          the table db.t of the source ch (spark.mergeberg.source.ch)
    db.t, t          a ClickHouse table only where an export's source is meant, only when Spark has
                     no table of that name, and of the default or only source; without a database
                     of the one that the source's setting says, `default` by default
    lake.ns.t        a table of the Iceberg catalog lake
    ns.t, t          a table of the current catalog, and of its current namespace; on the command
                     line, where nothing is current, only with --catalog, but as the destination
                     of an export one of lake and its namespace default
    hive.`uri`       a tree of Hive directories, where a destination of exports is meant

Names are the same in every statement and every argument of CALL; docs/reference/spark-sources.md
lists them. Parts stand in backticks or double quotes where they have other characters than
letters, digits and _.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from catalog.hive import tree_name
from catalog.sources import SourcePlace
from spark_ext.sql.session_settings import SessionSettings, SourceTable
from spark_ext.sql.source_settings import SOURCE, nearest
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.names import HIVE, HiveName, LakeName, TableName, quote_identifier
from tableformat.quantities import counted

__all__ = ["Names", "Parts", "spark_name"]

Parts: TypeAlias = tuple[str, ...]
"""A name's parts, unquoted."""

_OF_SOURCE: Final = 3
_BARE: Final = 2


def spark_name(parts: Parts) -> str:
    """Return a name as Spark reads it, in backticks whatever it holds."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


@dataclass(frozen=True, slots=True)
class Names:
    """Where names of one session are looked up.

    `catalogs` are the names of the Iceberg catalogs that there are, `others` those of Spark's other
    ones; `current` is the session's catalog and then its namespace, empty where no catalog is
    current; `table_exists` says whether Spark has a table of such a name. Where no catalog is
    current, `of_exports` is taken for one in the destinations of exports, which take no row out.
    """

    settings: SessionSettings
    catalogs: frozenset[str]
    others: frozenset[str]
    current: Parts
    table_exists: Callable[[Parts], bool] = field(repr=False)
    of_exports: Parts = ()

    def source(self, parts: Parts) -> SourceTable:
        """Return the ClickHouse table that an export's source names.

        Raises:
            UsageError: it may mean several things, or none.
            NotFoundError: there is no such source.
        """
        if len(parts) == _OF_SOURCE:
            self._check_not_both(parts)
            if parts[0] not in self.catalogs | self.others:
                return self.settings.table_of(*parts)
            why = f"{parts[0]!r} is a catalog of Spark's, and an export is from a ClickHouse"
            raise self._unclear(parts, why, "Write source.database.table")
        if len(parts) > _BARE:
            why = f"it has {counted(len(parts), 'part')}"
            raise self._unclear(parts, why, "Write source.database.table")
        if len(parts) == 1 and parts[0] in self.settings.sources:
            why = "it is the name of a source, and a table of it is meant"
            raise self._unclear(parts, why, "Write source.database.table")
        if self.table_exists(parts):
            why = "Spark has a table of that name"
            raise self._unclear(parts, why, "Write source.database.table for the ClickHouse table")
        source = self.settings.default_source
        if source is None:
            what = f"Write source.database.table, or set {SOURCE}default to a source's name"
            raise self._unclear(parts, "it names no source", what)
        return self.bare(self.settings.sources[source], parts)

    @staticmethod
    def bare(place: SourcePlace, parts: Parts) -> SourceTable:
        """Return the table of a source that a name of one or two parts is there."""
        database = parts[0] if len(parts) == _BARE else place.database
        return SourceTable(place, TableName(database, parts[-1]))

    def destination(self, parts: Parts) -> LakeName:
        """Return what exports go to: a lake table, or a tree of Hive directories.

        Raises:
            UsageError: it is a ClickHouse's, its catalog is no Iceberg catalog, or it is no place
                of a tree.
            NotFoundError: its first part is no catalog, and the current one is not Iceberg's.
        """
        if self.is_tree(parts):
            return tree_name(HiveName.at(parts[1]))
        completed = self if self.current else replace(self, current=self.of_exports)
        return completed.lake(parts)

    def lake(self, parts: Parts) -> LakeName:
        """Return the lake table that a statement names.

        Raises:
            UsageError: it is a ClickHouse's, its catalog is no Iceberg catalog, or a part of it is
                empty.
            NotFoundError: its first part is no catalog, and the current one is not Iceberg's.
            UnsupportedError: it is a tree of Hive directories (code 48).
        """
        self._check_not_both(parts)
        if any(not part.strip() for part in parts):
            raise self._unclear(parts, "a part of it is empty", "Write catalog.namespace.table")
        if self.is_tree(parts):
            message = (
                f"Cannot use hive.{quote_identifier(parts[1])} here: exports go to trees of Hive "
                "directories and are verified, cancelled, forgotten and cleaned up there, no other "
                "statement knows them. Name an Iceberg table: catalog.namespace.table."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        if self._is_of_source(parts):
            why = f"{parts[0]!r} is a source, and a table of the lake is meant here"
            raise self._unclear(parts, why, "Write catalog.namespace.table")
        catalog, *rest = self._whole(parts)
        if catalog not in self.catalogs:
            self.refuse_unknown(parts, f"find the table {_shown(parts)}")
            why = f"the catalog {catalog!r} is no Iceberg catalog"
            raise self._unclear(parts, why, "Write catalog.namespace.table")
        if len(rest) < _BARE:
            why = "it has no namespace"
            raise self._unclear(parts, why, "Write catalog.namespace.table")
        return LakeName(catalog, tuple(rest[:-1]), rest[-1])

    def table(self, parts: Parts) -> SourceTable | LakeName:
        """Return the table that a statement is about, where it may be of either side.

        Raises:
            UsageError: it may mean several things, or none.
        """
        return self.clickhouse_table(parts) or self.lake(parts)

    def clickhouse_table(self, parts: Parts) -> SourceTable | None:
        """Return the table of a source that a name with a source in front names, else None.

        Raises:
            UsageError: its first part is a catalog's name, too.
        """
        self._check_not_both(parts)
        return self.settings.table_of(*parts) if self._is_of_source(parts) else None

    def other_catalog(self, parts: Parts) -> str | None:
        """Return the catalog of a name when it is one of Spark's others, else None."""
        is_whole = len(parts) > _BARE and parts[0] not in self.others
        if self.is_tree(parts) or is_whole or not self.current:
            return None
        catalog = self._whole(parts)[0]
        return catalog if catalog in self.others and catalog not in self.catalogs else None

    def refuse_unknown(self, parts: Parts, what: str) -> None:
        """Refuse the name of a lake table that is not there, if its first part names nothing.

        As Spark has it such a part is a namespace of the current catalog, so that this is known
        only once there is no such table.

        Args:
            parts: of the name.
            what: cannot be done without the table, e.g. "clean up lake.n.t".

        Raises:
            NotFoundError: neither a source nor a catalog has the name of its first part (code 60).
        """
        first = parts[0]
        known = self.settings.sources.keys() | self.catalogs | self.others
        if len(parts) < _OF_SOURCE or first in known:
            return
        message = (
            f"Cannot {what}: there is no such lake table, and neither a source nor a catalog is "
            f"called {first!r}; {self._listed()}. {nearest(first, known)}Set {SOURCE}{first} to "
            f"the address of a ClickHouse, or spark.sql.catalog.{first} to an Iceberg catalog."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)

    @staticmethod
    def is_tree(parts: Parts) -> bool:
        """Whether it is a directory's address, as Spark names files: hive.`s3://bucket/dir`."""
        return len(parts) == _BARE and parts[0].lower() == HIVE and "/" in parts[1]

    def _is_of_source(self, parts: Parts) -> bool:
        return len(parts) == _OF_SOURCE and parts[0] in self.settings.sources

    def _whole(self, parts: Parts) -> Parts:
        """Return a name with its catalog and namespace, as Spark completes it.

        Raises:
            UsageError: it has no catalog, and none is current.
        """
        if not self.current and len(parts) < _OF_SOURCE:
            why = "a table of the lake has its catalog in front"
            raise self._unclear(parts, why, "Write catalog.namespace.table, or give --catalog")
        match parts:
            case (name,):
                return (*self.current, name)
            case (first, *_) if first in self.catalogs | self.others or not self.current:
                return parts
            case _:
                return (self.current[0], *parts)

    def _check_not_both(self, parts: Parts) -> None:
        """Refuse a name whose first part is a source and a catalog: nobody could tell which."""
        first = parts[0]
        both = self.settings.sources.keys() & (self.catalogs | self.others)
        if len(parts) >= _OF_SOURCE and first in both:
            why = f"{first!r} is a source and a catalog of Spark's"
            raise self._unclear(parts, why, f"Give the source another name than {SOURCE}{first}")

    def _unclear(self, parts: Parts, why: str, what: str) -> UsageError:
        return UsageError(f"Cannot tell what {_shown(parts)} is: {why}; {self._listed()}. {what}.")

    def _listed(self) -> str:
        known = ", ".join(sorted(self.catalogs)) or "none"
        return f"{self.settings.listed()}, and the catalogs {known}"


def _shown(parts: Parts) -> str:
    if len(parts) > _BARE:
        return str(LakeName(parts[0], parts[1:-1], parts[-1]))
    return str(TableName(*parts)) if len(parts) == _BARE else parts[0]
