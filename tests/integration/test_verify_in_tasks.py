"""Partitions that tasks read have the verdicts that this process finds.

docs/operating/verify.md. ClickHouse, task code, catalog, ledger and files are the real ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from catalog.clickhouse.rows.digests import FileDigests
from catalog.clickhouse.source import ClickHouseSource
from tableformat.export.verification import Comparison, Verdict
from tableformat.names import TableName
from tableformat.source import SourceSnapshot
from tests.support.damaged_files import lose_a_row, lose_the_end
from tests.support.other_hosts import DigestingHosts, digesting_hosts, digests_in_tasks
from tests.support.real_export import RealExport


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> DigestingHosts:
    return digesting_hosts(monkeypatch)


def in_tasks_and_here(exports: RealExport, name: TableName) -> list[Comparison]:
    """Compare a table in tasks, and by this process; return what both say."""
    found = []
    for digests in (digests_in_tasks(), FileDigests()):
        with digests:
            found.append(exports.verify(name, digests))
    there, here = found
    assert [_timeless(one) for one in there] == [_timeless(one) for one in here]
    return there


def _timeless(one: Comparison) -> tuple[object, ...]:
    return (
        one.partition_id, one.verdict, one.message, one.compared_with, one.rows, one.data_files,
        one.columns, one.differences, one.code,
    )  # fmt: skip


def files(exports: RealExport, name: TableName) -> dict[int, Path]:
    """Return the data files by the value of the partition column."""
    return {
        int(file.partition[0]): Path(urlparse(file.file_path).path)
        for file in exports.data_files(name)
    }


def test_damage_is_found_and_costs_only_its_own_partition(
    exports: RealExport, hosts: DigestingHosts
) -> None:
    name = exports.clickhouse.filled()
    exports.run(name)
    assert {c.verdict for c in in_tasks_and_here(exports, name)} == {Verdict.EQUAL}

    lose_a_row(files(exports, name)[0])
    lose_the_end(files(exports, name)[1])
    found = in_tasks_and_here(exports, name)

    assert [c.verdict for c in found] == [Verdict.DIFFERS, Verdict.FAILED]
    assert str(found[0].differences[0]) == "rows 50 in the source, 49 in the lake"
    assert hosts.jobs == [2, 2], "one job for both partitions"


def test_what_an_export_kept_is_compared_in_the_same_job(
    exports: RealExport, hosts: DigestingHosts
) -> None:
    name = exports.clickhouse.filled()
    exports.run(name, verify=True)
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 1000, 'z')")

    found = in_tasks_and_here(exports, name)

    assert [c.compared_with for c in found] == ["digest", "source"]
    assert [c.verdict for c in found] == [Verdict.AS_EXPORTED, Verdict.EQUAL]
    assert hosts.jobs == [2]


def test_a_column_that_the_lake_lacks_is_left_out_in_tasks_too(
    exports: RealExport, hosts: DigestingHosts
) -> None:
    """Which columns a file is read by depends then on the source's digest."""
    name = exports.clickhouse.filled()
    exports.run(name)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN more Nullable(Int64)")
    equal = in_tasks_and_here(exports, name)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN other Int64 DEFAULT 5")
    lacked = in_tasks_and_here(exports, name)

    assert {c.verdict for c in equal} == {Verdict.EQUAL}
    assert {c.verdict for c in lacked} == {Verdict.DIFFERS}
    assert {d.column for c in lacked for d in c.differences} == {"other"}
    assert hosts.jobs == [1, 1] * 2, "each partition when its source is known"


def test_the_lake_is_read_while_the_source_computes_its_digests(
    exports: RealExport, hosts: DigestingHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: one side waits for the other."""
    name = exports.clickhouse.filled()
    exports.run(name)
    begun: list[list[int]] = []
    real = ClickHouseSource.snapshot

    def snapshot(source: ClickHouseSource, *args: Any, **named: Any) -> SourceSnapshot:
        begun.append([*hosts.jobs])
        return real(source, *args, **named)

    monkeypatch.setattr(ClickHouseSource, "snapshot", snapshot)
    with digests_in_tasks() as digests:
        found = exports.verify(name, digests)

    assert begun == [[2]]
    assert {c.verdict for c in found} == {Verdict.EQUAL}


def test_a_source_that_fails_cancels_the_reading_of_the_lake(
    exports: RealExport, hosts: DigestingHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = exports.clickhouse.filled()
    exports.run(name)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ClickHouseSource, "snapshot", interrupted)
    with pytest.raises(KeyboardInterrupt), digests_in_tasks() as digests:
        exports.verify(name, digests)

    assert (hosts.jobs, hosts.closed) == ([2], 1)
