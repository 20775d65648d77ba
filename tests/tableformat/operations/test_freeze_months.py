"""FREEZE and UNFREEZE of the months whose ids begin with a text, as tables of the old syntax do."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.clickhouse_codes import DIRECTORY_ALREADY_EXISTS
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.names import PartitionId
from tableformat.operations.freeze import Freeze, Months, Target, Unfreeze
from tableformat.operations.statement import AllPartitions, OnePartition
from tests.support.cleaning_up import left_behind
from tests.support.lake_statements import (
    LATER,
    ForeignPartitions,
    add_foreign,
    alone,
    drop,
    export_at,
    rows_of_tag,
    running,
    tags,
)
from tests.support.scenarios import Partitions, parts_of, rows_in_main, run, state

ALL = AllPartitions()
OF_2024 = Months("2024")
ROWS = {"202312": 4, "202401": 7, "202402": 3}
NAMES = (f"n{number}" for number in itertools.count())


def month(name: str) -> OnePartition:
    return OnePartition(PartitionId(name))


def exported(directory: Path) -> Partitions:
    """Bring three months into the lake."""
    source = Partitions(by_id={name: parts_of(name, rows) for name, rows in ROWS.items()})
    run(directory, source)
    assert rows_in_main(directory) == sum(ROWS.values())
    return source


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    return exported(tmp_path)


def test_months_that_came_later_are_frozen_and_unfrozen_one_by_one(tmp_path: Path) -> None:
    """Harm prevented: UNFREEZE looks in the tag of all months alone, and finds nothing."""
    source = Partitions(by_id={"202312": parts_of("202312", 4)})
    run(tmp_path, source)
    alone(tmp_path, Freeze(ALL, "y"))
    source.by_id |= {name: parts_of(name, ROWS[name]) for name in ("202401", "202402")}
    export_at(tmp_path, source, LATER)

    assert alone(tmp_path, Freeze(OF_2024, "y")).status is Status.FROZEN
    assert alone(tmp_path, Unfreeze(month("202401"), "y")).status is Status.UNFROZEN

    assert rows_of_tag(tmp_path, "y") == 4
    assert rows_of_tag(tmp_path, "y.2024") == ROWS["202402"]
    assert alone(tmp_path, Unfreeze(Months("202"), "y")).status is Status.UNFROZEN
    assert tags(tmp_path) == {}


@pytest.mark.usefixtures("source")
def test_months_that_begin_alike_are_kept_by_one_tag(tmp_path: Path) -> None:
    done = alone(tmp_path, Freeze(OF_2024, "y"))
    running(tmp_path).run(drop("202401"))

    assert (done.status, done.partition_id, done.rows) == (Status.FROZEN, "2024*", 10)
    assert done.message == "under the name 'y', tag y"
    assert rows_of_tag(tmp_path, "y") == 10
    noted = json.loads(state(tmp_path).properties["mergeberg.frozen.y"])
    assert (noted["name"], noted["partition"], noted["snapshot"]) == (
        "y",
        "2024*",
        done.snapshot_id,
    )
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("source")
def test_when_all_months_begin_so_the_tag_is_of_main(tmp_path: Path) -> None:
    done = alone(tmp_path, Freeze(Months("20")))

    assert (done.message, done.rows) == ("under the name '1', tag 1", 14)
    assert tags(tmp_path) == {"1": state(tmp_path).main}


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("statement", [Freeze(Months("2025"), "y"), Unfreeze(OF_2024, "y")])
def test_months_that_are_not_there_are_passed_over(
    tmp_path: Path, statement: Freeze | Unfreeze
) -> None:
    before = state(tmp_path).metadata_location

    assert alone(tmp_path, statement).status is Status.EMPTY
    assert state(tmp_path).metadata_location == before


@pytest.mark.usefixtures("source")
def test_a_month_is_taken_off_its_year_and_frozen_anew(tmp_path: Path) -> None:
    alone(tmp_path, Freeze(OF_2024, "y"))

    assert alone(tmp_path, Unfreeze(month("202401"), "y")).status is Status.UNFROZEN
    assert rows_of_tag(tmp_path, "y") == ROWS["202402"]
    assert alone(tmp_path, Unfreeze(month("202401"), "y")).status is Status.EMPTY
    with pytest.raises(RefusedError, match="the partitions that begin with 2024 are frozen"):
        alone(tmp_path, Freeze(month("202402"), "y"))
    assert alone(tmp_path, Freeze(month("202401"), "y")).status is Status.FROZEN
    assert rows_of_tag(tmp_path, "y.202401") == ROWS["202401"]
    assert alone(tmp_path, Freeze(Months("2023"), "y")).message.endswith("tag y.2023")

    assert alone(tmp_path, Unfreeze(OF_2024, "y")).status is Status.UNFROZEN
    assert set(tags(tmp_path)) == {"y.2023"}


@pytest.mark.usefixtures("source")
def test_months_are_taken_off_a_tag_of_all_with_those_that_have_their_own(tmp_path: Path) -> None:
    """Harm prevented: of both only one goes, and the name still has rows of these months."""
    alone(tmp_path, Freeze(ALL, "b"))
    alone(tmp_path, Unfreeze(month("202401"), "b"))
    alone(tmp_path, Freeze(month("202401"), "b"))

    assert alone(tmp_path, Unfreeze(OF_2024, "b")).status is Status.UNFROZEN

    assert (set(tags(tmp_path)), rows_of_tag(tmp_path, "b")) == ({"b"}, ROWS["202312"])
    assert alone(tmp_path, Freeze(OF_2024, "b")).message.endswith("tag b.2024")
    assert alone(tmp_path, Unfreeze(ALL, "b")).status is Status.UNFROZEN
    names = [n for n in state(tmp_path).properties if "frozen." in n]
    assert (tags(tmp_path), names) == ({}, [])


def test_it_is_the_rows_of_that_moment(tmp_path: Path, source: Partitions) -> None:
    alone(tmp_path, Freeze(OF_2024, "y"))
    source.by_id["202402"] = parts_of("202402", 50)
    export_at(tmp_path, source, LATER)

    assert alone(tmp_path, Unfreeze(month("202401"), "y")).status is Status.UNFROZEN

    assert (rows_of_tag(tmp_path, "y"), rows_in_main(tmp_path)) == (3, 61)


@pytest.mark.usefixtures("source")
def test_a_dry_run_freezes_no_month(tmp_path: Path) -> None:
    before = state(tmp_path).metadata_location

    said = alone(tmp_path, Freeze(OF_2024, "y"), dry_run=True)

    assert (said.rows, said.message) == (10, "would be frozen under the name 'y', tag y")
    assert state(tmp_path).metadata_location == before


@pytest.mark.usefixtures("source")
def test_a_file_of_others_counts_where_all_its_rows_are_in_such_months(tmp_path: Path) -> None:
    """Harm prevented: a backup of the year has rows of another year, or lacks some of its own."""
    path = add_foreign(tmp_path, 5)

    def frozen(name: str, *months: str) -> int | None:
        one = running(tmp_path, rows=ForeignPartitions({path: frozenset(months)}))
        return Freeze(OF_2024, name).run(one.ports, one.partitions).rows

    assert frozen("within", "202401", "202402") == 15
    assert frozen("outside", "202312", "202511") == 10
    with pytest.raises(RefusedError, match=r"holds rows of 202401 and of 202312\. Rewrite"):
        frozen("both", "202312", "202401")
    assert (rows_of_tag(tmp_path, "within"), rows_of_tag(tmp_path, "outside")) == (15, 10)


@pytest.fixture(scope="module")
def lake_of_months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("months")
    exported(directory)
    return directory


targets = st.sampled_from([ALL, OF_2024, Months("20"), Months("2023"), *map(month, ROWS)])


def months_of(target: Target) -> frozenset[str]:
    match target:
        case OnePartition(PartitionId(name)):
            return frozenset({name})
        case Months(prefix):
            return frozenset(name for name in ROWS if name.startswith(prefix))
        case AllPartitions():
            return frozenset(ROWS)


def tried(directory: Path, statement: Freeze | Unfreeze) -> Status | int | None:
    """Run a statement; return what became of it, or ClickHouse's code of the refusal."""
    try:
        return alone(directory, statement).status
    except RefusedError as error:
        return error.code


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from([Freeze, Unfreeze]), targets), max_size=6))
def test_a_name_has_what_was_frozen_by_it_and_not_unfrozen(
    lake_of_months: Path, steps: list[tuple[type[Freeze | Unfreeze], Target]]
) -> None:
    """Harm prevented: rows of a backup are lost with others, or are in two tags of its name."""
    name, kept = next(NAMES), frozenset[str]()
    for kind, target in steps:
        these = months_of(target)
        done = tried(lake_of_months, kind(target, name))
        if kind is Unfreeze:
            assert done is (Status.UNFROZEN if kept & these else Status.EMPTY)
            kept -= these
        elif kept & these or done is not Status.FROZEN:
            assert done == DIRECTORY_ALREADY_EXISTS
        else:
            kept |= these
        own = [tag for tag in tags(lake_of_months) if tag.partition(".")[0] == name]
        rows = sum(rows_of_tag(lake_of_months, tag) for tag in own)
        assert (rows, bool(own)) == (sum(ROWS[one] for one in kept), bool(kept))
    alone(lake_of_months, Unfreeze(ALL, name))
    noted = [one for one in state(lake_of_months).properties if "frozen." in one]
    assert (tags(lake_of_months), noted) == ({}, [])
