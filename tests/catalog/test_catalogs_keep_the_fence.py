"""Every kind of catalog that tests can run keeps what the commit protocol stands on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate

from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from conformance.suites.catalog import catalog_promises
from tests.lying_catalog.server import PATIENT, LyingCatalog
from tests.services.java_catalog import JavaCatalog, java_machine
from tests.services.rest_server import RestServer, rest_server
from tests.services.s3proxy import s3proxy
from tests.support.s3_places import properties_of

_STACK = ExitStack()


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    """Close what the catalogs of this file hold, before the process ends."""
    yield
    _STACK.close()
    for made in (_directory, _served, _in_memory, _java, _in_java, _server, _on_server):
        made.cache_clear()


@cache
def _directory() -> Path:
    made = tempfile.TemporaryDirectory(prefix="mergeberg-catalogs-")
    return Path(_STACK.enter_context(made))


def _local(name: str) -> Catalog:
    return open_catalog("lake", warehouse=_directory() / name).catalog


@cache
def _served(name: str) -> LyingCatalog:
    return _STACK.enter_context(LyingCatalog(_directory() / name))


def _rest(name: str) -> Catalog:
    return _served(name).opened().catalog


@cache
def _in_memory(name: str) -> Catalog:
    return InMemoryCatalog(name, (_directory() / name).as_uri())


class _WithoutFence(InMemoryCatalog):
    """Gives every snapshot the next sequence number, whatever it was staged with."""

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        now = self.load_table(table.name()).metadata
        assert not isinstance(now, TableMetadataV1)
        number = now.last_sequence_number + 1
        renumbered: list[TableUpdate] = []
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                numbered = update.snapshot.model_copy(update={"sequence_number": number})
                renumbered.append(update.model_copy(update={"snapshot": numbered}))
            else:
                renumbered.append(update)
        return super().commit_table(table, requirements, tuple(renumbered))


class _WithoutRequirements(InMemoryCatalog):
    """Applies what it is sent."""

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        return super().commit_table(table, requirements[:0], updates)


class _InSteps(InMemoryCatalog):
    """Applies one update after the other."""

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        for number, update in enumerate(updates):
            made = super().commit_table(table, requirements if number == 0 else (), (update,))
        return made


@cache
def _java() -> Any:
    return _STACK.enter_context(java_machine())


@cache
def _in_java(name: str) -> Any:
    return JavaCatalog.held_by(_java(), name)


def _iceberg_java(name: str) -> Catalog:
    return JavaCatalog(name, _java(), _in_java(name), (_directory() / name).as_uri())


@cache
def _server() -> RestServer:
    return _STACK.enter_context(rest_server(_STACK.enter_context(s3proxy())))


@cache
def _on_server(name: str) -> OpenedCatalog:
    """Return the server's one catalog, empty for each new name."""
    server = _server()
    properties = {**server.properties, **properties_of(server.store)}
    opened = OpenedCatalog(name, None, properties, PATIENT)
    catalog = opened.catalog
    for namespace in catalog.list_namespaces():
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        catalog.drop_namespace(namespace)
    catalog.close()
    return opened


def _iceberg_server(name: str) -> Catalog:
    return _on_server(name).catalog


TestTheBuiltInCatalog = catalog_promises(_local)
TestARestCatalog = catalog_promises(_rest)
TestACatalogInMemory = catalog_promises(_in_memory, at_once=False)
TestIcebergJava = pytest.mark.spark(catalog_promises(_iceberg_java))
TestIcebergsRestServer = pytest.mark.spark(catalog_promises(_iceberg_server))


@pytest.mark.parametrize(
    ("broken", "promise", "complaint"),
    [
        (_WithoutFence, "test_the_fence", "applied: main is the parent again"),
        (_WithoutFence, "test_the_fence_after_an_expiry", "applied: the snapshot that passed"),
        (_WithoutRequirements, "test_a_first_snapshot_that_comes_second", "applied: main"),
        (_WithoutRequirements, "test_a_schema_is_changed_once", "applied: the schema"),
        (_InSteps, "test_one_update_that_is_impossible_refuses_everything", "changed all the same"),
    ],
)
def test_a_catalog_that_breaks_a_promise_is_found(
    broken: type[InMemoryCatalog], promise: str, complaint: str
) -> None:
    """Harm prevented: a suite that every catalog passes."""
    opened = cache(lambda name: broken(name, (_directory() / name).as_uri()))
    suite = catalog_promises(opened, at_once=False)()
    suite.setup_method()

    with pytest.raises(AssertionError, match=complaint):
        getattr(suite, promise)()

    suite.teardown_method()
