"""Part folders are recognised without ClickHouse, and other folders are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.frozen.folders import PartFolders, find_folders
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError

_SHADOW = "shadow/1/store/654/65439ec1-e3f9-4a45-b3f8-9faefb74e1bc"
_CHECKSUMS = b"checksums format version: 4\n"


def parts(directory: Path, *names: str, checksums: bytes = _CHECKSUMS) -> Path:
    """Make folders that look like parts from outside."""
    for name in names:
        folder = directory / name
        folder.mkdir(parents=True)
        (folder / "checksums.txt").write_bytes(checksums)
        (folder / "columns.txt").write_text("columns format version: 1\n")
    return directory


def damage(found: PartFolders) -> dict[str, str]:
    return {str(part.name): part.damage for part in found.parts if part.damage}


@pytest.mark.parametrize("below", [_SHADOW, "shadow/7/data/db/t", "data/db/t", ""])
@pytest.mark.parametrize("given", ["shadow", "whole"])
def test_the_one_directory_with_parts_is_found_below_what_is_named(
    tmp_path: Path, below: str, given: str
) -> None:
    """A FREEZE of a new or an old server, a restored table, the directory itself."""
    parts(tmp_path / below, "202401_1_1_0", "202402_2_2_0")

    found = find_folders(tmp_path if given == "whole" else tmp_path / below)

    assert found.directory == tmp_path / below
    assert [str(part.name) for part in found.parts] == ["202401_1_1_0", "202402_2_2_0"]
    assert damage(found) == {}


def test_folders_that_ClickHouse_puts_next_to_parts_are_skipped_by_name(  # noqa: N802
    tmp_path: Path,
) -> None:
    others = ("detached", "tmp_insert_202401_9_9_0", "delete_tmp_202401_8_8_0", "202401_7_7_0.tmp")
    parts(tmp_path, "202401_1_1_0", *others, "detached/202401_3_3_0", "202401_1_1_0_try1")
    (tmp_path / "format_version.txt").write_text("1")

    found = find_folders(tmp_path)

    assert [str(part.name) for part in found.parts] == ["202401_1_1_0"]
    assert found.others == tuple(sorted((*others, "202401_1_1_0_try1")))


def test_several_tables_are_refused_with_their_directories(tmp_path: Path) -> None:
    """The parts of two disks or two tables are never one by chance."""
    parts(tmp_path / "shadow/1/data/db/a", "202401_1_1_0")
    parts(tmp_path / "shadow/1/data/db/b", "202401_1_1_0")

    with pytest.raises(RefusedError, match=r"2 directories below it hold parts: .*db/a, .*db/b"):
        find_folders(tmp_path)


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no part folder in it or below it; it is empty"):
        find_folders(tmp_path)


def test_a_directory_of_other_files_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("x")

    with pytest.raises(NotFoundError, match=r"it holds readme.txt\. Name the directory"):
        find_folders(tmp_path)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="it does not exist"):
        find_folders(tmp_path / "nope")


def test_an_archive_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "backup.zip").write_bytes(b"PK")

    with pytest.raises(NotFoundError, match=r"backup\.zip: it is a file; unpack it first"):
        find_folders(tmp_path / "backup.zip")


@pytest.mark.parametrize("name", ["202402_2_2_0.tar", "202402_2_2_0.tar.gz", "202402_2_2_0.zip"])
def test_a_packed_part_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """It would be missing without a word."""
    parts(tmp_path, "202401_1_1_0")
    (tmp_path / name).write_bytes(b"x")

    with pytest.raises(RefusedError, match=rf"{name} is packed"):
        find_folders(tmp_path)


def test_a_folder_with_only_the_name_of_a_part_is_refused(tmp_path: Path) -> None:
    """A copy that was cut off is not taken for a smaller table."""
    parts(tmp_path, "202401_1_1_0")
    (tmp_path / "202402_2_2_0").mkdir()

    with pytest.raises(RefusedError, match="202402_2_2_0 has the name of a part and none of"):
        find_folders(tmp_path)


@pytest.mark.parametrize("where", ["", "data", "data/db/t"])
def test_a_backup_that_was_not_restored_is_refused(tmp_path: Path, where: str) -> None:
    """A backup stores equal files of its parts only once."""
    parts(tmp_path / "data/db/t", "202401_1_1_0")
    (tmp_path / ".backup").write_text("<config/>")

    with pytest.raises(RefusedError, match=r"is a backup, .*Restore it first \(RESTORE TABLE"):
        find_folders(tmp_path / where)


def test_parts_of_the_old_syntax_are_refused(tmp_path: Path) -> None:
    parts(tmp_path, "20240101_20240131_1_1_0")

    with pytest.raises(UnsupportedError, match="20240101_20240131_1_1_0 has the name of a part of"):
        find_folders(tmp_path)


@pytest.mark.parametrize(
    ("names", "damaged", "why"),
    [
        (("202401_1_1_0", "202401_2_2_0", "202401_1_2_1"), ("202401_1_1_0", "202401_2_2_0"),
         "is covered by 202401_1_2_1"),
        (("202401_1_1_0", "202401_1_1_0_5"), ("202401_1_1_0",), "is covered by 202401_1_1_0_5"),
        (("202401_1_3_1", "202401_2_4_1"), ("202401_2_4_1",), "hold some of the same blocks"),
        (("202401_1_9_2", "202401_2_2_0", "202401_5_7_1"), ("202401_2_2_0", "202401_5_7_1"),
         "is covered by 202401_1_9_2"),
    ],
)  # fmt: skip
def test_a_part_that_hides_others_is_seen(
    tmp_path: Path, names: tuple[str, ...], damaged: tuple[str, ...], why: str
) -> None:
    """ClickHouse would show the rows of one of them only."""
    found = damage(find_folders(parts(tmp_path, *names, "202402_1_9_9")))

    assert found.keys() == set(damaged)
    assert all(why in text for text in found.values())


@pytest.mark.parametrize(
    ("checksums", "why"),
    [
        (b"ENC\1\0\0\0", "are encrypted by the disk"),
        (b"3\n1\t120\n", "only points to an object of an object storage disk"),
        (b"", "is damaged, or only points"),
    ],
)
def test_files_that_are_not_the_parts_own_are_seen(
    tmp_path: Path, checksums: bytes, why: str
) -> None:
    parts(tmp_path, "202401_1_1_0", checksums=checksums)

    assert why in damage(find_folders(tmp_path))["202401_1_1_0"]


def test_a_part_without_checksums_is_seen(tmp_path: Path) -> None:
    parts(tmp_path, "202401_1_1_0")
    (tmp_path / "202401_1_1_0" / "checksums.txt").unlink()

    assert "has no checksums.txt" in damage(find_folders(tmp_path))["202401_1_1_0"]


def test_a_symbolic_link_is_seen(tmp_path: Path) -> None:
    """ClickHouse passes over it without a word."""
    parts(tmp_path / "elsewhere", "202402_2_2_0")
    parts(tmp_path / "here", "202401_1_1_0")
    (tmp_path / "here" / "202402_2_2_0").symlink_to(tmp_path / "elsewhere" / "202402_2_2_0")

    found = damage(find_folders(tmp_path / "here"))

    assert found.keys() == {"202402_2_2_0"}
    assert "is a symbolic link" in found["202402_2_2_0"]


def test_lightweight_updates_refuse_the_partition_that_they_change(tmp_path: Path) -> None:
    patch = f"patch-{'0a' * 16}-202401_3_3_0"
    parts(tmp_path, "202401_1_1_0", patch)

    found = find_folders(tmp_path)

    assert [part.partition_id for part in found.parts] == ["202401", "202401"]
    assert "holds lightweight updates" in damage(found)[patch]
