"""What an owner sets for the files of a table stops no commit, and no reader of its metadata."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.typedef import Record

from tableformat.export.outcome import Status
from tableformat.operations.freeze import Freeze
from tests.support.lake_statements import (
    LATER,
    alone,
    attach,
    detach,
    drop,
    drop_detached,
    export_at,
    in_files,
    partition,
    running,
    tags,
)
from tests.support.scenarios import FORCED, Partitions, pyiceberg, rows_in_main
from tests.support.two_lake_tables import move, prepared, rows_of_p1

CODEC = "write.avro.compression-codec"
VALUES = [
    {CODEC: "uncompressed"},
    {CODEC: "snappy"},
    {CODEC: "GZIP"},
    {CODEC: "zstd"},
    {CODEC: "lz4"},
    {"write.object-storage.enabled": "maybe"},
    {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "maybe"},
    {"write.summary.partition-limit": "many"},
]


def settle(directory: Path, values: dict[str, str]) -> None:
    with pyiceberg(directory).transaction() as change:
        change.set_properties(values)


def codecs(directory: Path) -> set[str]:
    """Return the codecs of the manifests of main, as their headers name them."""
    table = pyiceberg(directory)
    snapshot = table.current_snapshot()
    found = set()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        with AvroFile[Record](table.io.new_input(manifest.manifest_path)) as file:
            found.add(file.header.meta["avro.codec"])
    return found


@pytest.mark.parametrize("values", VALUES, ids=lambda values: "-".join(values.values()))
def test_exports_and_statements_take_no_offence(tmp_path: Path, values: dict[str, str]) -> None:
    """Harm prevented: a crash, and a claim that nobody ends."""
    source = in_files(tmp_path)
    settle(tmp_path, values)

    assert export_at(tmp_path, source, LATER, FORCED)["p1"].status is Status.REPLACED
    running(tmp_path).run(detach("p1"))
    running(tmp_path).run(detach("p2"))
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert drop_detached(tmp_path, partition("p2")).status is Status.DROPPED
    assert alone(tmp_path, Freeze(partition("p1"), "kept")).status is Status.FROZEN
    assert running(tmp_path).run(drop("p1")).status is Status.DROPPED

    assert (rows_in_main(tmp_path), list(tags(tmp_path))) == (0, ["kept"])


def test_manifests_have_the_codec_that_every_reader_reads(tmp_path: Path) -> None:
    """Harm prevented: a manifest that a reader without Snappy or Zstandard cannot open."""
    source: Partitions = in_files(tmp_path)
    settle(tmp_path, {CODEC: "zstd"})

    export_at(tmp_path, source, LATER, FORCED)

    assert codecs(tmp_path) == {"deflate"}


@pytest.mark.parametrize("values", VALUES[:2], ids=lambda values: "-".join(values.values()))
def test_a_move_ends_with_the_rows_in_one_table(tmp_path: Path, values: dict[str, str]) -> None:
    """Harm prevented: the rows were added there, and their removal here could not be written."""
    prepared(tmp_path)
    settle(tmp_path, values)

    assert move(tmp_path).status is Status.MOVED

    assert rows_of_p1(tmp_path) == (0, 12)
