"""docs/reference/errors.md is true: every row of it is run, and nothing but that row comes out."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers import uris
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.committer import Sent
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Key, Owner, State
from tableformat.names import LakeName
from tests.support.errors_page import Refusal, refusal_of, rows
from tests.support.far_disks import far_source
from tests.wrong import (
    configuration,
    folders,
    ledgers,
    maintenance,
    replacements,
    servers,
    surroundings,
    versions,
)
from tests.wrong.places import Places
from tests.wrong.reading import READING
from tests.wrong.rights import RIGHTS


def export(*words: str, table: str = "db.events", to: str = "lake.n.new") -> tuple[str, ...]:
    return ("export", table, *(words or ("--all",)), "--to", to)


def alter(
    setting: str, statement: str = "ALTER TABLE lake.n.ours DROP PARTITION 202401"
) -> tuple[str, ...]:
    return ("alter", statement, "--conf", f"spark.mergeberg.{setting}")


UNKNOWN = ("203001", "--table", "db.events")

# What is wrong, and the command: nothing on either side, nor in the ledger, is changed by these.
UNCHANGED: dict[str, tuple[str, ...]] = {
    **replacements.WORDS,
    "no partition is chosen": ("export", "db.events", "--to", "lake.n.new"),
    "partitions are chosen twice": export("--all", "--partition-id", "202401"),
    "`--dry-run` with `--no-wait`": export("--all", "--dry-run", "--no-wait"),
    "`--where` without `--all`": export("--partition-id", "202401", "--where", "rows > 1"),
    "`--to` is missing": ("export", "db.events", "--all"),
    "an option that is not there": ("export", "db.events", "--al"),
    "a command that is not there": ("exprot",),
    "a negative `--manifest-ttl`": export("--all", "--manifest-ttl", "-1"),
    "a table name with an empty part": export(table="db..events"),
    "a table name of three parts": export(table="a.b.c"),
    "a table name with an open quote": export(table="`db.events"),
    "a table name with a blank": export(table="db.my events"),
    "a destination of one part": export(to="events"),
    "a destination of two parts": export(to="lake.events"),
    "a partition id with other characters": export("--partition-id", "2024;01"),
    "a partition value of an unknown function": export("--partition", "nosuchfunction(1)"),
    "a partition value of another type": export("--partition", "'x'"),
    "`--where` over something else": export("--all", "--where", "colour = 'red'"),
    "`--where` over a time that the key does not have": export(
        "--all", "--where", "max_time < '2030-01-01'", table="db.damaged"
    ),
    "`--convert` without a value": export("--all", "--convert", "s"),
    "a bandwidth that is not a size": export("--all", "--max-bandwidth", "50XB"),
    "a file size of nothing": export("--all", "--target-file-size", "0"),
    "--quiet with --verbose": export("--all", "--quiet", "--verbose"),
    "a lake table to show that is not there": ("show", "lake.n.new"),
    "a tree to show": ("show", "hive:/nowhere"),
    "`--conf` without a value": export("--all", "--conf", "spark.x"),
    "`--conf` with a setting that is not known": alter("max_exports_bandwith_for_server=1"),
    "`--conf` with a setting that a command has as an option": alter("ledger=sqlite:/tmp/x.db"),
    "`--conf` with a setting that has no effect in the statement": alter(
        "max_exports_bandwidth_for_server=1000000"
    ),
    "`--conf` of an export with a setting that it has as an option": export(
        "--all", "--conf", "spark.mergeberg.max_exports_bandwidth_for_server=1000000"
    ),
    "`--conf` of an export with a setting of statements": export(
        "--all", "--conf", "spark.mergeberg.allow_experimental_export_merge_tree_part=1"
    ),
    "`--conf` with a setting in a statement that ClickHouse runs": alter(
        "mutations_sync=2", "ALTER TABLE ch.db.events DROP PARTITION 202401"
    ),
    "`--conf` with a setting in KILL QUERY": alter(
        "mutations_sync=2", "KILL QUERY WHERE query_id = '1'"
    ),
    "a partition spec that is not closed": export("--all", "--partition-spec", "month(ts"),
    "a partition spec of an unknown transform": export("--all", "--partition-spec", "week(ts)"),
    "a source without a directory": export("--all", "--source", "chdb:"),
    "a source with an unknown option": export("--all", "--source", "chdb:x?y=z"),
    "a ledger without a file": export("--all", "--ledger", "sqlite:"),
    "a tree with a login in its address": export("--all", to="hive:s3://key:pw@bucket/x"),
    "a tree with a signature in its address": export(
        "--all", to="hive:abfss://c@a.dfs.core.windows.net/x?sv=2024-11-04&sig=s1gned"
    ),
    "a ledger of another kind": export("--all", "--ledger", "redis://host"),
    "an address of Keeper with a password in it": export("--all", "--ledger", "keeper://u:p@h/x"),
    "an address of Keeper with an unknown option": export("--all", "--ledger", "keeper://h/x?y=z"),
    "a path in Keeper that is none": export("--all", "--ledger", "keepers://h//x"),
    "a ledger in Keeper without TLS": export("--all", "--ledger", "keeper://zk1,zk2/lake"),
    "an unknown database": export(table="dd.events"),
    "an unknown table": export(table="db.evnts"),
    "an unknown partition id": export("--partition-id", "203001"),
    "an unknown partition value": export("--partition", "203001"),
    "an unknown column in `--convert`": export("--all", "--convert", "nope=binary"),
    "a conversion that does not apply": export("--all", "--convert", "id=binary"),
    "the conversion of a type that takes none": export("--all", "--convert", "Int64=binary"),
    "the conversion of a type that the destination was made without": export(
        "--all", "--convert", "String=binary", to="lake.n.ours"
    ),
    "an unknown column in `--partition-spec`": export("--all", "--partition-spec", "day(nope)"),
    "an unknown catalog": export(to="other.n.new"),
    "a namespace that leaves the warehouse": export(to="lake.`..`.new"),
    "a lake table with a slash in its name": export(to="lake.n.`../../new`"),
    "a lake table with a backslash in its name": export(to="lake.n.`a\\\\b`"),
    "an unknown source directory": export("--all", "--source", "chdb:/nowhere"),
    "a table that is not of the MergeTree family": export(table="db.log"),
    "the destination is the source": export(to="db.events"),
    "the destination is another MergeTree table": export(to="db.other"),
    "the destination is another ClickHouse table": export(to="db.log"),
    "the destination is an Iceberg table of version 1": export(to="lake.n.v1"),
    "the destination is an Iceberg table of version 3": export(to="lake.n.v3"),
    "the destination has a column of a type that is not known": export(to="lake.n.variant"),
    "partition keys differ": export(to="lake.n.by_day"),
    "partition keys differ that are one spec": export(to="lake.n.starts"),
    "`--strict` and a destination with other columns": export(
        "--all", "--strict", to="lake.n.order"
    ),
    "structures differ": export(to="lake.n.structure"),
    "default expressions differ from those of the remembered source": export(to="lake.n.defaults"),
    "`--evolve-schema` and a name that differs in case": export(
        "--all", "--evolve-schema", to="lake.n.case"
    ),
    "a write property with a value that it cannot have": export(to="lake.n.codec"),
    "another conversion than the destination was made with": export(
        "--all", "--convert", "s=binary", to="lake.n.ours"
    ),
    "the destination was made by a newer release": export(to="lake.n.newer"),
    "a partition key without an exact spec": export(table="db.berlin"),
    "columns without a mapping": export(table="db.odd"),
    "`--strict` and a column that changes kind": export("--all", "--strict", table="db.enum"),
    "`verify` without a partition": ("verify", "db.events", "--to", "lake.n.new"),
    "`verify` in a lake table that is not there": ("verify", *export()[1:]),
    "`verify` of an unknown partition id": (
        "verify",
        *export("--partition-id", "203001", to="lake.n.by_day")[1:],
    ),
    "a ledger that is not there": ("exports", "list", "--ledger", "sqlite:/nowhere/ledger.db"),
    "a ledger that is not there, of KILL QUERY": (
        *("alter", "KILL QUERY WHERE query_id = '2f7a0c1e'"),
        *("--ledger", "sqlite:/nowhere/ledger.db"),
    ),
    "nothing to cancel is named": ("exports", "cancel", "202401"),
    "an export that the ledger does not have": ("exports", "show", "203001"),
    "an export to forget that the ledger does not have": ("exports", "forget", *UNKNOWN),
    "a log of another form": ("--log", "xml", "exports", "list"),
    "an export to cancel that the ledger does not have": ("exports", "cancel", *UNKNOWN),
    "`gc` of a lake table that is not there": ("gc", "--to", "lake.n.new"),
    "`--older-than` without a unit": ("gc", "--to", "lake.n.new", "--older-than", "10"),
    "`--since` without a unit": ("exports", "log", "--since", "10"),
}


# The same, for what needs some preparation.
PREPARED: dict[str, Callable[[Places, pytest.MonkeyPatch], tuple[str, ...]]] = {
    **configuration.PREPARED,
    **folders.PREPARED,
    **surroundings.PREPARED,
    "more exported partitions than `--max-replace` would be replaced": replacements.too_many,
    "`gc --expire-dropped` of a table whose files must stay": maintenance.kept_files,
    "a time zone that does not exist": lambda places, _: export(
        "--all", "--source", f"chdb:{places.clickhouse}?zone=Nowhere/Land"
    ),
    "the ledger is on a network file system": ledgers.network_ledger,
    "the ledger is another file": ledgers.no_ledger_file,
    "the ledger was made by a newer release": ledgers.other_format,
    "a row of the ledger is damaged": ledgers.damaged_row,
}


def _in_use(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    with EmbeddedConnection(places.clickhouse):
        return refusal_of(places, export())


def _damaged(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    return refusal_of(places, export(table="db.damaged", to="lake.n.damaged"))


def _bad_values(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    places.reads_parts = True
    return refusal_of(places, export(table="db.bad", to="lake.n.bad"))


def _computed_elsewhere(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    places.clickhouse_run(
        "CREATE TABLE db.computed (k Int64) ENGINE = MergeTree ORDER BY k",
        "INSERT INTO db.computed VALUES (1)",
        "ALTER TABLE db.computed ADD COLUMN host String DEFAULT hostName()",
    )
    return refusal_of(places, export(table="db.computed", to="lake.n.computed"))


def _computed_in_a_zone(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    places.clickhouse_run(
        "CREATE TABLE db.zoned (ts DateTime) ENGINE = MergeTree ORDER BY ts",
        "INSERT INTO db.zoned VALUES (1)",
        "ALTER TABLE db.zoned ADD COLUMN hour UInt8 DEFAULT toHour(ts)",
    )
    return refusal_of(places, export(table="db.zoned", to="lake.n.zoned"))


def _far_default(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    source = far_source(places.root / "far", "default")
    words = ("--partition-id", "1", "--source", source)
    return refusal_of(places, export(*words, table="db.t", to="lake.n.far"))


def _not_proved(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    words = ("--partition-id", "202402", "--partition-spec", "identity(s)")
    return refusal_of(places, export(*words, to="lake.n.proof"))


def _part_gone(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    def remove(_plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        shutil.rmtree(tasks[0].slices[0].ranges[0].path, ignore_errors=True)

    places.before, places.reads_parts = remove, True
    return refusal_of(places, export("--partition-id", "202401", to="lake.n.gone"))


def _no_directory(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    (places.warehouse / "blocked").write_text("a file where a directory should be")
    return refusal_of(places, export(to="lake.blocked.t"))


def _disk_full(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    def fill(plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        data = Path(plan.data_location.removeprefix("file://"))
        data.parent.mkdir(parents=True, exist_ok=True)
        data.write_text("a file where a directory should be")

    places.before, places.reads_parts = fill, True
    return refusal_of(places, export("--partition-id", "202401", to="lake.n.full"))


def _changed_destination(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    def change(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.moving")
        with table.update_schema() as update:
            update.rename_column("s", "text")

    places.before = change
    return refusal_of(places, export("--partition-id", "202401", to="lake.n.moving"))


def _shrunk(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    words = export("--partition-id", "202402", table="db.shrinking", to="lake.n.shrunk")
    places.run(*words)
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (row,) = (r for r in ledger.rows() if r.source_table == "db.shrinking")
        assert row.done is not None
        ledger.write(replace(row, done=replace(row.done, completed=0)))
    places.clickhouse_run("ALTER TABLE db.shrinking DELETE WHERE id = 2 SETTINGS mutations_sync=2")
    return refusal_of(places, words)


def _changed_content(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    words = export("--partition-id", "202401", table="db.changing", to="lake.n.changed")
    places.run(*words)
    places.clickhouse_run("INSERT INTO db.changing VALUES ('2024-01-01', 9, '')")
    inside = refusal_of(places, words)
    assert inside.exit == "3"
    return inside


def _forced_in_tree(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    tree = f"hive:{places.root}/tree"
    words = export("--partition-id", "202401", table="db.other", to=tree)
    places.run(*words, "--hive-column", "month=toYYYYMM(ts)")
    return refusal_of(places, (*words, "--force"))


def _other_ledger(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    words = ("--partition-id", "202401")
    places.run(*export(*words, to="lake.n.kept"))
    other = places.root / "other-ledger.db"
    found = refusal_of(places, export(*words, "--ledger", f"sqlite:{other}", to="lake.n.kept"))
    assert not other.exists()
    return found


def _lost_responses(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    sent = IcebergTable.send

    def send(table: IcebergTable, *given: object) -> Sent:
        commit = given[2]
        if not commit.keys:  # type: ignore[attr-defined]
            return sent(table, *given)  # type: ignore[arg-type]
        return Sent(applied=False, error="ReadTimeout: no answer")

    patch.setattr(IcebergTable, "send", send)
    return refusal_of(places, export("--partition-id", "202401", to="lake.n.silent"))


def _in_progress(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    words = export("--partition-id", "202401", to="lake.n.busy")
    name = LakeName.parse("lake.n.busy")
    places.run(*words)
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (row,) = (r for r in ledger.rows() if r.destination_table == str(name))
        ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)
    return refusal_of(places, words)


def _interrupted(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise KeyboardInterrupt

    places.before = interrupt
    return refusal_of(places, export("--partition-id", "202401", to="lake.n.stopped"))


def _cancelled(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    def cancel(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        words = ("202401", "--table", "db.events", "--to", "lake.n.cancelled")
        assert places.run("exports", "cancel", *words)[0] == 0

    places.before = cancel
    return refusal_of(places, export("--partition-id", "202401", to="lake.n.cancelled"))


# What is found out when the work has begun: a table that was made stays, without a row.
BEGUN: dict[str, Callable[[Places, pytest.MonkeyPatch], Refusal]] = {
    **folders.BEGUN,
    "the source directory is in use": _in_use,
    "a part is corrupted": _damaged,
    "values that Iceberg cannot hold": _bad_values,
    "a column that a part lacks and only its source computes": _computed_elsewhere,
    "parts on an object storage that is the default disk": _far_default,
    "a chosen spec that the data does not prove": _not_proved,
    "a part's files are gone or unreadable": _part_gone,
    "the warehouse cannot be written": _no_directory,
    "a data file cannot be written": _disk_full,
    "the destination changed between plan and commit": _changed_destination,
    "the partition has fewer rows than main": _shrunk,
    "another source has files in the whole lake partition": replacements.other_source,
    "the lake partition has files of others": replacements.foreign_files,
    "another table has the same Keeper path": replacements.other_table,
    "a table of the name was exported before": replacements.namesake,
    "a part was exported from a table of another name": replacements.part_of_another,
    "a table without a UUID was renamed": replacements.renamed,
    "Keeper does not respond": replacements.silent_keeper,
    "the partition changed since it was exported": _changed_content,
    "`--force` into a tree of Hive directories": _forced_in_tree,
    "the ledger of another table": _other_ledger,
    "the catalog does not respond to a commit": _lost_responses,
    "another process exports the partition": _in_progress,
    "an export to forget that runs": ledgers.forget_running,
    "the ledger is locked": ledgers.locked_ledger,
    "the export is cancelled": _cancelled,
    "Ctrl-C": _interrupted,
    "the partition is archived": replacements.archived,
    "a part equals an archived one": replacements.equal_to_archived,
    "another engine deleted rows by equality": replacements.deleted_by_equality,
    "lightweight updates that the parts do not have yet": replacements.pending_updates,
    "a column that a part lacks and that depends on the time zone": _computed_in_a_zone,
}


@pytest.fixture(autouse=True)
def make_ledger(places: Places) -> None:
    """Make the ledger, which the first export makes: one that is not there is refused as such."""
    with contextlib.closing(SqliteLedger(places.warehouse / uris.LEDGER_FILE)) as ledger:
        if not ledger.is_made():
            ledger.next_epoch()


@pytest.mark.parametrize("what", UNCHANGED)
def test_a_wrong_command_says_what_the_page_says_and_changes_nothing(
    places: Places, what: str
) -> None:
    before = places.files()

    assert refusal_of(places, UNCHANGED[what]) == rows()[what]
    assert places.files() == before


@pytest.mark.parametrize("what", PREPARED)
def test_a_wrong_surrounding_says_what_the_page_says_and_changes_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    words = PREPARED[what](places, monkeypatch)
    before = places.files()

    assert refusal_of(places, words) == rows()[what]
    assert places.files() == before


@pytest.mark.parametrize(
    "what",
    [pytest.param(one, marks=pytest.mark.soak if n % 2 else ()) for n, one in enumerate(BEGUN)],
)
def test_what_goes_wrong_on_the_way_says_what_the_page_says(
    places: Places, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Harm prevented: leases of an export that did not succeed stay, or tables of no use."""
    assert BEGUN[what](places, monkeypatch) == rows()[what]

    ledger = SqliteLedger(places.warehouse / uris.LEDGER_FILE)
    assert [r.destination_table for r in ledger.rows() if _leased_here(ledger, r.key)] == []
    with EmbeddedConnection(places.clickhouse) as connection:
        left = connection.rows(
            "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
        )
    of_use = {n for r in ledger.rows() if r.state is State.RUNNING for n in r.claim.staging}
    assert {name for (name,) in left} <= of_use


