"""Resolves the table names of statements: to a table of a ClickHouse source or of the lake.

    ch.db.t          the table db.t of the source ch (spark.mergeberg.source.ch)
    db.t, t          a ClickHouse table only where an export's source is meant, only when Spark has
                     no table of that name, and of the default or only source; without a database
                     of the one that the source's setting says, `default` by default
    lake.ns.t        a table of the Iceberg catalog lake
    ns.t, t          a table of the current catalog, and of its current namespace; on the command
                     line, where nothing is current, only with --catalog, but as the destination
                     of an export one of lake and its namespace default
    hive.`uri`       a tree of Hive directories, where a destination of exports is meant

The rules are the same in every statement and in CALL; docs/reference/spark-sources.md lists them.
Parts with other characters than letters, digits and _ are in backticks or double quotes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from catalog.hive import tree_name
from catalog.sources import SourcePlace
from spark_ext.sql.session_settings import SOURCE, SessionSettings, SourceTable
from spark_ext.sql.statement_settings import nearest
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.messages import Option
from tableformat.names import HIVE, HiveName, LakeName, TableName, quote_identifier
from tableformat.quantities import counted

__all__ = ["Names", "Parts", "spark_name"]

Parts: TypeAlias = tuple[str, ...]
"""A name's parts, unquoted."""

_OF_SOURCE: Final = 3
_BARE: Final = 2


def spark_name(parts: Parts) -> str:
    """Return a name for Spark SQL, with every part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


@dataclass(frozen=True, slots=True)
class Names:
    """The name resolution of one session.

    `catalogs` are the names of the Iceberg catalogs, and `others` those of Spark's other catalogs.
    `current` is the current catalog followed by the current namespace; empty if no catalog is
    current. `table_exists` returns whether Spark has a table of that name. If no catalog is
    current, destinations of exports are resolved in `of_exports`; other statements, which can
    remove rows, are not.
    """

    settings: SessionSettings
    catalogs: frozenset[str]
    others: frozenset[str]
    current: Parts
    table_exists: Callable[[Parts], bool] = field(repr=False)
    of_exports: Parts = ()

    def source(self, parts: Parts) -> SourceTable:
        """Return the ClickHouse table that the source of an export names.

        Raises:
            UsageError: the name is ambiguous, or names nothing.
            NotFoundError: the session has no such source.
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
        """Return the table that a name of one or two parts has in a source."""
        database = parts[0] if len(parts) == _BARE else place.database
        return SourceTable(place, TableName(database, parts[-1]))

    def destination(self, parts: Parts) -> LakeName:
        """Return the destination of an export: a lake table or a Hive tree.

        Raises:
            UsageError: the name is that of a ClickHouse table, its catalog is not an Iceberg
                catalog, or it is not a valid location of a tree.
            NotFoundError: the first part is no catalog, and the current one is not Iceberg's.
        """
        if self.is_tree(parts):
            return tree_name(HiveName.at(parts[1]))
        completed = self if self.current else replace(self, current=self.of_exports)
        return completed.lake(parts)

    def lake(self, parts: Parts) -> LakeName:
        """Return the lake table that a statement names.

        Raises:
            UsageError: the name is that of a ClickHouse table, its catalog is not an Iceberg
                catalog, or a part is empty.
            NotFoundError: the first part is no catalog, and the current one is not Iceberg's.
            UnsupportedError: the name is that of a Hive tree (code 48).
        """
        self._check_not_both(parts)
        if any(not part.strip() for part in parts):
            raise self._unclear(parts, "a part of it is empty", "Write catalog.namespace.table")
        if self.is_tree(parts):
            message = (
                f"Cannot use hive.{quote_identifier(parts[1])} here: exports can go to trees of "
                "Hive directories, and be verified, cancelled, forgotten and cleaned up there, but "
                "no other statement supports them. Name an Iceberg table: catalog.namespace.table."
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
        """Return the table of a statement, in ClickHouse or in the lake.

        Raises:
            UsageError: the name is ambiguous, or names nothing.
        """
        return self.clickhouse_table(parts) or self.lake(parts)

    def clickhouse_table(self, parts: Parts) -> SourceTable | None:
        """Return the table of a name that begins with a source, else None.

        Raises:
            UsageError: the first part is also the name of a catalog.
        """
        self._check_not_both(parts)
        return self.settings.table_of(*parts) if self._is_of_source(parts) else None

    def other_catalog(self, parts: Parts) -> str | None:
        """Return the catalog of a name if it is not an Iceberg catalog, else None."""
        is_whole = len(parts) > _BARE and parts[0] not in self.others
        if self.is_tree(parts) or is_whole or not self.current:
            return None
        catalog = self._whole(parts)[0]
        return catalog if catalog in self.others and catalog not in self.catalogs else None

    def refuse_unknown(self, parts: Parts, what: str) -> None:
        """Raise an error for a missing lake table if the first part of its name is unknown.

        Spark takes an unknown first part for a namespace of the current catalog. So this is called
        only after the table was not found.

        Args:
            parts: the parts of the name.
            what: the action, for the error message, e.g. "clean up lake.n.t".

        Raises:
            NotFoundError: the first part is neither a source nor a catalog (code 60).
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
        """Whether the name is the address of a Hive tree: hive.`s3://bucket/dir`."""
        return len(parts) == _BARE and parts[0].lower() == HIVE and "/" in parts[1]

    def _is_of_source(self, parts: Parts) -> bool:
        return len(parts) == _OF_SOURCE and parts[0] in self.settings.sources

    def _whole(self, parts: Parts) -> Parts:
        """Return a name completed with catalog and namespace, by Spark's rules.

        Raises:
            UsageError: the name has no catalog, and no catalog is current.
        """
        if not self.current and len(parts) < _OF_SOURCE:
            why = "a table of the lake has its catalog in front"
            raise self._unclear(
                parts, why, f"Write catalog.namespace.table, or give {Option.CATALOG}"
            )
        match parts:
            case (name,):
                return (*self.current, name)
            case (first, *_) if first in self.catalogs | self.others or not self.current:
                return parts
            case _:
                return (self.current[0], *parts)

    def _check_not_both(self, parts: Parts) -> None:
        """Refuse a name whose first part is both a source and a catalog.

        Raises:
            UsageError: it is both.
        """
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
