"""What the arguments of a call name: tables of either side, sources, and the ledger of exports.

A name of the lake that says no catalog is of the catalog that the call was made in
(`CALL lake.system.…`); the rest is as everywhere (`spark_ext.sql.names`).
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
    """The names that stand in the arguments of a call."""

    call: Call
    names: Names

    @classmethod
    def of(cls, call: Call) -> CallNames:
        """Return how a call's names are looked up.

        Raises:
            UsageError: a setting of ours is malformed.
        """
        names = names_of(call.spark, call.conf, current=call.current)
        catalog, *namespace = names.current
        # A call may be made in a catalog that holds no tables, such as `mergeberg`.
        if call.catalog in names.catalogs and call.catalog != catalog:
            catalog, namespace = call.catalog, []
        return cls(call, replace(names, current=(catalog, *namespace)))

    def source(self, argument: str) -> SourceTable:
        """Return the ClickHouse table that an argument names.

        Raises:
            UsageError: it may mean several things, or none.
            NotFoundError: there is no such source.
        """
        given = self.call.source
        return self.names.source(self._parts(argument)) if given is None else given

    def lake(self, argument: str) -> LakeName:
        """Return the lake table that an argument names.

        Raises:
            UsageError: it is a ClickHouse's, or its catalog is no Iceberg catalog.
        """
        return self.names.lake(self._parts(argument))

    def destination(self, argument: str) -> LakeName:
        """Return what exports go to by an argument: a lake table, or hive.`uri`, a tree.

        Raises:
            UsageError: it is a ClickHouse's, its catalog is no Iceberg catalog, or it is no place
                of a tree.
        """
        return self.names.destination(self._parts(argument))

    def end(self, argument: str) -> SourceTable | LakeName:
        """Return the end of exports that an argument names: a ClickHouse table or a destination.

        Raises:
            UsageError: it may mean several things, or none.
        """
        parts = self._parts(argument)
        return self.names.clickhouse_table(parts) or self.names.destination(parts)

    def table(self, argument: str) -> SourceTable | LakeName:
        """Return the table of either side that an argument names.

        Raises:
            UsageError: it may mean several things, or none.
        """
        return self.names.table(self._parts(argument))

    def hosts(self, argument: str, *, cluster: str | None) -> tuple[SourcePlace, ...]:
        """Return the hosts of the source, or of the table of a source, that an argument names.

        Args:
            argument: `source`, or `source.database.table`; NULL for no host.
            cluster: of which every host is meant, None for those of the address.

        Raises:
            NotFoundError: there is no such source, or no such cluster.
            SourceError: its cluster cannot be asked for.
        """
        if self.call.text_or_none(argument) is None:
            return ()
        parts = self._parts(argument)
        settings = self.names.settings
        if len(parts) == 1:
            # A source is told of by its tables, and this one is in every ClickHouse.
            place = settings.table_of(parts[0], "system", "tables").place
            return hosts_to_look_at(place, cluster=cluster)
        named = self.names.source(parts)
        return hosts_to_look_at(named.place, cluster=cluster, table=named.table)

    def open(self, name: LakeName) -> OpenedCatalog:
        """Open the catalog of a lake table.

        Raises:
            NotFoundError: there is none of that name.
            UnsupportedError: Spark has it with a setting that cannot be translated.
        """
        return open_named(name.catalog, self.call.conf)

    def open_destination(
        self, name: LakeName, *, looks_only: bool = False
    ) -> OpenedCatalog | OpenedTree:
        """Open the catalog of a destination, or its tree.

        Args:
            name: as `destination` returned it.
            looks_only: whether nothing is to be written.

        Raises:
            NotFoundError: there is no such catalog.
            TableFormatError: it cannot be reached.
        """
        return open_destination_in(self.call.conf, name, looks_only=looks_only)

    def existing_destination(
        self, argument: str, name: LakeName, what: str, *, grace: int | None = None
    ) -> IcebergTable | HiveTable:
        """Return what exports went to, which is only looked at; else as `existing`.

        Args:
            argument: that names it.
            name: as it was read.
            what: cannot be done when there is none, e.g. "clean up lake.n.t".
            grace: milliseconds that replaced files of a tree stay, None for the default.

        Raises:
            NotFoundError: there is no such table or tree, or no such catalog.
            TableFormatError: it cannot be opened, or not read.
        """
        if not isinstance(name, HiveName):
            return self.existing(argument, name, what)
        opened = self.open_destination(name, looks_only=True)
        if isinstance(opened, OpenedTree) and grace is not None:
            opened = replace(opened, grace=grace)
        return existing_table(opened, name, what)

    def existing(self, argument: str, name: LakeName, what: str) -> IcebergTable:
        """Return a lake table that has to be there.

        Args:
            argument: that names it.
            name: as it was read.
            what: cannot be done when there is none, e.g. "clean up lake.n.t".

        Raises:
            NotFoundError: there is no such table, or no such catalog.
            TableFormatError: the catalog cannot be opened, or not read.
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
            name: a lake table, whose catalog counts, or a tree; None for the ledger that the system
                tables tell of.

        Raises:
            UsageError: none is named, and there is no place beside the warehouse.
            LedgerError: it cannot be opened.
        """
        if isinstance(name, HiveName):
            return open_session_ledger(self.call.conf, name)
        catalog = LOCAL_CATALOG if name is None else name.catalog
        return open_session_ledger(self.call.conf, catalog)

    def _parts(self, argument: str) -> Parts:
        return split_identifiers(self.call.text(argument))
