"""`--conf spark.mergeberg.NAME=VALUE` acts in a statement as in a session, or is refused."""

from __future__ import annotations

import itertools

import pytest

from tableformat.export.slices import Share
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
_EXPORT = "ALTER TABLE ch.db.other EXPORT PARTITION ALL TO TABLE lake.n.fast"
_LIMIT = "spark.mergeberg.max_exports_bandwidth_for_server=100000000"


@pytest.fixture
def lake(places: Places) -> str:
    """Export a table, and return the name of the lake table."""
    places.reads_parts = True
    name = f"lake.n.conf{next(_NUMBERS)}"
    code, _, err = places.run("export", "db.events", "--all", "--to", name)
    assert code == 0, err
    return name


def run(places: Places, *words: str) -> tuple[int, str, str]:
    at = ("--source", f"chdb:{places.clickhouse}", "--source-wait", "0.3")
    where = () if words[0] == "drop" else at
    return places.run(*words, *where, "--warehouse", str(places.warehouse))


def words_of(how: str, lake: str) -> list[str]:
    if how == "alter":
        return ["alter", f"ALTER TABLE {lake} REPLACE PARTITION ID '202402' FROM ch.db.other"]
    of = "events" if how == "attach" else "other"
    return [how, lake, "--partition-id", "202402", "--from", f"ch.db.{of}"]


def limits(places: Places) -> list[int]:
    """Return the list to which each write adds its limit of bytes per second."""
    seen: list[int] = []

    def look(share: Share | None) -> None:
        seen.append(share.limit if share is not None else 0)

    places.before = lambda plan, _: look(plan.share)
    return seen


@pytest.mark.parametrize("how", ["alter", "replace", "attach"])
def test_a_limit_of_conf_acts_where_a_statement_reads_clickhouse(
    places: Places, lake: str, how: str
) -> None:
    """Harm prevented: a server is read at full speed, although the limit was given and taken."""
    if how == "attach":
        run(places, "drop", lake, "--partition-id", "202402")
    seen = limits(places)

    code, out, err = run(places, *words_of(how, lake), "--conf", _LIMIT)

    assert (code, seen) == (0, [100_000_000]), out + err


