"""FETCH from a directory of Parquet files in trouble: deaths, lost responses, files that change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.iceberg.table import IcebergTable
from catalog.rewriting.foreign_files import ForeignFiles, ParquetDirectory
from tableformat.committer import LakeTableState
from tableformat.effects import Effects, Step
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import StatementKind
from tableformat.names import PartitionId
from tableformat.operations.copy_from import Fetch, OtherKey
from tableformat.operations.statement import FileCopier
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.services.minio import MinIO
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake import Meddling
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    attach,
    drop,
    drop_detached,
    export_at,
    in_files,
    on,
    running,
)
from tests.support.scenarios import CLOCK, AtStep, Partitions, lake, row_of, rows_in_main
from tests.support.tiers import share_of
from tests.support.two_lake_tables import P1


@dataclass(frozen=True, slots=True)
class AllOfP1:
    """Says of every row that it lies in p1."""

    columns: tuple[str, ...] = ()

    def check(self, _state: LakeTableState) -> None:
        """Take any table."""

    def ids_in(self, _path: Path, _state: LakeTableState) -> frozenset[PartitionId]:
        return frozenset({PartitionId("p1")})


def prepared(directory: Path) -> None:
    """Make a table with p2 (3 rows) alone, and files of p1 (12 rows) outside of it."""
    in_files(directory)
    running(directory).run(drop("p1"))
    for name, rows in (("a", 7), ("b", 5)):
        put_there(directory / "there" / f"{name}.parquet", rows)


def put_there(path: Path, rows: int) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), path)


def fetch(
    directory: Path,
    place: str = "",
    *,
    effects: Effects | None = None,
    table: object = None,
    alive: bool = False,
) -> Outcome:
    """Fetch what is there, as a new process."""
    opened = cast("IcebergTable | None", table)
    ready = running(directory, effects=effects, table=opened, alive=alive)
    here = lake(directory)
    rows = cast("RowPartitions", AllOfP1())
    place = place or str(directory / "there")
    files = ParquetDirectory("Cannot", place, here.storages, here.load(), rows)
    found = files.files(P1.partition_id)
    # Also where nobody has exported p1.
    of = replace(row_of(directory, "p2").key, partition_id="p1")
    key = OtherKey(of, tuple(one.file for one in found))
    copies = ForeignFiles({one.file.path: one for one in found}, here.load(), here.storages)
    ready = replace(ready, ports=replace(ready.ports, writer=FileCopier(copies)))
    schema_id = here.load().layout.schema_id
    kind: Literal[StatementKind.FETCH_FROM_OUTSIDE] = StatementKind.FETCH_FROM_OUTSIDE
    return ready.run(Fetch(P1, f"'{place}'", kind, (key,), schema_id))


def rows_detached(directory: Path) -> int:
    table = lake(directory)
    return sum(f.rows for f in table.files_on(table.load(), "detached"))


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: rows that are detached in part, or twice, or visible."""
    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    assert fetch(tmp_path / "count", effects=counting).status is Status.FETCHED
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        prepared(directory)
        main = on(directory, "main")
        with pytest.raises(Dies):
            fetch(directory, effects=DiesAt(number, after=after))
        landed = rows_detached(directory) == 12
        assert landed or rows_detached(directory) == 0, step

        if landed:
            with pytest.raises(RefusedError, match="are detached here already"):
                fetch(directory)
        else:
            assert fetch(directory).status is Status.FETCHED, step

        assert rows_detached(directory) == 12, step
        assert on(directory, "main") == main, step
        assert running(directory).run(attach("p1")).status is Status.ATTACHED, step
        assert rows_in_main(directory) == 15, step
        assert left_behind(directory) == [], step


def test_a_lost_response_is_repaired(tmp_path: Path) -> None:
    prepared(tmp_path)
    deaf = Meddling(lake(tmp_path), lose=lambda n: n <= 2)

    assert fetch(tmp_path, table=deaf).status is Status.FETCHED

    assert rows_detached(tmp_path) == 12


def test_a_file_that_changed_since_it_was_looked_at_is_not_brought(tmp_path: Path) -> None:
    """Harm prevented: rows of another partition, which nobody looked at."""
    prepared(tmp_path)
    main = on(tmp_path, "main")
    other = AtStep(Step.CLAIM, lambda: put_there(tmp_path / "there" / "b.parquet", 4))

    done = fetch(tmp_path, effects=other)

    assert (done.status, rows_detached(tmp_path)) == (Status.FAILED, 0)
    assert "b.parquet: it was changed while it was copied (4 rows of 5 arrived)" in done.message
    assert on(tmp_path, "main") == main


def test_the_same_files_are_not_attached_twice(tmp_path: Path) -> None:
    """Harm prevented: every row of the partition is there twice."""
    prepared(tmp_path)
    fetch(tmp_path)
    running(tmp_path).run(attach("p1"))
    fetch(tmp_path)

    with pytest.raises(RefusedError, match="could be there twice"):
        running(tmp_path).run(attach("p1"))

    assert rows_in_main(tmp_path) == 15


def test_files_of_an_object_store_are_fetched(
    tmp_path: Path, minio_server: MinIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory, at any depth, or one file."""
    prepared(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", minio_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio_server.secret_key)
    monkeypatch.setenv("AWS_REGION", minio_server.region)
    monkeypatch.setenv("SSL_CERT_FILE", str(minio_server.ca_file))
    place = f"s3://{minio_server.make_bucket()}/put/there"
    for name in ("a", "b"):
        file = (tmp_path / "there" / f"{name}.parquet").read_bytes()
        lake(tmp_path).storages(place).put(f"{place}/{name}/{name}.parquet", file)

    with pytest.raises(NotFoundError, match="there is no Parquet file at"):
        fetch(tmp_path, f"{place}/nowhere")
    assert fetch(tmp_path, f"{place}/b/b.parquet").rows == 5
    drop_detached(tmp_path, P1)

    assert fetch(tmp_path, place).rows == 12

    assert rows_detached(tmp_path) == 12


def test_rows_of_a_partition_that_nobody_exported_are_known_to_a_new_ledger(
    tmp_path: Path,
) -> None:
    """Harm prevented: after the ledger is lost the whole table gets none, because of one FETCH."""
    source = Partitions()
    rows = source.by_id.pop("p1")
    export_at(tmp_path, source, CLOCK, IN_FILES)
    put_there(tmp_path / "there" / "a.parquet", 7)
    assert fetch(tmp_path).status is Status.FETCHED
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    lose(tmp_path)

    rebuilt(tmp_path)

    source.by_id["p1"] = rows
    ended = {k: o.status for k, o in export_at(tmp_path, source, LATER, IN_FILES).items()}
    assert ended == {"p1": Status.REFUSED, "p2": Status.UNCHANGED}
    assert rows_in_main(tmp_path) == 10
