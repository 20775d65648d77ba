"""The judge of a chaos run notices what it is there for, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tableformat.export.request import ExportOptions
from tableformat.iceberg.snapshot import table_of
from tests.chaos.judge import Judge
from tests.chaos.world import Report, World
from tests.support.scenarios import ALL, Partitions, ledger_rows, pyiceberg, run, state


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Path, Judge]:
    """Export two partitions, one of them twice, and call the judge."""
    source = Partitions()
    run(tmp_path, source)
    run(tmp_path, source, request=replace(ALL, options=ExportOptions(force=True)))
    return tmp_path, judge(tmp_path)


def judge(directory: Path) -> Judge:
    keys = {r.key.partition_id: r.key.hash for r in ledger_rows(directory)}
    return Judge(state(directory).metadata_location, keys, World(directory).removed.io())


def dangling(directory: Path, of: Judge) -> int:
    return of.dangling(table_of(state(directory)).metadata, World(directory).locations())


def test_an_ordinary_history_is_right(judged: tuple[Path, Judge]) -> None:
    directory, of = judged
    versions = of.read()

    assert of.wrong == []
    assert dangling(directory, of) == 0
    assert of.rows_in(versions[-1]) == {"p1": 12, "p2": 3}


def test_rows_that_are_shown_twice_are_noticed(judged: tuple[Path, Judge]) -> None:
    """Harm prevented: a chaos run that cannot fail."""
    directory, _ = judged
    table = pyiceberg(directory)
    old = next(s for s in table.metadata.snapshots if s.parent_snapshot_id)
    gone = [e for m in old.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as add:
        add.append_data_file(gone[0].data_file)

    of = judge(directory)
    of.read()

    assert len(of.wrong) == 1
    assert of.wrong[0].startswith("doubled: snapshot ")


def test_a_file_that_is_not_there_is_noticed(judged: tuple[Path, Judge]) -> None:
    directory, of = judged
    first = next(iter(pyiceberg(directory).scan().plan_files()))
    Path(urlparse(first.file.file_path).path).unlink()

    assert dangling(directory, of) == 1


def test_a_report_that_was_never_true_is_noticed(judged: tuple[Path, Judge]) -> None:
    _, of = judged
    versions = of.read()
    true = Report("p1", "unchanged", 12, None, "", versions[-1].since, versions[-1].since + 9)
    untrue = [
        replace(true, rows=11),
        replace(true, begun=0, ended=versions[0].since),
    ]

    assert list(of.false_reports([true], versions)) == []
    assert len(list(of.false_reports(untrue, versions))) == 2


def test_an_export_that_was_called_killed_and_is_seen_is_noticed(
    judged: tuple[Path, Judge],
) -> None:
    directory, of = judged
    versions = of.read()
    row = next(r for r in ledger_rows(directory) if r.key.partition_id == "p1")
    killed = Report("p1", "killed", 0, None, "", 0, 1, row.landed[0].transaction_id)

    (text,) = of.false_reports([killed], versions)
    assert text.endswith("its rows were seen in a snapshot")
    assert list(of.false_reports([replace(killed, transaction_id="7")], versions)) == []


def test_what_was_cleaned_up_is_still_read(judged: tuple[Path, Judge]) -> None:
    """Harm prevented: what expired snapshots showed is judged no more once it is cleaned up."""
    directory, of = judged
    table = pyiceberg(directory)
    moved = [Path(urlparse(s.manifest_list).path) for s in table.metadata.snapshots]
    removed = directory / "removed"
    for path in moved:
        kept = removed / path.relative_to("/")
        kept.parent.mkdir(parents=True, exist_ok=True)
        path.rename(kept)

    versions = of.read()

    assert of.rows_in(versions[-1]) == {"p1": 12, "p2": 3}