@pytest.mark.parametrize("how", ["alter", "EXPORT"])
def test_the_limit_of_the_environment_is_that_of_statements_too(
    places: Places, lake: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """docs/operating/limits.md: given once for all commands. An option of the command overrides."""
    monkeypatch.setenv("MERGEBERG_MAX_BANDWIDTH", "50MB")
    words = words_of(how, lake)
    if how == "EXPORT":
        allowed = "SETTINGS allow_experimental_export_merge_tree_part = 1"
        words = [
            "alter",
            f"ALTER TABLE ch.db.other EXPORT PARTITION ALL TO TABLE {lake}b {allowed}",
        ]
    seen = limits(places)

    first, _, err = run(places, *words)
    assert (first, {*seen}) == (0, {50_000_000}), err
    monkeypatch.setenv("MERGEBERG_MAX_BANDWIDTH", "some")
    broken, _, err = run(places, *words)

    assert (broken, "Cannot read MERGEBERG_MAX_BANDWIDTH 'some': it is not a size" in err) == (
        2,
        True,
    ), err


@pytest.mark.parametrize(
    ("setting", "code", "message"),
    [
        ("max_exports_bandwith_for_server=1", 2, "Did you mean max_exports_bandwidth_for_server"),
        ("ledger=sqlite:/tmp/x.db", 2, "commands have the option --ledger instead"),
        ("source.ch=https://ch1.example", 2, "commands have the option --source instead"),
        ("policy=x", 2, "only a Spark session has it"),
        ("background_move_pool_size=0", 2, "'0' is not a whole number from 1"),
        ("export_merge_tree_part_max_rows_per_file=5", 3, "files are bounded by bytes"),
        ("export_merge_tree_partition_force_export=1", 3, "it is one of exports"),
    ],
)
@pytest.mark.parametrize("how", ["alter", "replace"])
def test_a_setting_of_conf_that_would_have_no_effect_is_refused(
    places: Places, lake: str, how: str, setting: str, code: int, message: str
) -> None:
    """Harm prevented: a misspelt limit is taken, and nothing is limited."""
    before = places.files()

    found, _, err = run(places, *words_of(how, lake), "--conf", f"spark.mergeberg.{setting}")

    assert (found, message in err) == (code, True), err
    assert places.files() == before


@pytest.mark.parametrize(
    ("what", "setting"),
    [
        ("DROP PARTITION ID '202402'", _LIMIT),
        ("REPLACE PARTITION ID '202402' FROM {lake}_other", _LIMIT),
        ("DROP PARTITION ID '202402'", "spark.mergeberg.mergeberg_attach_fast=1"),
    ],
)
def test_a_limit_is_refused_where_a_statement_reads_no_clickhouse(
    places: Places, lake: str, what: str, setting: str
) -> None:
    before = places.files()

    code, _, err = run(
        places, "alter", f"ALTER TABLE {lake} {what.format(lake=lake)}", "--conf", setting
    )

    assert (code, "Leave it out." in err) == (3, True), err
    assert places.files() == before


def test_settings_of_spark_itself_are_not_looked_at(places: Places, lake: str) -> None:
    words = ["alter", f"ALTER TABLE {lake} DROP PARTITION ID '202402'"]

    code, _, err = run(places, *words, "--conf", "spark.sql.shuffle.partitions=1")

    assert code == 0, err


_OF_EXPORTS = (
    ("max_exports_bandwidth_for_server=1000000", "has the option --max-bandwidth instead"),
    ("export_merge_tree_part_max_bytes_per_file=9", "has the option --target-file-size instead"),
    ("ledger=sqlite:/tmp/x.db", "commands have the option --ledger instead"),
    ("source.ch=https://ch1.example", "commands have the option --source instead"),
    ("allow_experimental_export_merge_tree_part=1", "it is one of statements"),
    ("mutations_sync=1", "it is one of statements"),
    ("mergeberg_attach_fast=1", "it is one of statements"),
    ("policy=x", "only a Spark session has it"),
    ("max_exports_bandwith_for_server=1", "it is not known. Did you mean max_exports_bandwidth"),
)


@pytest.mark.parametrize(("setting", "message"), _OF_EXPORTS)
@pytest.mark.parametrize("command", ["export", "archive"])
def test_commands_that_export_refuse_settings_of_statements(
    places: Places, command: str, setting: str, message: str
) -> None:
    """Harm prevented: a limit in --conf is taken, and a production server is read without it."""
    places.reads_parts = True
    words = [command, "db.events", "--all", "--to", "lake.n.unlimited"]
    words += ["--allow-alter"] if command == "archive" else []
    before = places.files()

    code, out, err = run(places, *words, "--conf", f"spark.mergeberg.{setting}")

    assert (code, message in err) == (2, True), out + err
    assert places.files() == before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("max_exports_bandwidth_for_server=1", "`mergeberg verify` does not use it. Leave it out."),
        ("warehouse=/tmp", "commands have the option --warehouse instead"),
        ("max_exports_bandwith_for_server=1", "it is not known"),
    ],
)
def test_verify_refuses_settings_that_it_does_not_use(
    places: Places, lake: str, setting: str, message: str
) -> None:
    conf = ("--conf", f"spark.mergeberg.{setting}")

    code, _, err = run(places, "verify", "db.events", "--all", "--to", lake, *conf)

    assert (code, message in err) == (2, True), err


@pytest.mark.parametrize(
    ("statement", "setting"),
    [
        ("KILL QUERY WHERE query_id = '1'", _LIMIT),
        ("ALTER TABLE ch.db.events DROP PARTITION ID '202402'", _LIMIT),
        ("ALTER TABLE ch.db.events DROP PARTITION ID '202402'", "spark.mergeberg.mutations_sync=2"),
        (
            f"{_EXPORT} SETTINGS allow_experimental_export_merge_tree_part = 1",
            "spark.mergeberg.mergeberg_attach_fast=1",
        ),
    ],
)
def test_statements_refuse_a_setting_that_they_do_not_use(
    places: Places, lake: str, statement: str, setting: str
) -> None:
    before = places.files()

    code, _, err = run(places, "alter", statement, "--allow-alter", "--conf", setting)

    assert (code, "Cannot use the setting spark.mergeberg." in err) == (3, True), err
    assert "Leave it out." in err, (lake, err)
    assert places.files() == before


def test_exports_take_settings_of_spark_itself(places: Places) -> None:
    places.reads_parts = True
    words = ["export", "db.events", "--all", "--to", "lake.n.by_spark"]

    code, _, err = run(places, *words, "--conf", "spark.sql.shuffle.partitions=1")

    assert code == 0, err
