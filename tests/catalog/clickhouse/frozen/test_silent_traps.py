"""Parts that ClickHouse silently skips in a directory are refused with the reason.

In each case the partition is listed, never read as a smaller one, and the others are exported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.clickhouse.frozen.definition import FrozenSettings
from spark_ext.actions.check import CheckRequest, check_export
from tableformat.errors import NotFoundError, SourceError
from tableformat.names import PartitionId
from tests.support.clickhouse_source import Clickhouse
from tests.support.frozen_folders import Folders, freeze


@pytest.fixture
def folders(clickhouse: Clickhouse, tmp_path: Path) -> Folders:
    """Partition 0 in parts 0_1_1_0 and 0_3_3_0, partition 1 in 1_2_2_0."""
    name = clickhouse.table("ENGINE = MergeTree PARTITION BY p ORDER BY k")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 1000, 'late')")
    made = freeze(clickhouse, name, tmp_path)
    assert sorted(p.name for p in made.directory.iterdir()) == ["0_1_1_0", "0_3_3_0", "1_2_2_0"]
    return made


def flip(file: Path) -> None:
    """Turn one bit in the middle of a file, which may be a hard link to nothing else."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(bytes(content))


def no_checksums(part: Path) -> None:
    (part / "checksums.txt").unlink()


def cut_checksums(part: Path) -> None:
    os.truncate(part / "checksums.txt", 40)


def no_partition_value(part: Path) -> None:
    (part / "partition.dat").unlink()


def other_columns(part: Path) -> None:
    (part / "columns.txt").write_text("columns format version: 1\nnonsense\n")


def flipped_data(part: Path) -> None:
    flip(part / "data.bin")


def more_rows(part: Path) -> None:
    (part / "count.txt").write_text("51")


def fewer_rows(part: Path) -> None:
    (part / "count.txt").write_text("49")


def no_data(part: Path) -> None:
    (part / "data.bin").unlink()


def cut_data(part: Path) -> None:
    os.truncate(part / "data.bin", 100)


def linked_to_nowhere(part: Path) -> None:
    """Copy links without their targets."""
    for file in part.iterdir():
        file.unlink()
        file.symlink_to(f"nowhere/{file.name}")
    (part / "columns.txt").unlink()
    (part / "columns.txt").write_text("columns format version: 1\n")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (no_checksums, "the part 0_1_1_0 has no checksums.txt"),
        (linked_to_nowhere, "the part 0_1_1_0 has no checksums.txt"),
        (cut_checksums, "ClickHouse did not load the part 0_1_1_0"),
        (no_partition_value, "ClickHouse did not load the part 0_1_1_0"),
        (other_columns, "ClickHouse did not load the part 0_1_1_0"),
        (flipped_data, "0_1_1_0"),
        (more_rows, "0_1_1_0"),
        (fewer_rows, "0_1_1_0"),
        (no_data, ""),
        (cut_data, ""),
    ],
)
def test_a_damaged_part_refuses_its_partition_and_no_other(
    folders: Folders, damage: Callable[[Path], None], why: str
) -> None:
    damage(folders.directory / "0_1_1_0")

    with folders.source() as source:
        listed = [str(p.partition_id) for p in source.partitions(folders.table)]
        parts = [p.name for p in source.parts(folders.table, PartitionId("0"))]
    snapshot = folders.snapshot()

    assert listed == ["0", "1"]
    assert parts == ["0_1_1_0", "0_3_3_0"]
    assert [str(p.partition_id) for p in snapshot.partitions] == ["1"]
    ((one, error),) = snapshot.refused
    assert str(one) == "0"
    assert error.message.startswith("Cannot export partition 0 of ")
    assert why in error.message


def test_a_partition_of_which_no_part_opens_is_listed_and_refused(folders: Folders) -> None:
    """An export of everything must not end well without it."""
    no_checksums(folders.directory / "1_2_2_0")

    with folders.source() as source:
        (_, broken) = source.partitions(folders.table)
        assert (str(broken.partition_id), broken.parts, broken.rows) == ("1", 1, 50)
        (part,) = source.parts(folders.table, PartitionId("1"))
        assert (part.rows, part.hash_of_all_files) == (50, "not loaded")
        assert len(source.all_parts(folders.table)) == 3
        assert source.refusals(folders.table, (PartitionId("1"),)).keys() == {PartitionId("1")}
    assert folders.refusals().keys() == {"1"}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("secret", "are encrypted by the disk that they come from"),
        ("objects", "only points to an object of an object storage disk"),
    ],
)
def test_what_a_freeze_leaves_on_a_disk_that_is_not_plain_is_refused(
    clickhouse: Clickhouse, tmp_path: Path, policy: str, why: str
) -> None:
    """Neither has the parts in files that anybody else could open."""
    name = clickhouse.filled(
        f"ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS storage_policy = '{policy}'"
    )
    clickhouse.command(f"ALTER TABLE {name.sql} FREEZE WITH NAME 'on_{policy}'")
    ((statement,),) = clickhouse.rows(f"SHOW CREATE TABLE {name.sql}")
    (tmp_path / "t.sql").write_text(str(statement))
    ((root,),) = clickhouse.rows("SELECT path FROM system.disks WHERE name = 'default'")
    (shadow,) = Path(str(root)).parent.rglob(f"shadow/on_{policy}")
    made = Folders(name, FrozenSettings(shadow, tmp_path / "t.sql"), shadow)

    refused = made.refusals()

    assert refused.keys() == {"0", "1"}
    assert all(why in text for text in refused.values())


