"""Copies of data files: made by the file system where it can, else of their bytes."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from catalog.rewriting.copies import CopiedBytes
from catalog.storages.local import LocalStorage
from catalog.storages.schemes import Storages
from tableformat.committer import BranchFile
from tableformat.errors import DestinationError

CONTENT = b"PAR1" * 1_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> BranchFile:
    """Return a file that is there."""
    path = tmp_path / "a.parquet"
    path.write_bytes(CONTENT)
    return BranchFile(str(path), 1, len(CONTENT), 0)


def copying(directory: Path, hashes: dict[str, str] | None = None) -> CopiedBytes:
    return CopiedBytes(Storages(), Storages(), hashes or {}, directory / "scratch")


def test_a_file_gets_a_second_name_that_outlives_the_first(
    tmp_path: Path, file: BranchFile
) -> None:
    """Harm prevented: attaching a terabyte fills the disk; dropping one table empties the other."""
    to = tmp_path / "other" / "p=1" / "b.parquet"

    made = copying(tmp_path, {file.path: "as it was written"}).copy(file, str(to), "0-x")

    assert to.samefile(file.path)
    assert (made.path, made.attempt, made.sha256) == (str(to), "0-x", "as it was written")
    LocalStorage().delete(file.path)
    assert to.read_bytes() == CONTENT


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_where_it_gets_none_its_bytes_are_copied(
    tmp_path: Path, file: BranchFile, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Harm prevented: a disk that is another file system cannot be moved to."""

    def refuses(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuses)
    to = tmp_path / "b.parquet"

    made = copying(tmp_path).copy(file, str(to), "0-x")

    assert (made.sha256, to.read_bytes()) == (SHA256, CONTENT)
    assert not to.samefile(file.path)


def test_a_link_to_a_file_elsewhere_is_not_copied_as_a_link(
    tmp_path: Path, file: BranchFile
) -> None:
    """Harm prevented: what was moved by hand and linked is gone once that place is cleaned."""
    link, to = tmp_path / "link.parquet", tmp_path / "b.parquet"
    link.symlink_to(file.path)

    made = copying(tmp_path).copy(BranchFile(str(link), 1, file.bytes, 0), str(to), "0-x")

    assert (made.sha256, to.is_symlink(), to.read_bytes()) == (SHA256, False, CONTENT)


def test_without_a_hash_that_was_written_down_the_copy_is_read(
    tmp_path: Path, file: BranchFile
) -> None:
    assert copying(tmp_path).copy(file, str(tmp_path / "b.parquet"), "0-x").sha256 == SHA256


def test_a_copy_of_another_size_is_not_used(tmp_path: Path, file: BranchFile) -> None:
    of = BranchFile(file.path, 1, file.bytes + 1, 0)

    with pytest.raises(DestinationError, match="4,000 bytes of 4,001 arrived"):
        copying(tmp_path).copy(of, str(tmp_path / "b.parquet"), "0-x")
