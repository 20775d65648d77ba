"""What `mergeberg verify` compares with when the source or the lake went on since the export.

docs/operating/verify.md. ClickHouse, task code, catalog, ledger and files are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pytest
from pyiceberg.types import StringType

from catalog.clickhouse.rows.digests import FileDigests
from catalog.clickhouse.source import ClickHouseSource
from catalog.iceberg.table import IcebergTable
from tableformat.committer import FileInMain, LakeTableState
from tableformat.errors import NotFoundError, RefusedError, TableFormatError
from tableformat.export.request import ByExpression, ById
from tableformat.export.verification import Comparison, Verdict
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId, TableName
from tableformat.source import Probe, SourceSnapshot
from tests.support.damaged_files import lose_a_row
from tests.support.real_export import RealExport
from tests.support.strangers_lake import events

Change = Callable[[RealExport, TableName], None]


@pytest.fixture(scope="module")
def digests() -> Iterator[FileDigests]:
    with FileDigests() as opened:
        yield opened


def by_id(found: list[Comparison]) -> dict[str, Comparison]:
    return {c.partition_id: c for c in found}


def verdicts(found: list[Comparison]) -> dict[str, str]:
    return {c.partition_id: c.verdict.value for c in found}


def files(exports: RealExport, name: TableName) -> dict[int, Path]:
    """Return the data files by the value of the partition column."""
    return {
        int(file.partition[0]): Path(urlparse(file.file_path).path)
        for file in exports.data_files(name)
    }


def changed(exports: RealExport, name: TableName) -> None:
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 1000, 'z'), (1, 1000, 'z')")


def partitions_gone(exports: RealExport, name: TableName) -> None:
    exports.clickhouse.command(f"ALTER TABLE {name.sql} DROP PARTITION ALL")


def table_gone(exports: RealExport, name: TableName) -> None:
    exports.clickhouse.command(f"DROP TABLE {name.sql} SYNC")


WENT_ON: dict[str, tuple[Change, str]] = {
    "changed": (changed, "the source changed since: 50 rows in 1 part then, 51 in 2 now"),
    "partitions gone": (partitions_gone, "the source partition no longer exists"),
    "table gone": (table_gone, "the source table is gone"),
}


@pytest.mark.parametrize("what", WENT_ON)
def test_a_source_that_went_on_is_compared_by_the_digest_of_its_export(
    exports: RealExport, digests: FileDigests, what: str
) -> None:
    """Harm prevented: the proof is gone with the rows, as soon as the source's TTL has passed.

    While the source has other rows, nobody may take the lake for equal, and drop it.
    """
    change, message = WENT_ON[what]
    name = exports.clickhouse.filled()
    assert [o.verified for o in exports.run(name, verify=True)] == [True, True]
    change(exports, name)

    found = by_id(exports.verify(name, digests))
    lose_a_row(files(exports, name)[0])
    damaged = by_id(exports.verify(name, digests))

    as_then = Verdict.AS_EXPORTED if what == "changed" else Verdict.EQUAL
    assert {c.verdict for c in found.values()} == {as_then}
    assert found["0"].message.startswith(f"{message}; compared with the digest of 20")
    assert found["0"].compared_with == "digest"
    assert (damaged["0"].verdict, damaged["1"].verdict) == (Verdict.DIFFERS, as_then)
    assert str(damaged["0"].differences[0]) == "rows 50 in the source, 49 in the lake"


@pytest.mark.parametrize("what", WENT_ON)
def test_a_changed_source_is_not_compared_without_a_digest(
    exports: RealExport, digests: FileDigests, what: str
) -> None:
    """Harm prevented: a lake that cannot be compared is called equal, or called wrong."""
    change, message = WENT_ON[what]
    name = exports.clickhouse.filled()
    exports.run(name)
    change(exports, name)

    found = by_id(exports.verify(name, digests))
    lose_a_row(files(exports, name)[0])
    damaged = by_id(exports.verify(name, digests))

    assert {c.verdict for c in found.values()} == {Verdict.NOT_COMPARABLE}
    assert found["0"].message.startswith(f"{message}, and the export kept no digest")
    assert "byte for byte" in found["0"].message
    assert damaged["0"].verdict is Verdict.DIFFERS
    assert "1 file not as written" in damaged["0"].message
    assert damaged["1"].verdict is Verdict.NOT_COMPARABLE


def test_a_source_whose_parts_were_rewritten_with_the_same_rows_is_equal(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: a merge, which changes nothing, makes an export one that nobody can prove."""
    name = exports.clickhouse.filled()
    exports.run(name)
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 1000, 'gone')")
    exports.clickhouse.command(f"DELETE FROM {name.sql} WHERE k = 1000")
    exports.clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")

    found = by_id(exports.verify(name, digests))

    assert {c.verdict for c in found.values()} == {Verdict.EQUAL}
    assert found["0"].message == "its parts changed since, its rows did not"


