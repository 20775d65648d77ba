"""Rows wait on this host's disk until the last of them was read, and nothing of them is left."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.clickhouse.slice_reader import read_first
from tableformat.errors import DestinationError, SourceError

BATCHES = tuple(
    pa.record_batch({"n": pa.array([n, None]), "s": pa.array(["ä" * n, ""])}) for n in range(5)
)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class Reader:
    """Gives batches, and knows whether it is still there."""

    def __init__(self, ends_with: Exception | None = None) -> None:
        self.is_open, self.ends_with = False, ends_with

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        self.is_open = True
        try:
            yield from BATCHES
            if self.ends_with is not None:
                raise self.ends_with
        finally:
            self.is_open = False


def test_nothing_reads_any_more_when_the_first_rows_come(scratch: Path) -> None:
    reader = Reader()

    with_reader = [(batch, reader.is_open) for batch in read_first(reader.batches())]

    assert with_reader == [(batch, False) for batch in BATCHES]
    assert list(scratch.iterdir()) == []


def test_of_no_rows_there_are_none(scratch: Path) -> None:
    def nothing() -> Generator[pa.RecordBatch, None, None]:
        yield from ()

    assert list(read_first(nothing())) == []
    assert list(scratch.iterdir()) == []


def test_a_reader_that_stops_in_the_middle_leaves_nothing(scratch: Path) -> None:
    """Harm prevented: each export that is interrupted leaves its rows on the disk, readable."""
    rows = read_first(Reader().batches())
    assert next(rows) == BATCHES[0]
    (made,) = scratch.iterdir()
    assert made.stat().st_mode & 0o077 == 0

    rows.close()

    assert list(scratch.iterdir()) == []


def test_a_reader_that_fails_at_its_end_gives_no_rows(scratch: Path) -> None:
    """Harm prevented: only its size shows that a stream was cut."""
    reader = Reader(ends_with=SourceError("Cannot read: it was cut. Run again."))

    with pytest.raises(SourceError, match="it was cut"):
        next(read_first(reader.batches()))

    assert not reader.is_open
    assert list(scratch.iterdir()) == []


def test_an_error_of_the_reader_is_not_one_of_this_hosts_disk() -> None:
    """Harm prevented: who must mend the server is sent to look at TMPDIR."""
    with pytest.raises(ConnectionResetError):
        next(read_first(Reader(ends_with=ConnectionResetError()).batches()))


def test_a_host_without_room_says_which_directory_and_what_to_do(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is a real one that is always full."""
    reader, opened = Reader(), pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda _, mode="rb": opened("/dev/full", mode))

    with pytest.raises(DestinationError) as caught:
        next(read_first(reader.batches()))

    assert caught.value.message.startswith(f"Cannot keep the rows of a file in {scratch}/")
    assert "TMPDIR" in caught.value.message
    cause = caught.value.__cause__
    assert isinstance(cause, OSError)
    assert cause.errno == errno.ENOSPC
    assert not reader.is_open
