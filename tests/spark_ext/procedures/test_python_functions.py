"""`mergeberg.archive`, `verify`, `check`, `exports`, `gc`, `cancel`, `log`: as CALL, and typed."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mergeberg
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.procedures.archive import ARCHIVE_PARTITION
from spark_ext.procedures.declarations import Procedure
from spark_ext.procedures.export import EXPORT_PARTITION, EXPORT_PARTITIONS
from spark_ext.procedures.exports import CANCEL_EXPORT, EXPORTS, FORGET_EXPORT
from spark_ext.procedures.lake_tables import CREATE_TABLE_LIKE, GC, VERIFY_PARTITION
from spark_ext.procedures.lake_tables import PARTITIONS as LIST_PARTITIONS
from spark_ext.procedures.lake_tables import PARTS as LIST_PARTS
from spark_ext.procedures.statements import EXECUTE_ALTER, TYPED_PROCEDURES
from spark_ext.sql.dispatch import PROCEDURES as REGISTERED
from tableformat.errors import DestinationError, NotFoundError, RefusedError, UsageError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.slices import SliceTask, WritePlan
from tests.repository.source_files import ROOT
from tests.support.session_lake import export_all, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
PAGE = (ROOT / "docs" / "reference" / "python-api.md").read_text()
PROCEDURES: tuple[tuple[Callable[..., Any], type, Procedure], ...] = (
    (mergeberg.archive, mergeberg.ArchivedPartition, ARCHIVE_PARTITION),
    (mergeberg.cancel, mergeberg.CancelledExport, CANCEL_EXPORT),
    (mergeberg.create_table_like, mergeberg.CreatedTable, CREATE_TABLE_LIKE),
    (mergeberg.exports, mergeberg.ExportRecord, EXPORTS),
    (mergeberg.forget_export, mergeberg.ForgottenExport, FORGET_EXPORT),
    (mergeberg.gc, mergeberg.Leftover, GC),
    (mergeberg.partitions, mergeberg.ListedPartition, LIST_PARTITIONS),
    (mergeberg.parts, mergeberg.ListedPart, LIST_PARTS),
    (mergeberg.verify, mergeberg.VerifiedPartition, VERIFY_PARTITION),
)
FUNCTIONS = (
    "archive", "cancel", "check", "create_table_like", "exports", "forget_export", "gc", "log",
    "partitions", "parts", "show_export", "verify",
)  # fmt: skip
LITERALS: dict[str, object] = {
    "true": True,
    "false": False,
    "NULL": None,
    "map()": {},
    "60.0D": 60.0,
}
WITHOUT_EFFECT = {
    Status.UNCHANGED, Status.ALREADY_EXPORTED, Status.EMPTY, Status.IN_PROGRESS, Status.REFUSED,
    Status.KILLED, Status.FAILED, Status.STOPPED, Status.UNKNOWN, Status.DIFFERS, Status.UNVERIFIED,
}  # fmt: skip


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with 3 rows in partition 1 and 2 in partition 2; return its bare name."""
    places.reads_parts = True
    name = f"py{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} VALUES (1, 1), (1, 2), (1, 3), (2, 4), (2, 5)",
    )
    return name


def in_source(places: Places, table: str) -> int:
    with EmbeddedConnection(places.clickhouse) as connection:
        return int(str(connection.rows(f"SELECT count() FROM db.{table}")[0][0]))


def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "kind", "procedure"), PROCEDURES, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_function_has_the_parameters_and_columns_of_its_procedure(
    function: Callable[..., Any], kind: type, procedure: Procedure
) -> None:
    given = {n: p.default for n, p in inspect.signature(function).parameters.items()}
    del given["spark"]

    assert given == {
        one.name: inspect.Parameter.empty if one.default is None else LITERALS[one.default]
        for one in procedure.parameters
    }
    assert [f.name for f in fields(kind)] == [column.name for column in procedure.columns]