def test_rows_that_others_deleted_or_that_left_main_are_reported_as_such(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: rows that nobody sees in main are called equal to the source."""
    name = exports.clickhouse.filled()
    exports.run(name)
    lake = exports.lake(name)
    lake.delete("k = 2")
    deleted = by_id(exports.verify(name, digests))
    lake.refresh()
    lake.manage_snapshots().rollback_to_snapshot(lake.metadata.snapshots[0].snapshot_id).commit()
    back = by_id(exports.verify(name, digests))

    assert verdicts([*deleted.values()]) == {"0": "not_comparable", "1": "equal"}
    assert "its files were changed since by snapshot" in deleted["0"].message
    assert verdicts([*back.values()]) == {"0": "not_comparable", "1": "not_comparable"}
    assert "main was moved away from it since" in back["1"].message
    assert "Only files of the export can be compared" in back["1"].message


def test_a_damaged_digest_fails_its_partition_alone(
    exports: RealExport, digests: FileDigests
) -> None:
    name = exports.clickhouse.filled()
    exports.run(name, verify=True)
    kept = list(exports.warehouse.rglob(f"n/{name.name}/metadata/mergeberg/*/*/digest.json"))
    assert len(kept) == 2
    next(p for p in kept if '"partition_id": "0"' in p.read_text()).write_text("{}")

    found = by_id(exports.verify(name, digests))

    assert (found["0"].verdict, found["1"].verdict) == (Verdict.FAILED, Verdict.EQUAL)
    assert "Cannot read a digest" in found["0"].message


def test_a_source_that_cannot_be_frozen_is_compared_by_the_digest(
    exports: RealExport, digests: FileDigests
) -> None:
    """A part that is damaged since the export says nothing about what was exported."""
    for verify in (True, False):
        name = exports.clickhouse.filled()
        exports.run(name, verify=verify)
        (part,) = exports.clickhouse.source.parts(name, PartitionId("0"))
        data = Path(part.path, "data.bin")
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.chmod(0o600)
        data.write_bytes(content)

        found = by_id(exports.verify(name, digests))

        assert found["0"].verdict is (Verdict.AS_EXPORTED if verify else Verdict.FAILED)
        assert "CHECK TABLE finds damage" in found["0"].message
        assert ("compared with the digest of" in found["0"].message) == verify
        assert found["1"].verdict is Verdict.EQUAL


def test_a_table_in_a_storage_that_is_not_served_is_refused_by_name(
    exports: RealExport, digests: FileDigests, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = exports.clickhouse.filled()
    exports.run(name)
    real = IcebergTable.files_of

    def in_a_bucket(
        self: IcebergTable,
        state: LakeTableState,
        key: str,
        at: int | None = None,
        also: Collection[str] = (),
    ) -> tuple[FileInMain, ...]:
        return tuple(
            replace(f, path=f"oss://bucket/{f.path.rpartition('/')[2]}")
            for f in real(self, state, key, at, also)
        )

    monkeypatch.setattr(IcebergTable, "files_of", in_a_bucket)
    found = by_id(exports.verify(name, digests))

    assert {c.verdict for c in found.values()} == {Verdict.NOT_COMPARABLE}
    assert "storage of the scheme 'oss' is not supported yet" in found["0"].message


def test_what_neither_side_knows_is_refused(exports: RealExport, digests: FileDigests) -> None:
    name = exports.clickhouse.filled()
    exports.run(name)

    with pytest.raises(NotFoundError, match=r"partition 9 of .* was never exported"):
        exports.verify(name, digests, ById(PartitionId("9")))
    table_gone(exports, name)
    with pytest.raises(NotFoundError, match="the table no longer exists"):
        exports.verify(name, digests, ByExpression("0"))


def test_another_ledger_is_not_believed(exports: RealExport, digests: FileDigests) -> None:
    """Harm prevented: partitions that are in the lake are called not exported."""
    name = exports.clickhouse.filled()
    exports.run(name)
    ledger = exports.warehouse / "mergeberg-ledger.db"
    away = ledger.with_name("away.db")
    ledger.rename(away)
    try:
        with pytest.raises(RefusedError, match="ledger"):
            exports.verify(name, digests)
    finally:
        away.rename(ledger)


def test_a_value_that_cannot_be_exported_is_reported_as_without_a_digest(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: with --verify a failure of a cast, instead of the column and its value."""
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY p", "p UInt8, t DateTime64(0, 'UTC')"
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 0), (1, 0)")
    assert {o.verified for o in exports.run(name, ById(PartitionId("0")), verify=True)} == {True}
    assert {o.verified for o in exports.run(name, ById(PartitionId("1")))} == {False}
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT arrayJoin([0, 1, 2]),"
        " reinterpret(toInt64(9e18), 'DateTime64(0, \\'UTC\\')')"
    )

    (refused,) = exports.run(name, ById(PartitionId("2")), verify=True)
    found = by_id(exports.verify(name, digests))

    assert refused.status.value == "refused"
    assert "column t: outside the instants" in refused.message
    assert verdicts([*found.values()]) == {
        "0": "as_exported", "1": "failed", "2": "not_exported",
    }  # fmt: skip
    assert "it holds a value that cannot be exported" in found["1"].message


