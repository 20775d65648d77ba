"""Resolves the names in the arguments of a call, and opens catalogs and the ledger.

A lake table without a catalog in its name belongs to the catalog of the call
(`CALL lake.system.…`). The other rules are those of `spark_ext.sql.names`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.hive import HiveTable, OpenedTree
from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.shards import hosts_to_look_at
from catalog.sources import SourcePlace
from spark_ext.actions.exports import existing_table
from spark_ext.procedures.declarations import Call
from spark_ext.sql.catalogs import (
    names_of,
    open_destination_in,
    open_named,
    open_session_ledger,
)
from spark_ext.sql.names import Names, Parts
from spark_ext.sql.session_settings import SourceTable
from tableformat.errors import NotFoundError
from tableformat.ledger import Ledger
from tableformat.names import HiveName, LakeName, split_identifiers

__all__ = ["CallNames"]


@dataclass(frozen=True, slots=True)
class CallNames:
    """The name resolution of one call."""

    call: Call
    names: Names

    @classmethod
    def of(cls, call: Call) -> CallNames:
        """Return the name resolution of a call.

        Raises:
            UsageError: a mergeberg setting is malformed.
        """
        names = names_of(call.spark, call.conf, current=call.current)
        catalog, *namespace = names.current
        # The catalog of a call may have no tables, such as `mergeberg`.
        if call.catalog in names.catalogs and call.catalog != catalog:
            catalog, namespace = call.catalog, []
        return cls(call, replace(names, current=(catalog, *namespace)))

    def source(self, argument: str) -> SourceTable:
        """Return the ClickHouse table that an argument names.

        Raises:
            UsageError: the name is ambiguous, or names nothing.
            NotFoundError: the session has no such source.
        """
        given = self.call.source
        return self.names.source(self._parts(argument)) if given is None else given

    def lake(self, argument: str) -> LakeName:
        """Return the lake table that an argument names.

        Raises:
            UsageError: the name is that of a ClickHouse table, or its catalog is not an Iceberg
                catalog.
        """
        return self.names.lake(self._parts(argument))

    def destination(self, argument: str) -> LakeName:
        """Return the destination that an argument names: a lake table, or a Hive tree (hive.`uri`).

        Raises:
            UsageError: the name is that of a ClickHouse table, its catalog is not an Iceberg
                catalog, or it is not a valid location of a tree.
        """
        return self.names.destination(self._parts(argument))

    def end(self, argument: str) -> SourceTable | LakeName:
        """Return the source table or the destination of exports that an argument names.

        Raises:
            UsageError: the name is ambiguous, or names nothing.
        """
        parts = self._parts(argument)
        return self.names.clickhouse_table(parts) or self.names.destination(parts)

    def table(self, argument: str) -> SourceTable | LakeName:
        """Return the ClickHouse table or lake table that an argument names.

        Raises:
            UsageError: the name is ambiguous, or names nothing.
        """
        return self.names.table(self._parts(argument))

    def hosts(self, argument: str, *, cluster: str | None) -> tuple[SourcePlace, ...]:
        """Return the hosts of the source, or of the source table, that an argument names.

        Args:
            argument: the argument; its value is `source`, `source.database.table`, or NULL for
                no host.
            cluster: the cluster whose hosts are returned; None for the hosts of the address.

        Raises:
            NotFoundError: there is no such source or cluster.
            SourceError: the hosts of the cluster cannot be read.
        """
        if self.call.text_or_none(argument) is None:
            return ()
        parts = self._parts(argument)
        settings = self.names.settings
        if len(parts) == 1:
            # `table_of` needs a table, and system.tables exists in every ClickHouse.
            place = settings.table_of(parts[0], "system", "tables").place
            return hosts_to_look_at(place, cluster=cluster)
        named = self.names.source(parts)
        return hosts_to_look_at(named.place, cluster=cluster, table=named.table)

    def open(self, name: LakeName) -> OpenedCatalog:
        """Open the catalog of a lake table.

        Raises:
            NotFoundError: there is no catalog of that name.
            UnsupportedError: a setting of Spark's catalog has no counterpart in PyIceberg.
        """
        return open_named(name.catalog, self.call.conf)

    def open_destination(
        self, name: LakeName, *, looks_only: bool = False
    ) -> OpenedCatalog | OpenedTree:
        """Open the catalog of a destination, or its Hive tree.

        Args:
            name: the destination.
            looks_only: whether the caller only reads.

        Raises:
            NotFoundError: there is no such catalog.
            TableFormatError: the catalog or the tree cannot be opened.
        """
        return open_destination_in(self.call.conf, name, looks_only=looks_only)

    def existing_destination(
        self, argument: str, name: LakeName, what: str, *, grace: int | None = None
    ) -> IcebergTable | HiveTable:
        """Return a lake table or Hive tree that must exist; a tree is opened for reading only.

        Args:
            argument: the argument that names it.
            name: the destination.
            what: the action, for the error message, e.g. "clean up lake.n.t".
            grace: milliseconds for which replaced files of a tree stay; None for the default.

        Raises:
            NotFoundError: the table, the tree or the catalog does not exist.
            TableFormatError: it cannot be opened or read.
        """
        if not isinstance(name, HiveName):
            return self.existing(argument, name, what)
        opened = self.open_destination(name, looks_only=True)
        if isinstance(opened, OpenedTree) and grace is not None:
            opened = replace(opened, grace=grace)
        return existing_table(opened, name, what)

    def existing(self, argument: str, name: LakeName, what: str) -> IcebergTable:
        """Return a lake table that must exist.

        Args:
            argument: the argument that names it.
            name: the lake table.
            what: the action, for the error message, e.g. "clean up lake.n.t".

        Raises:
            NotFoundError: the table or the catalog does not exist.
            TableFormatError: the catalog cannot be opened or read.
        """
        catalog = self.open(name)
        try:
            return existing_table(catalog, name, what)
        except NotFoundError:
            self.names.refuse_unknown(self._parts(argument), what)
            raise

    def open_ledger(self, name: LakeName | None = None) -> Ledger:
        """Open the ledger of exports; the caller closes it.

        Args:
            name: the lake table or Hive tree of the exports; None for the ledger of the system
                tables.

        Raises:
            UsageError: the session names no ledger, and the warehouse is not on a local disk.
            LedgerError: the ledger cannot be opened.
        """
        if isinstance(name, HiveName):
            return open_session_ledger(self.call.conf, name)
        catalog = LOCAL_CATALOG if name is None else name.catalog
        return open_session_ledger(self.call.conf, catalog)

    def _parts(self, argument: str) -> Parts:
        return split_identifiers(self.call.text(argument))
