"""The options of an export give one change of main, and the change says what it may touch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import MemoryLedger
from tableformat.committer import (
    Append,
    AppendAlongside,
    Attach,
    ByStatement,
    FileInMain,
    MainChange,
    NotSent,
    ReplaceOwn,
    ReplacePartition,
)
from tableformat.export.foreign_rows import may_append
from tableformat.export.main_state import Holding, Kind
from tableformat.export.request import ExportOptions
from tableformat.ledger import StatementKind
from tests.support.lake import claim, commit_of, commit_one, ports, receipt, rows_in_main

_NOTHING = Holding(Kind.NOTHING, "")
_GONE = Holding(Kind.GONE, "")
_OWN = Holding(Kind.WHOLE, "", (FileInMain("file:///t/f.parquet", 1, deletes=False),))


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (ExportOptions(), Append()),
        (ExportOptions(overwrite_file_if_exists=True), AppendAlongside()),
        (ExportOptions(force=True), ReplaceOwn()),
        (ExportOptions(force=True, overwrite_file_if_exists=True), ReplaceOwn(alongside=True)),
        (ExportOptions(force=True, replace_partition=True), ReplacePartition()),
        (ExportOptions(of_statement=StatementKind.ATTACH_FROM), Attach()),
        (
            ExportOptions(of_statement=StatementKind.ATTACH_FROM, overwrite_file_if_exists=True),
            Attach(),
        ),
        (ExportOptions(force=True, of_statement=StatementKind.REPLACE_FROM), ReplaceOwn()),
    ],
)
def test_options_give_one_change_of_main(options: ExportOptions, change: MainChange) -> None:
    """Harm prevented: an option is lost between the command and the commit."""
    assert options.change == change


@pytest.mark.parametrize(
    ("change", "first", "after_removal"),
    [
        (Append(), False, False),
        (AppendAlongside(), True, False),
        (ReplaceOwn(), False, False),
        (ReplaceOwn(alongside=True), True, True),
    ],
)
def test_each_change_says_whether_files_of_others_may_stay_next_to_it(
    change: Append | AppendAlongside | ReplaceOwn, *, first: bool, after_removal: bool
) -> None:
    """Harm prevented: rows that another writer rewrote are there twice after an export."""
    assert may_append(_NOTHING, change) is first
    assert may_append(_GONE, change) is after_removal
    assert may_append(_OWN, change)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (Append(), "would lose 6"),
        (AppendAlongside(), "would lose 6"),
        (Attach(), "Cannot attach"),
        (ReplacePartition(), "nothing can read its receipts"),
        (ByStatement(), "commits without its plan"),
        (ReplaceOwn(), ""),
    ],
)
def test_a_later_commit_of_fewer_rows_is_judged_by_its_change(
    table: IcebergTable, ledger: MemoryLedger, change: MainChange, refusal: str
) -> None:
    """Harm prevented: an export with fewer rows replaces one with more, although nobody asked."""
    first = claim(ledger, content="old")
    commit_one(ports(table, ledger), commit_of(first, table.load(), ledger))
    row = claim(ledger, content="new")
    wanted = commit_of(row, table.load(), ledger)
    fewer = replace(wanted.keys[0], receipts=(receipt(row, rows=4),), change=change)

    outcome = commit_one(ports(table, ledger), replace(wanted, keys=(fewer,)))

    if refusal:
        assert isinstance(outcome, NotSent)
        assert refusal in str(outcome.error)
    assert rows_in_main(table) == (10 if refusal else 4)