SETTLED = "SETTINGS mutations_sync = 2, alter_sync = 2"


def renamed(exports: RealExport, name: TableName) -> None:
    """Rename a column and a member on both sides, as the refusal of an export advises."""
    for change in ("RENAME COLUMN s TO path", "MODIFY COLUMN n Tuple(a UInt8, c String)"):
        exports.clickhouse.command(f"ALTER TABLE {name.sql} {change} {SETTLED}")
    with exports.lake(name).update_schema() as update:
        update.rename_column("s", "path")
        update.rename_column("n.b", "c")


def test_a_digest_is_compared_by_the_columns_names_of_its_time(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: a right table is called wrong as soon as one of its columns is renamed."""
    name = events(exports)
    exports.run(name, verify=True)
    renamed(exports, name)

    changed = exports.verify(name, digests)
    with exports.lake(name).update_schema() as update:
        # Now the old name is that of a column that no file has.
        update.add_column("s", StringType())
    table_gone(exports, name)
    gone = exports.verify(name, digests)

    assert {c.verdict for c in changed} == {Verdict.AS_EXPORTED}
    assert {c.verdict for c in gone} == {Verdict.EQUAL}
    assert {c.compared_with for c in (*changed, *gone)} == {"digest"}


def test_names_are_known_after_the_snapshot_of_an_export_was_expired(
    exports: RealExport, digests: FileDigests
) -> None:
    name = events(exports)
    exports.run(name, verify=True)
    renamed(exports, name)
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (ts, id) SELECT toDateTime('2024-03-01', 'UTC'), 9"
    )
    first = exports.lake(name).current_snapshot()
    assert first is not None
    exports.run(name)
    exports.lake(name).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()

    found = verdicts(exports.verify(name, digests))
    assert found.pop("202403") == "equal"
    assert set(found.values()) == {"as_exported"}


@pytest.mark.parametrize("column", ["s", "n.b"])
def test_a_column_that_was_dropped_and_added_again_has_no_exported_value(
    exports: RealExport, digests: FileDigests, column: str
) -> None:
    """Harm prevented: rows that read NULL are called equal, because a digest has other values."""
    name = events(exports)
    exports.run(name, verify=True)
    with exports.lake(name).update_schema() as update:
        update.delete_column(column)
    with exports.lake(name).update_schema() as update:
        update.add_column(tuple(column.split(".")), StringType())
    table_gone(exports, name)

    found = exports.verify(name, digests)

    assert {c.verdict for c in found} == {Verdict.DIFFERS}
    assert {tuple(map(str, c.differences)) for c in found} == {
        (f"column {column}: it is in the source, is not in the lake",)
    }


@pytest.mark.parametrize("verify", [True, False])
def test_a_member_that_came_in_the_source_alone_fails_nothing(
    exports: RealExport, digests: FileDigests, *, verify: bool
) -> None:
    """Harm prevented: a member of a tuple that the lake lacks ends the whole command."""
    name = events(exports)
    exports.run(name, verify=verify)
    exports.clickhouse.command(
        f"ALTER TABLE {name.sql} MODIFY COLUMN n Tuple(a UInt8, b String, c UInt8) {SETTLED}"
    )

    found = exports.verify(name, digests)

    without = Verdict.NOT_COMPARABLE
    assert {c.verdict for c in found} == {Verdict.AS_EXPORTED if verify else without}


@pytest.mark.parametrize("verify", [True, False])
def test_a_column_that_is_null_in_the_source_is_no_difference(
    exports: RealExport, digests: FileDigests, *, verify: bool
) -> None:
    """Harm prevented: every partition is called wrong once the source has another column."""
    name = events(exports)
    exports.run(name, verify=verify)
    types = ("String", "UInt64", "Decimal(9, 2)", "DateTime64(3)", "UUID", "Float32", "Bool")
    for at, of in enumerate(types):
        exports.clickhouse.command(
            f"ALTER TABLE {name.sql} ADD COLUMN c{at} Nullable({of}) {SETTLED}"
        )

    found = exports.verify(name, digests)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} UPDATE c0 = '' WHERE id = 1 {SETTLED}")
    after = by_id(exports.verify(name, digests))

    assert {(c.verdict, c.differences) for c in found} == {(Verdict.EQUAL, ())}
    assert {c.compared_with for c in found} == {"source"}
    without = Verdict.NOT_COMPARABLE
    assert after["202401"].verdict is (Verdict.AS_EXPORTED if verify else without)


@pytest.mark.parametrize("verify", [True, False])
def test_rows_that_come_before_the_source_is_frozen_are_a_change_of_it(
    exports: RealExport, digests: FileDigests, monkeypatch: pytest.MonkeyPatch, *, verify: bool
) -> None:
    """Harm prevented: a table in use is called wrong because a row was inserted meanwhile."""
    name = exports.clickhouse.filled()
    exports.run(name, verify=verify)
    real = ClickHouseSource.snapshot

    def after_an_insert(
        self: ClickHouseSource,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        changed(exports, name)
        return real(self, table, partition_ids, job=job, probes=probes, digest=digest)

    monkeypatch.setattr(ClickHouseSource, "snapshot", after_an_insert)
    found = by_id(exports.verify(name, digests))

    assert {c.verdict for c in found.values()} == {
        Verdict.AS_EXPORTED if verify else Verdict.NOT_COMPARABLE
    }
    assert found["0"].message.startswith(
        "the source changed since: 50 rows in 1 part then, 51 in 2 now"
    )


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "statement", ["DROP TABLE {} SYNC", "ALTER TABLE {} DROP PARTITION ID '0'"]
)
def test_what_is_dropped_before_it_is_frozen_cannot_be_verified(
    exports: RealExport,
    digests: FileDigests,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    *,
    verify: bool,
) -> None:
    """Harm prevented: who verifies reads that something could not be exported."""
    name = exports.clickhouse.filled()
    exports.run(name, verify=verify)
    real = ClickHouseSource.snapshot

    def after_a_drop(
        self: ClickHouseSource,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        exports.clickhouse.command(statement.format(name.sql))
        return real(self, table, partition_ids, job=job, probes=probes, digest=digest)

    monkeypatch.setattr(ClickHouseSource, "snapshot", after_a_drop)
    try:
        message = by_id(exports.verify(name, digests))["0"].message
    except TableFormatError as error:
        message = error.message

    assert "Cannot export" not in message
    assert message.startswith(("Cannot verify", "Cannot find", "Cannot read"))
