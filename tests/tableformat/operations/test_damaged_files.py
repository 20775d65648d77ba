"""Files that were damaged: what finds it, by the whole comparison and by the fast one."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.rewriting import integrity as intact_files
from catalog.rewriting.copies import CopiedFiles
from catalog.rewriting.integrity import checks, refuse_other_bytes
from catalog.storages.local import LocalStorage
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, BranchFile
from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome, Status
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.names import PartitionId
from tableformat.operations.attach import Attach
from tableformat.operations.statement import AllPartitions, OnePart
from tableformat.operations.take_out import Detach
from tests.support import two_lake_tables
from tests.support.cleaning_up import left_behind
from tests.support.lake_statements import (
    LATER,
    attach,
    detach,
    drop,
    drop_detached,
    export_at,
    in_files,
    on,
    running,
    whereabouts,
)
from tests.support.scenarios import lake, row_of, rows_in_main
from tests.support.two_lake_tables import (
    P1,
    copy,
    fetch,
    move,
    other,
    prepared,
    rows_of_p1,
    to_other,
)


def flip(path: Path) -> None:
    """Change one bit of a value, which size, footer and number of rows do not show."""
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    # Behind the header of the page, which is some 20 bytes long.
    data[start + 30] ^= 1
    path.write_bytes(data)


def replace_by(path: Path, rows: int) -> None:
    """Put another valid file of the same schema in its place."""
    schema = pq.read_schema(path)
    pq.write_table(pa.table([pa.array(range(rows))], schema), path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another valid file": lambda path: replace_by(path, 9_000),
    "no Parquet of that size": lambda path: path.write_bytes(b"x" * path.stat().st_size),
    "missing": Path.unlink,
}
COPIED = ("a flipped bit", "truncated", "missing")
FOUND_BY_SIZE = ("truncated", "emptied", "longer", "another valid file", "missing")


def ways(how: str) -> tuple[bool, ...]:
    """Return the ways of comparing that find a damage, True for the fast one."""
    return (False, True) if how in FOUND_BY_SIZE else (False,)


def first_of(files: Counter[str]) -> Path:
    """Return the first of some files."""
    return Path(urlparse(min(files)).path)


def attached(directory: Path, statement: Attach, *, fast: bool) -> Outcome:
    """Attach as a new process, by the whole comparison or by the fast one."""
    one, found = running(directory), lake(directory)
    location = found.load().location
    intact = partial(checks(fast=fast), found.storages, location, lambda _: None)
    return replace(one, ports=replace(one.ports, intact=intact)).run(statement)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_refuses_attach_whole_and_is_named(tmp_path: Path, how: str) -> None:
    """Harm prevented: readers of main fail, or read other rows than were exported."""
    in_files(tmp_path)
    running(tmp_path).run(detach("p1"))
    before = whereabouts(tmp_path)
    path = first_of(before[1])
    DAMAGES[how](path)
    part = Attach(OnePart(lake_part_name(PartitionId("p1"), min(before[1]))))

    for statement, fast in itertools.product((attach("p1"), part), ways(how)):
        with pytest.raises(RefusedError, match=f"Cannot use .*{path.name}: it") as refused:
            attached(tmp_path, statement, fast=fast)
        assert "Nothing was changed" in str(refused.value)
        assert "\n" not in str(refused.value)

    assert whereabouts(tmp_path) == before
    assert left_behind(tmp_path) == []


def test_all_damaged_files_are_named_at_once(tmp_path: Path) -> None:
    """Harm prevented: one bad file after the other, with an hour of comparing before each."""
    source = in_files(tmp_path)
    running(tmp_path).run(Detach(AllPartitions()))
    files = sorted(on(tmp_path, DETACHED_BRANCH))
    for path in files[:2]:
        flip(Path(urlparse(path).path))

    with pytest.raises(RefusedError, match="Cannot use 2 of 3 files: ") as refused:
        attached(tmp_path, Attach(AllPartitions()), fast=False)

    assert [path in str(refused.value) for path in files] == [True, True, False]
    assert (rows_in_main(tmp_path), len(source.rows)) == (0, 2)


def test_the_good_files_attach_once_the_bad_one_is_dropped(tmp_path: Path) -> None:
    """By the part whose file the message names; the rows of the bad one are exported again."""
    source = in_files(tmp_path)
    running(tmp_path).run(detach("p1"))
    path = min(on(tmp_path, DETACHED_BRANCH))
    flip(Path(urlparse(path).path))
    with pytest.raises(RefusedError):
        attached(tmp_path, attach("p1"), fast=False)

    drop_detached(tmp_path, OnePart(lake_part_name(PartitionId("p1"), path)))
    back = attached(tmp_path, attach("p1"), fast=False)

    assert (back.status, back.data_files) == (Status.ATTACHED, 1)
    assert 0 < rows_in_main(tmp_path) < sum(source.rows.values())
    outcome = export_at(tmp_path, source, LATER)["p1"]
    assert outcome.status is Status.REFUSED, (
        "the rows that are not in main are not taken for exported"
    )


@pytest.mark.parametrize("how", ["a flipped bit", "no Parquet of that size"])
def test_the_fast_form_does_not_find_what_has_the_same_size(tmp_path: Path, how: str) -> None:
    """What it is for: time that does not grow with the bytes. Its page says what it leaves out."""
    in_files(tmp_path)
    running(tmp_path).run(detach("p1"))
    DAMAGES[how](first_of(on(tmp_path, DETACHED_BRANCH)))

    assert attached(tmp_path, attach("p1"), fast=True).status is Status.ATTACHED


@pytest.mark.parametrize(
    "how",
    [pytest.param(one, marks=() if one in COPIED else pytest.mark.nightly) for one in DAMAGES],
)
def test_no_statement_copies_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """By ATTACH and REPLACE FROM and FETCH; neither table changes."""
    source = in_files(tmp_path)
    to_other(tmp_path, source)
    running(tmp_path).run(drop("p1"))
    tables = lake(tmp_path), other(tmp_path)
    key = replace(row_of(tmp_path, "p1").key, destination=tables[1].load().layout.table_uuid)
    path = first_of(Counter(f.path for f in tables[1].files_of(tables[1].load(), key.hash)))
    DAMAGES[how](path)
    before = [one.load().metadata_location for one in tables]

    statements: tuple[Callable[..., Outcome], ...] = (copy, partial(copy, replaces=True), fetch)
    for statement, fast in itertools.product(statements, ways(how)):
        compared = partial(CopiedFiles, checks=checks(fast=fast))
        monkeypatch.setattr(two_lake_tables, "CopiedFiles", compared)
        done = statement(tmp_path, P1)
        assert done.status is Status.FAILED, done
        assert re.search(f"Cannot use .*{path.name}: it", done.message), done

    assert [one.load().metadata_location for one in tables] == before


@pytest.mark.parametrize("fast", [False, True])
def test_a_damaged_file_is_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> None:
    """Harm prevented: it is gone here, and there it has a receipt that calls it right."""
    compared = partial(CopiedFiles, checks=checks(fast=fast))
    monkeypatch.setattr(two_lake_tables, "CopiedFiles", compared)
    prepared(tmp_path)
    key = row_of(tmp_path, "p1").key.hash
    path = first_of(Counter(p for p in on(tmp_path, MAIN_BRANCH) if key in p))
    DAMAGES["truncated"](path)

    done = move(tmp_path)

    assert (done.status, path.name in done.message) == (Status.FAILED, True), done
    assert rows_of_p1(tmp_path) == (12, 0)


def test_the_bytes_of_a_copy_are_compared_with_those_that_were_written() -> None:
    """Harm prevented: after the fast comparison damage has a receipt that calls it right."""
    files = tuple(BranchFile(f"/t/{name}.parquet", 1, 1, 0) for name in "ab")
    written = {files[0].path: "x"}

    refuse_other_bytes(files, written, {files[0].path: "x", files[1].path: "y"})
    with pytest.raises(RefusedError, match=r"Cannot use /t/a\.parquet: its bytes"):
        refuse_other_bytes(files, written, {files[0].path: "z", files[1].path: "y"})


def test_thousands_of_sizes_are_asked_of_the_storage_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is gone of them is still found."""
    in_files(tmp_path)
    running(tmp_path).run(detach("p1"))
    monkeypatch.setattr(intact_files, "_PAGE", 2)
    path = first_of(on(tmp_path, DETACHED_BRANCH))
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(RefusedError, match=f"Cannot use .*{path.name}: it is gone"):
        attached(tmp_path, attach("p1"), fast=True)

    path.write_bytes(data)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "size", None)
        patch.setattr(LocalStorage, "fetch", None)
        assert attached(tmp_path, attach("p1"), fast=True).status is Status.ATTACHED
