"""Files that tasks digest have the digest that this process computes, and the same errors.

docs/operating/verify.md. Both readers and the files are real. What a task gets is pickled as for an
executor; tests/spark_ext/test_verifying_in_tasks.py runs it on a real Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.rows.digests import FileDigests
from catalog.rewriting import second_reader
from catalog.storages.schemes import Storages
from spark_ext.actions.verify import DigestsInTasks
from spark_ext.engine.tasks import send_rows
from tableformat.committer import FileInMain
from tableformat.errors import DestinationError, SourceError, UnsupportedError
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.mergetree.digest_sql import DigestColumn, empty_digest
from tableformat.mergetree.types import parse_type
from tests.strategies.mapping import Sample, samples
from tests.support.digested_files import ALLOWED, SAMPLE_ROWS, digested, in_main
from tests.support.embedded_clickhouse import EmbeddedClickHouse
from tests.support.other_hosts import DigestingHosts, digesting_hosts, digests_in_tasks

SCHEMA = Schema(NestedField(1, "n", LongType(), required=True))
COLUMNS = (DigestColumn("n", "", parse_type("Int64"), "Int64"),)
NOWHERE = FileInMain("oss://b/x.parquet", 1, deletes=False)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> DigestingHosts:
    """Let others run what tasks would run."""
    return digesting_hosts(monkeypatch)


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run(*(f"SET {name} = 1" for name in ALLOWED))
        yield started


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedConnection]:
    with EmbeddedConnection(tmp_path_factory.mktemp("clickhouse"), create=True) as opened:
        for name in ALLOWED:
            opened.command(f"SET {name} = 1")
        yield opened


@settings(max_examples=8)
@given(columns=st.lists(samples(rows=SAMPLE_ROWS), min_size=1, max_size=6), cuts=st.integers(1, 4))
def test_files_of_any_types_have_the_same_digest_here_and_in_tasks(
    clickhouse: EmbeddedClickHouse,
    connection: EmbeddedConnection,
    tmp_path_factory: pytest.TempPathFactory,
    columns: list[Sample],
    cuts: int,
) -> None:
    """Harm prevented: a verdict, or a kept digest, that depends on where files were read."""
    directory = tmp_path_factory.mktemp("files")
    files, expected = digested(clickhouse, connection, columns, cuts, directory)
    with pytest.MonkeyPatch.context() as patch, FileDigests() as here, digests_in_tasks() as there:
        digesting_hosts(patch)

        found = there.digest(files)

        assert found == here.digest(files)
    assert expected.differences(found) == ()


def numbers(directory: Path, *values: list[int]) -> FilesToDigest:
    """Write a file of each list."""
    of = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})
    found = []
    for some in values:
        path = directory / f"{len(list(directory.iterdir()))}.parquet"
        pq.write_table(pa.table([pa.array(some)], pa.schema([of])), path)
        found.append(in_main(str(path)))
    return FilesToDigest(tuple(found), SCHEMA, COLUMNS)


def test_partitions_are_read_in_one_job_and_each_row_is_reported_once(
    hosts: DigestingHosts, tmp_path: Path
) -> None:
    partitions = [numbers(tmp_path, [1, 2], [3]), numbers(tmp_path, [4]), numbers(tmp_path)]
    late = numbers(tmp_path, [5])
    reported: list[int] = []

    with FileDigests() as here, digests_in_tasks(reported.append) as there:
        there.read_ahead(partitions)
        found = [there.digest(one) for one in (*partitions, late)]

        assert found == [here.digest(one) for one in (*partitions, late)]
    assert hosts.jobs == [3, 1]
    assert sum(reported) == 5
    assert all(more > 0 for more in reported)


def test_rows_are_reported_also_while_the_caller_reads_the_source(
    hosts: DigestingHosts, tmp_path: Path
) -> None:
    """Harm prevented: a progress line that stands still for the time of the source's digest."""
    reported, is_reported = list[int](), threading.Event()

    def on_rows(more: int) -> None:
        reported.append(more)
        is_reported.set()

    with digests_in_tasks(on_rows) as there:
        there.read_ahead([numbers(tmp_path, [1, 2, 3])])
        send_rows(hosts.works[0].progress, 0, 2)
        assert is_reported.wait(60)

    assert reported == [2]


def test_a_file_that_cannot_be_read_costs_only_its_own_partition(
    hosts: DigestingHosts, tmp_path: Path
) -> None:
    good, bad = numbers(tmp_path, [1]), numbers(tmp_path, [2], [3], [4])
    Path(bad.files[1].path).write_bytes(b"PAR1 damaged")

    with FileDigests() as here, digests_in_tasks() as there:
        there.read_ahead([bad, good])
        with pytest.raises(DestinationError) as in_task:
            there.digest(bad)
        with pytest.raises(DestinationError) as alone:
            here.digest(bad)

        assert there.digest(good) == here.digest(good)
    assert str(in_task.value) == str(alone.value)
    assert "the file cannot be read" in str(alone.value)
    assert hosts.jobs == [4]


def test_two_readers_that_do_not_agree_in_a_task_are_not_silent(
    hosts: DigestingHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = second_reader._total
    monkeypatch.setattr(second_reader, "_total", lambda values, of: real(values, of) + 1)

    with (
        digests_in_tasks() as there,
        pytest.raises(DestinationError, match=r"6 by ClickHouse, 7 by pyar"),
    ):
        there.digest(numbers(tmp_path, [1, 2, 3]))
    assert hosts.jobs == [1]


def test_a_job_that_fails_is_the_reason_of_each_of_its_partitions(
    hosts: DigestingHosts, tmp_path: Path
) -> None:
    hosts.fails = SourceError("Cannot verify the lake's files: no executor is left. Run again.")
    one, other = numbers(tmp_path, [1]), numbers(tmp_path, [2])

    with digests_in_tasks() as there:
        there.read_ahead([one, other])
        for wanted in (one, other):
            with pytest.raises(SourceError, match="no executor is left"):
                there.digest(wanted)
    assert hosts.jobs == [2]


@pytest.mark.usefixtures("hosts")
def test_files_that_no_storage_serves_are_refused_when_they_are_read(tmp_path: Path) -> None:
    """Harm prevented: all partitions of a table fail because of one."""
    good = numbers(tmp_path, [1])
    elsewhere = replace(good, files=(NOWHERE,))

    with digests_in_tasks() as there:
        there.read_ahead([elsewhere, good])
        with pytest.raises(UnsupportedError, match=r"Cannot use oss://b/x.parquet: storage of the"):
            there.digest(elsewhere)

        assert there.digest(good).rows == 1


def test_leaving_cancels_a_job_whose_result_is_not_needed(
    hosts: DigestingHosts, tmp_path: Path
) -> None:
    with digests_in_tasks() as there:
        there.read_ahead([numbers(tmp_path, [1])])

    assert (hosts.jobs, hosts.closed) == ([1], 1)


def test_files_that_are_not_worth_a_job_are_read_by_this_process(
    hosts: DigestingHosts, tmp_path: Path
) -> None:
    wanted = numbers(tmp_path, [1], [2])

    with DigestsInTasks(Storages(), lambda _: None) as digests:
        digests.read_ahead([wanted])

        assert digests.digest(wanted).rows == 2
        assert digests.digest(replace(wanted, files=())) == empty_digest(COLUMNS)
    assert hosts.jobs == []