def test_every_procedure_is_a_function() -> None:
    """`mergeberg.sql` is `execute_alter`."""
    here = [procedure for _, _, procedure in PROCEDURES]
    others = [EXPORT_PARTITION, EXPORT_PARTITIONS, EXECUTE_ALTER, *TYPED_PROCEDURES]

    assert {one.name for one in (*here, *others)} == {*REGISTERED}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_listed_completed_and_on_the_page(name: str) -> None:
    for package in ("mergeberg", "spark_ext"):
        assert f" {name} as {name}\n" in (ROOT / package / "__init__.pyi").read_text()
    assert name in dir(mergeberg)
    assert inspect.getdoc(getattr(mergeberg, name))
    assert f"`{name}`" in PAGE


def test_a_partition_is_archived_after_a_dry_run_that_only_says_so(
    places: Places, session: NoSpark, table: str
) -> None:
    names = (session.session, f"lake.n.{table}", f"ch.db.{table}")

    (planned,) = mergeberg.archive(*names, partition_id="1", drop=True, dry_run=True)
    assert (planned.status, planned.export_status, planned.rows) == ("drop", "export", 3)
    assert in_source(places, table) == 5
    (done,) = mergeberg.archive(*names, partition_id="1", drop=True)

    assert (done.status, done.export_status, done.rows) == ("dropped", "committed", 3)
    assert in_source(places, table) == 2


def test_a_filter_says_which_partitions_are_archived(
    places: Places, session: NoSpark, table: str
) -> None:
    names = (session.session, f"lake.n.{table}", f"ch.db.{table}")

    with pytest.raises(UsageError, match="exactly one of `partition_id`, `partition` and"):
        mergeberg.archive(*names)
    with pytest.raises(UsageError, match="`where` only with `all_partitions`"):
        mergeberg.archive(*names, partition_id="1", where="rows > 2")
    (done,) = mergeberg.archive(*names, all_partitions=True, where="rows > 2")

    assert (done.partition_id, done.status) == ("1", "detached")
    assert in_source(places, table) == 2


def test_a_source_that_does_not_allow_it_is_not_archived(
    places: Places, session: NoSpark, table: str
) -> None:
    with pytest.raises(RefusedError, match="only if that is allowed"):
        mergeberg.archive(session.session, f"lake.n.{table}", f"fixed.db.{table}", partition_id="1")
    assert in_source(places, table) == 5


def test_partitions_are_compared_and_those_that_were_not_exported_are_named(
    places: Places, session: NoSpark, table: str
) -> None:
    places.run("export", f"db.{table}", "--partition-id", "1", "--to", f"lake.n.{table}")
    names = (session.session, f"lake.n.{table}", f"ch.db.{table}")

    found = mergeberg.verify(*names, all_partitions=True)
    one, two = sorted(found, key=lambda partition: partition.partition_id)
    (by_value,) = mergeberg.verify(*names, partition="1")

    assert (one.partition_id, one.status, one.rows, one.columns) == ("1", "equal", 3, 2)
    assert (two.partition_id, two.status) == ("2", "not_exported")
    assert (by_value.partition_id, by_value.status) == ("1", "equal")
    with pytest.raises(RefusedError, match="partition 2: not_exported"):
        mergeberg.verify(*names, partition_id="2")


def test_exports_are_listed_shown_and_logged(places: Places, session: NoSpark, table: str) -> None:
    places.run("export", f"db.{table}", "--all", "--to", f"lake.n.{table}")
    of, session_of = f"ch.db.{table}", session.session

    listed = mergeberg.exports(session.session, f"lake.n.{table}", status="completed")
    (latest,) = mergeberg.exports(session_of, source=of, limit=1)
    (shown,) = mergeberg.show_export(session_of, source=of, partition_id="1")
    logged = mergeberg.log(session_of, source=of, since=timedelta(hours=1))

    assert sorted((e.partition_id, e.status, e.rows) for e in listed) == [
        ("1", "COMPLETED", 3),
        ("2", "COMPLETED", 2),
    ]
    assert latest in listed
    assert datetime.now(UTC) - latest.create_time < timedelta(hours=1)
    assert (shown.export.partition_id, shown.rows_in_main) == ("1", 3)
    ((part, rows, number),) = [(p.name, p.rows, len(p.files)) for p in shown.parts]
    assert (part, rows, number) == ("1_1_1_0", 3, 1)
    assert {(e.partition, e.part_name, e.status) for e in logged if e.part_name} == {
        ("1", "1_1_1_0", "committed"),
        ("2", "2_2_2_0", "committed"),
    }
    assert mergeberg.log(session_of, source=of, failed=True) == ()
    assert len(mergeberg.log(session_of, source=of, limit=1)) == 1


