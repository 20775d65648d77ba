"""The tables in an object store: MinIO over TLS, in a catalog that Java's readers open, too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_ext.engine.java import find_java
from tests.readers.measure import Truth
from tests.readers.questions import filter_text
from tests.readers.recorded import OfReader
from tests.readers.store import ObjectStore
from tests.services.java_trust import trust_store
from tests.services.minio import MinIO
from tests.services.postgres import postgres
from tests.services.postgres_relay import Relay
from tests.support.s3_places import properties_of

__all__ = ["FarCatalog", "far_catalog", "of_questions"]

# The relay knows no other beginning of a connection.
_PLAIN = "sslmode=disable&gssEncMode=disable"


@dataclass(frozen=True, slots=True)
class FarCatalog:
    """A catalog as exports are configured, by PyIceberg's properties, and as readers are."""

    properties: dict[str, str]
    store: ObjectStore


@contextlib.contextmanager
def far_catalog(store: MinIO, directory: Path) -> Iterator[FarCatalog]:
    """Make an empty catalog in a database that runs for the time of a context.

    Args:
        store: has its warehouse, in a bucket of its own.
        directory: for what readers need as a file.
    """
    trusted = trust_store(find_java(os.environ).home, store.ca_file, directory / "trusted")
    with postgres() as server, Relay(server.socket) as relay:
        account = server.account()
        warehouse = f"s3://{store.make_bucket()}/wh"
        yield FarCatalog(
            {"uri": server.uri(account), "warehouse": warehouse, **properties_of(store)},
            ObjectStore(
                store.endpoint,
                store.region,
                store.access_key,
                store.secret_key,
                str(store.ca_file),
                str(trusted),
                f"jdbc:postgresql://127.0.0.1:{relay.port}/postgres?user={account}&{_PLAIN}",
            ),
        )


def of_questions(results: OfReader, truths: tuple[Truth, ...]) -> dict[str, dict[str, object]]:
    """Return what is recorded as wrong of these tables, columns and filters alone."""
    asked = {
        truth.table.name: {
            *(column.name for column in truth.table.columns),
            *(filter_text(of) for of, _ in truth.filters),
        }
        for truth in truths
    }
    found = {
        table: {one: result for one, result in wrong.items() if one in asked.get(table, ())}
        for table, wrong in results.wrong.items()
    }
    return {table: wrong for table, wrong in found.items() if wrong}
