"""Iceberg Java's own catalog behind PyIceberg's interface: what its REST server does, without one.

A commit goes, as the JSON that PyIceberg would send, through `CatalogHandlers.updateTable`, which
Iceberg's reference server calls for a request; the tables are in Iceberg's `InMemoryCatalog`. The
jar is Spark's Iceberg runtime (`tests/support/iceberg_runtime.py`). No Spark is started, only the
Java virtual machine that it begins with.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from spark_ext.engine.java import find_java
from tests.support.iceberg_runtime import check_runtime, runtime_settings

__all__ = ["JavaCatalog", "java_machine"]


@contextmanager
def java_machine() -> Iterator[Any]:
    """Start a Java virtual machine that has Iceberg; yield the access to its classes."""
    conf = runtime_settings("256m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf=SparkConf(loadDefaults=False).setAll([*conf.items()]),
            popen_kwargs={"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
        )
    try:
        check_runtime()
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


class JavaCatalog(NoopCatalog):
    """A handle on a Java catalog, as far as commits need it."""

    def __init__(self, name: str, jvm: Any, held: Any, warehouse: str) -> None:
        """Remember the machine, the Java catalog in it, and where tables are to be made."""
        super().__init__(name)
        self._jvm, self._held, self._warehouse = jvm, held, warehouse

    @classmethod
    def held_by(cls, jvm: Any, name: str) -> Any:
        """Make a Java catalog; any number of handles may share it."""
        made = jvm.org.apache.iceberg.inmemory.InMemoryCatalog()
        made.initialize(name, {})
        return made

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Make a namespace."""
        assert not properties
        self._held.createNamespace(
            self._name((*self.identifier_to_tuple(namespace), "t")).namespace()
        )

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Make a table without partitions."""
        assert isinstance(schema, Schema)
        assert partition_spec.is_unpartitioned()
        assert sort_order.is_unsorted
        assert not properties
        name = self._name(identifier)
        java_schema = self._jvm.org.apache.iceberg.SchemaParser.fromJson(schema.model_dump_json())
        place = location or f"{self._warehouse}/{name}"
        self._held.buildTable(name, java_schema).withLocation(place).create()
        return self.load_table(identifier)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table as Java has it now."""
        metadata = self._held.loadTable(self._name(identifier)).operations().current()
        location = metadata.metadataFileLocation()
        return Table(
            self.identifier_to_tuple(identifier),
            self._metadata(metadata),
            location,
            load_file_io({}, self._warehouse),
            self,
        )

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Hand a request to what Iceberg's reference server hands it to."""
        *namespace, name = table.name()
        asked = CommitTableRequest.model_validate(
            {
                "identifier": {"namespace": namespace, "name": name},
                "requirements": requirements,
                "updates": updates,
            }
        )
        rest = self._jvm.org.apache.iceberg.rest
        request = rest.requests.UpdateTableRequestParser.fromJson(asked.model_dump_json())
        made = rest.CatalogHandlers.updateTable(self._held, self._name(table.name()), request)
        metadata = made.tableMetadata()
        return CommitTableResponse.model_validate(
            {
                "metadata": self._metadata(metadata),
                "metadata-location": metadata.metadataFileLocation(),
            }
        )

    def _metadata(self, metadata: Any) -> Any:
        text = self._jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)
        return TableMetadataUtil.parse_raw(text)

    def _name(self, identifier: str | Identifier) -> Any:
        text = ".".join(self.identifier_to_tuple(identifier))
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(text)