def test_tables_are_made_listed_and_exported_again(
    places: Places, session: NoSpark, table: str
) -> None:
    names = (session.session, f"lake.n.{table}", f"ch.db.{table}")

    (planned,) = mergeberg.create_table_like(*names, dry_run=True)
    (made,) = mergeberg.create_table_like(*names)
    places.run("export", f"db.{table}", "--partition-id", "1", "--to", f"lake.n.{table}")
    (forgotten,) = mergeberg.forget_export(*names, partition_id="1")
    of_source = mergeberg.partitions(session.session, f"ch.db.{table}")
    (in_lake,) = mergeberg.partitions(session.session, f"lake.n.{table}")
    (part,) = mergeberg.parts(session.session, f"ch.db.{table}", partition_id="2")

    assert (planned.status, made.status, made.columns) == ("create", "created", 2)
    assert forgotten.partition_id == "1"
    assert [(p.partition_id, p.parts, p.rows) for p in of_source] == [("1", 1, 3), ("2", 1, 2)]
    assert (in_lake.partition, in_lake.files, in_lake.rows) == ("p=1", 1, 3)
    assert (part.name, part.rows) == ("2_2_2_0", 2)


def test_what_the_ledger_does_not_know_is_refused_by_name(session: NoSpark, table: str) -> None:
    with pytest.raises(NotFoundError, match="Cannot show the export of partition 9: "):
        mergeberg.show_export(session.session, source=f"ch.db.{table}", partition_id="9")
    with pytest.raises(UsageError, match="Give `limit` a number from 1"):
        mergeberg.exports(session.session, limit=0)
    with pytest.raises(UsageError, match="Give `limit` a number from 1"):
        mergeberg.log(session.session, limit=0)
    with pytest.raises(UsageError, match="list exports of two sources"):
        mergeberg.exports(session.session, f"ch.db.{table}", source=f"ch.db.{table}")


def test_an_export_is_cancelled_and_what_it_left_is_removed(
    places: Places, session: NoSpark, table: str
) -> None:
    to, source = f"lake.n.{table}", f"ch.db.{table}"
    places.before = interrupt
    for partition_id in ("1", "2"):
        places.run("export", f"db.{table}", "--partition-id", partition_id, "--to", to)
    places.before = lambda *_: None

    with pytest.raises(UsageError, match="give `partition_id` and `source`, or `all_exports"):
        mergeberg.cancel(session.session, to)
    (one,) = mergeberg.cancel(session.session, to, source, partition_id="1")
    (two,) = mergeberg.cancel(session.session, source=source, all_exports=True)

    assert (one.partition_id, one.status, one.destination_table) == ("1", "killed", to)
    assert (two.partition_id, two.status) == ("2", "killed")
    assert mergeberg.cancel(session.session, source=source, all_exports=True) == ()
    left = Path(places.warehouse, "n", table, "data")
    left.mkdir(exist_ok=True)
    (key,) = _keys(places, to, "1")
    file = left / f"{key}-{one.transaction_id}-0-x.parquet"
    file.write_bytes(b"rows")
    (garbage,) = mergeberg.gc(session.session, to)
    assert (garbage.action, garbage.kind, garbage.bytes) == ("remove", "data file", 4)
    later = datetime.now(UTC) - timedelta(hours=1)
    (kept,) = mergeberg.gc(session.session, to, older_than=later, dry_run=False)
    assert kept.action == "keep"
    (gone,) = mergeberg.gc(session.session, to, dry_run=False)
    assert (gone.action, file.exists()) == ("removed", False)