def test_when_no_part_opens_at_all_the_statement_is_suspected(folders: Folders) -> None:
    for part in folders.directory.iterdir():
        no_partition_value(part)

    with pytest.raises(
        SourceError, match=r"ClickHouse loaded none of 3 .* so they are damaged, or"
    ):
        folders.snapshot()


def test_a_name_that_covers_others_refuses_the_partition(folders: Folders) -> None:
    """206,708 rows became 51,677 without an error (docs/reference/source-parts.md)."""
    shutil.copytree(folders.directory / "0_3_3_0", folders.directory / "0_1_7_1")

    refused = folders.refusals()

    assert refused.keys() == {"0"}
    assert (
        "is covered by 0_1_7_1, so that ClickHouse shows only the rows of 0_1_7_1" in refused["0"]
    )


def test_two_copies_of_one_part_refuse_it_unless_declared_as_rows(
    folders: Folders,
) -> None:
    """Rows are never exported twice because a folder was copied; equal inserts are possible too."""
    shutil.copytree(folders.directory / "0_3_3_0", folders.directory / "0_9_9_0")

    refused = folders.refusals()
    kept = folders.with_settings(keep_equal_parts=True).snapshot()

    assert refused.keys() == {"0"}
    assert "the parts 0_3_3_0 and 0_9_9_0 hold the same 1 row, byte by byte" in refused["0"]
    assert [p.visible_rows for p in kept.partitions] == [52, 50]


def test_parts_of_one_partition_only_are_a_table_of_one_partition(folders: Folders) -> None:
    shutil.rmtree(folders.directory / "1_2_2_0")

    snapshot = folders.snapshot()

    assert [(str(p.partition_id), p.visible_rows) for p in snapshot.partitions] == [("0", 51)]


def test_other_folders_are_skipped_and_named(folders: Folders) -> None:
    others = ("0_1_1_0_try1", "delete_tmp_0_8_8_0", "detached", "tmp_insert_0_9_9_0")
    for name in others:
        shutil.copytree(folders.directory / "0_1_1_0", folders.directory / name)
    (folders.directory / "format_version.txt").write_text("1")

    with folders.source() as source:
        assert source.passed_over(folders.table) == others
        checked = check_export(
            CheckRequest(folders.table, None, {}, strict=False, partition_spec=None),
            source,
            None,
            None,
        )
    assert [p.visible_rows for p in folders.snapshot().partitions] == [51, 50]
    assert f"not read, because it is no part: {', '.join(others)}" in checked.warnings
    assert {*others, "format_version.txt"} < {p.name for p in folders.directory.iterdir()}


def test_an_empty_directory_is_no_empty_table(folders: Folders) -> None:
    """Harm prevented: a repeated run concludes that every partition was dropped."""
    for part in folders.directory.iterdir():
        shutil.rmtree(part)

    with folders.source() as source, pytest.raises(NotFoundError, match="there is no part folder"):
        source.partitions(folders.table)


def test_a_part_that_came_while_the_directory_was_open_is_not_exported(folders: Folders) -> None:
    """Only the listed parts are proved."""
    extra = folders.directory.parent / "1_9_9_0"
    shutil.move(folders.directory / "1_2_2_0", extra)
    with folders.source() as source:
        described = source.describe(folders.table)
        shutil.move(extra, folders.directory / "1_2_2_0")

        with pytest.raises(SourceError, match="folders changed while they were read: 1_2_2_0"):
            source.snapshot(described, (PartitionId("0"),), job="job")


def test_lightweight_updates_that_are_not_in_the_parts_refuse_the_partition(
    clickhouse: Clickhouse, tmp_path: Path
) -> None:
    """A FREEZE omits them without a trace; a copy of the table's directory has them."""
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS enable_block_number_column = 1,"
        " enable_block_offset_column = 1"
    )
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    made = freeze(clickhouse, name, tmp_path)
    clickhouse.command(f"UPDATE {name.sql} SET s = 'new' WHERE p = 1 AND k < 50")
    ((path,),) = clickhouse.rows(
        f"SELECT data_paths[1] FROM system.tables WHERE database = 'db' AND name = '{name.name}'"
    )
    shutil.rmtree(made.directory)
    shutil.copytree(str(path), made.directory)

    refused = made.refusals()

    assert refused.keys() == {"1"}
    assert (
        "holds lightweight updates of its rows. Run ALTER TABLE ... APPLY PATCHES" in refused["1"]
    )
    with made.source() as source:
        assert [str(p.partition_id) for p in source.partitions(name)] == ["0", "1"]


def test_a_mutation_that_was_not_done_at_the_copy_refuses_its_partitions(
    clickhouse: Clickhouse, tmp_path: Path
) -> None:
    name = clickhouse.filled()
    made = freeze(clickhouse, name, tmp_path)
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.command(
        f"ALTER TABLE {name.sql} UPDATE s = 'x' WHERE k = 1 SETTINGS mutations_sync = 0"
    )
    ((path,),) = clickhouse.rows(
        f"SELECT data_paths[1] FROM system.tables WHERE database = 'db' AND name = '{name.name}'"
    )
    shutil.rmtree(made.directory)
    shutil.copytree(str(path), made.directory)

    refused = made.refusals()

    assert refused.keys() == {"0", "1"}
    assert "is not finished" in refused["0"]