def _leased_here(ledger: SqliteLedger, key: Key) -> bool:
    held = ledger.holder(key.hash)
    return held is not None and held.owner.host != "other-host"


def test_the_page_has_exactly_what_is_tested() -> None:
    of_servers = [*servers.SOURCES, *servers.SERVERS, *versions.VERSIONS]
    with_servers = [*of_servers, *RIGHTS, *READING]
    assert sorted(rows()) == sorted(
        [*UNCHANGED, *PREPARED, *BEGUN, *with_servers, *maintenance.WRONG]
    )


def test_a_text_says_the_same_as_the_object_for_programs(places: Places) -> None:
    code, out, err = places.run(*export(table="db.evnts"))

    assert (code, out) == (3, "")
    assert err.splitlines()[0] == rows()["an unknown table"].printed
    assert err.splitlines()[1].startswith("Next: mergeberg export db.events --all")


def test_debug_shows_where_an_error_came_from(places: Places) -> None:
    code, _, err = places.run(*export("--all", "--debug", table="db.evnts"))

    assert code == 3
    assert "Traceback (most recent call last):" in err


def test_an_error_that_nobody_foresaw_is_one_message_too(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a page of Python for somebody who does not know Python."""

    def fail(*_: object, **__: object) -> None:
        message = "no such key"
        raise KeyError(message)

    monkeypatch.setattr("spark_ext.cli.commands.partitions.open_source", fail)
    code, out, err = places.run("partitions", "db.events")

    assert (code, out) == (4, "")
    assert err.startswith("Cannot continue: an unexpected error, KeyError: 'no such key'.")
    assert "Traceback" not in err