def _keys(places: Places, to: str, partition_id: str) -> list[str]:
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    try:
        return [
            row.key.hash
            for row in ledger.rows()
            if (row.destination_table, row.key.partition_id) == (to, partition_id)
        ]
    finally:
        ledger.close()


def test_a_check_says_what_columns_become_and_why_an_export_is_refused(
    session: NoSpark, table: str
) -> None:
    (good,) = mergeberg.check(session.session, f"ch.db.{table}", table=f"lake.n.{table}")
    (bad,) = mergeberg.check(session.session, "ch.db.odd")

    assert (good.works, good.reasons, good.shard) == (True, (), None)
    assert [(c.column, c.kind) for c in good.columns] == [("p", "A"), ("id", "A")]
    assert [p.partition_id.value for p in good.partitions] == ["1", "2"]
    assert "will be created" in good.destination
    assert good.space[-1].side == "destination"
    assert not bad.works
    assert "AggregateFunction" in bad.reasons[0]
    assert not any("--" in reason for reason in bad.reasons)


def test_only_trees_keep_replaced_files_and_only_tables_have_snapshots(
    session: NoSpark, tmp_path: Path
) -> None:
    tree = f"hive.`{tmp_path}`"

    with pytest.raises(UsageError, match=r"expire snapshots of hive.*Name one by `table`"):
        mergeberg.gc(session.session, tree, expire_dropped="10m")
    with pytest.raises(UsageError, match="expire snapshots of a source"):
        mergeberg.gc(session.session, source="ch", expire_dropped="10m")
    with pytest.raises(UsageError, match="Cannot read `keep_replaced` 'soon'"):
        mergeberg.gc(session.session, tree, keep_replaced="soon")


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_word_for_a_dry_run(status: Status) -> None:
    assert (status.planned == status.value) == (status in WITHOUT_EFFECT)


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("detach_partition", {"partition_id": "202401"}, "detach"),
        ("drop_partition", {"partition_id": "202401"}, "drop"),
        ("delete_rows", {"partition_id": "202401", "where": "id = 0"}, "change"),
        ("freeze", {"name": "b"}, "freeze"),
        ("clear_column", {"column": "s", "partition_id": "202401"}, "change"),
        ("replace_partition", {"partition": "202401", "from_table": "ch.db.events"}, "replace"),
    ],
)
def test_a_dry_run_of_a_statement_never_says_that_it_was_done(
    places: Places, session: NoSpark, name: str, given: dict[str, Any], word: str
) -> None:
    """Harm prevented: a script reads `detached`, and nothing was."""
    to, places.reads_parts = f"dry_{name}", True
    export_all(session, "events", to)

    outcomes = getattr(mergeberg, name)(session.session, f"lake.n.{to}", dry_run=True, **given)
    rows = session.call(name, table=f"n.{to}", dry_run=True, **given)

    statuses = {one.status for one in outcomes}
    assert statuses == {row["status"] for row in rows}
    assert word in statuses
    assert statuses.isdisjoint(one.value for one in Status if one not in WITHOUT_EFFECT)
    assert rows_of(places, to) == 3


def test_a_dry_run_that_would_do_nothing_says_so(session: NoSpark, dropped_from: str) -> None:
    table = f"lake.n.{dropped_from}"

    (outcome,) = mergeberg.detach_partition(
        session.session, table, partition_id="209901", dry_run=True
    )

    assert outcome.status == "empty"
    assert Outcome("1", Status.EMPTY, table).status.planned == "empty"


def test_a_difference_is_an_error_in_python_too(
    places: Places, session: NoSpark, table: str
) -> None:
    places.run("export", f"db.{table}", "--all", "--to", f"lake.n.{table}")
    (file, *_) = (places.warehouse / "n" / table).rglob("*.parquet")
    file.write_bytes(b"not a file")

    with pytest.raises(DestinationError):
        mergeberg.verify(session.session, f"lake.n.{table}", f"ch.db.{table}", all_partitions=True)
