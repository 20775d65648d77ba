"""Files come to main only if readers can read them by the columns that the table has now."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, RemoveSchemasUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from catalog.rewriting.copies import CopiedFiles, RewrittenCopies
from catalog.rewriting.integrity import refuse_unreadable
from tableformat.committer import MAIN_BRANCH
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.iceberg.schema_evolution import unreadable
from tableformat.iceberg.snapshot import table_of
from tableformat.storage import Storage
from tests.support.lake_statements import attach, detach, in_files, running, whereabouts
from tests.support.scenarios import lake, pyiceberg, row_of

_LONG = NestedField(1, "n", LongType(), required=True)
_TEXT = NestedField(1, "n", StringType(), required=True)
_MORE = NestedField(2, "more", StringType(), required=False)
_NEEDED = NestedField(2, "more", StringType(), required=True)


def replace_columns(table: Table, *columns: NestedField, forgets: bool = False) -> None:
    """Give a table other columns, as CREATE OR REPLACE TABLE does; forget the earlier ones."""
    before = [s.schema_id for s in table.metadata.schemas]
    new = Schema(*columns, schema_id=max(before) + 1)
    table.catalog.commit_table(table, (), (AddSchemaUpdate(schema=new), SetCurrentSchemaUpdate()))
    if forgets:
        now = table.refresh()
        removed = RemoveSchemasUpdate.model_validate({"schema-ids": before})
        table.catalog.commit_table(now, (), (removed,))


@pytest.mark.parametrize("forgets", [False, True], ids=["known", "removed"])
@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ((_TEXT,), "column n is string, and was written as long"),
        ((_LONG, _NEEDED), "column more is required, and was not written"),
    ],
    ids=["another type", "a required column"],
)
def test_files_of_other_columns_do_not_return(
    tmp_path: Path, columns: tuple[NestedField, ...], why: str, *, forgets: bool
) -> None:
    """Harm prevented: every reader of main fails, or reads NULL where a value is required."""
    in_files(tmp_path)
    running(tmp_path).run(detach("p1"))
    replace_columns(pyiceberg(tmp_path), *columns, forgets=forgets)
    before = whereabouts(tmp_path)

    with pytest.raises(RefusedError, match=f"{why}.*Nothing was changed"):
        running(tmp_path).run(attach("p1"))

    assert whereabouts(tmp_path) == before


@pytest.mark.parametrize("forgets", [False, True], ids=["known", "removed"])
def test_files_return_to_a_table_with_one_more_column(tmp_path: Path, *, forgets: bool) -> None:
    in_files(tmp_path)
    running(tmp_path).run(detach("p1"))
    replace_columns(pyiceberg(tmp_path), _LONG, _MORE, forgets=forgets)

    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED


@pytest.mark.parametrize("copier", [CopiedFiles, RewrittenCopies])
def test_files_of_other_columns_are_not_copied(
    tmp_path: Path, copier: type[CopiedFiles | RewrittenCopies]
) -> None:
    """Harm prevented: REPLACE and ATTACH … FROM a snapshot bring what nobody can read."""
    in_files(tmp_path)
    replace_columns(pyiceberg(tmp_path), _TEXT)
    table = lake(tmp_path)
    state = table.load()
    files = table.files_on(state, MAIN_BRANCH)

    with pytest.raises(RefusedError, match="column n is string, and was written as long"):
        copier(state, table.storages, state, table.storages)(row_of(tmp_path, "p1"), files)


def test_files_are_opened_only_if_a_schema_does_not_fit(tmp_path: Path) -> None:
    """Harm prevented: ATTACH of a thousand files in a store reads each of them for nothing."""
    in_files(tmp_path)
    replace_columns(pyiceberg(tmp_path), _LONG, _MORE)
    table = lake(tmp_path)
    state = table.load()

    opened: list[str] = []

    def storages(location: str) -> Storage:
        opened.append(location)
        return table.storages(location)

    files = table.files_on(state, MAIN_BRANCH)
    refuse_unreadable(storages, state, table_of(state).schema(), files)

    assert len(files) > 1
    assert opened == []


@pytest.mark.parametrize(
    ("now", "written", "is_readable"),
    [
        (_LONG, NestedField(1, "n", IntegerType(), required=True), True),
        (NestedField(1, "n", IntegerType(), required=True), _LONG, False),
        (_LONG, NestedField(1, "was", LongType(), required=True), True),
        (_LONG, NestedField(1, "n", LongType(), required=False), False),
        (_MORE, _LONG, True),
    ],
    ids=["promoted", "narrowed", "renamed", "made required", "added"],
)
def test_rows_are_readable_by_what_iceberg_lets_columns_become(
    now: NestedField, written: NestedField, *, is_readable: bool
) -> None:
    assert (unreadable(Schema(now), Schema(written)) == "") is is_readable
