"""What every reader makes of a table over S3 is what it makes of it in local files.

The store is a real one, over TLS, with an authority of its own. Here are a column of every type and
the partitions with texts of all kinds, all values and every tenth filter; `make readers
ARGS=over-s3` asks for everything, and asks Trino, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.readers import recorded
from tests.readers.each_engine import each_engine
from tests.readers.engines import Engine, Reader
from tests.readers.far import far_catalog, of_questions
from tests.readers.lake import open_lake
from tests.readers.measure import Truth, truth_of, wrong_filters, wrong_values
from tests.readers.store import ObjectStore
from tests.readers.tables import DIVIDED, EVERYTHING
from tests.services.minio import MinIO

RECORDED = recorded.load()
EVERY = 10
(TEXTS,) = (table for table in DIVIDED if table.name == "texts")

pytestmark = [
    pytest.mark.timeout(300),
    each_engine(pytest.mark.soak),
]


@dataclass(frozen=True, slots=True)
class FarWorld:
    """What ClickHouse says of the tables, and where readers find them."""

    truths: tuple[Truth, ...]
    store: ObjectStore


@pytest.fixture(scope="module")
def far_world(
    minio_server_of_session: MinIO, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FarWorld]:
    directory = tmp_path_factory.mktemp("far")
    with far_catalog(minio_server_of_session, directory) as far:
        with open_lake(directory, far.properties) as lake:
            truths = tuple(
                truth_of(lake, lake.make(table), every=EVERY) for table in (EVERYTHING, TEXTS)
            )
        assert all(truth.rows and truth.filters for truth in truths)
        yield FarWorld(truths, far.store)


def test_every_reader_has_the_same_results_over_s3_as_in_local_files(
    far_world: FarWorld, engine: Engine
) -> None:
    """Harm prevented: what was verified holds on one machine only, and a lake is in S3."""
    with Reader(engine, far_world.store) as reader:
        wrong = {
            truth.table.name: {
                w.asked: w.result
                for w in (*wrong_values(reader, truth), *wrong_filters(reader, truth))
            }
            for truth in far_world.truths
        }

    found = {table: results for table, results in wrong.items() if results}
    assert found == of_questions(RECORDED[engine.name], far_world.truths)
