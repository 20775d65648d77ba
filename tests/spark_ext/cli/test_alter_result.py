"""`mergeberg alter`: what became of each partition is written, whatever becomes of the others."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import signal
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.clickhouse.embedded import OwnClickHouse
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.cli.commands.statements import check_ending, write_outfile
from spark_ext.sql.clauses import Ending, Outfile
from tableformat.committer import Sent
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.slices import SliceTask, WritePlan
from tests.wrong.places import Places

ALLOWED = "SETTINGS allow_experimental_export_merge_tree_part = 1"
TWO = (
    "ALTER TABLE ch.db.events EXPORT PARTITION ID '202401' TO TABLE lake.n.{name}, "
    "EXPORT PARTITION ID '{second}' TO TABLE lake.n.{to}"
)


def run(places: Places, statement: str, *more: str) -> tuple[int, str, str]:
    where = ("--source", f"chdb:{places.clickhouse}", "--source-wait", "0.3")
    return places.run("alter", statement, *where, "--warehouse", str(places.warehouse), *more)


def unpacked_by(codec: str, packed: bytes) -> bytes:
    """Read a whole stream with Arrow's codec of that name."""
    with pa.input_stream(pa.py_buffer(packed), compression=codec) as stream:
        return bytes(stream.read())


def statuses_in(path: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["partition_id"], row["status"]) for row in rows]


def test_an_error_of_one_export_loses_no_result_and_no_other_export(places: Places) -> None:
    """Harm prevented: the first one's commits are shown nowhere, and the third is not tried."""
    path = places.root / "with_error.json"
    three = TWO.format(name="first", second="209912", to="first") + (
        ", EXPORT PARTITION ID '202402' TO TABLE lake.n.first"
    )

    code, out, err = run(places, f"{three} INTO OUTFILE '{path}' FORMAT JSONEachRow {ALLOWED}")

    assert (code, out) == (3, ""), err
    assert "209912" in err
    assert statuses_in(path) == [("202401", "committed"), ("202402", "committed")]


def test_errors_of_several_exports_are_all_reported(places: Places) -> None:
    """And where nothing came of it, no file is left that the next try is refused for."""
    path = places.root / "nothing.json"
    both = TWO.replace("202401", "209911").format(name="none", second="209912", to="none")

    code, out, err = run(places, f"{both} INTO OUTFILE '{path}' AND STDOUT {ALLOWED}")

    assert (code, out, path.exists()) == (3, "", False)
    assert "209911" in err
    assert "209912" in err


def test_an_interruption_leaves_the_result_of_committed_exports(places: Places) -> None:
    path = places.root / "interrupted.json"
    written: list[WritePlan] = []

    def interrupt_the_second(plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        written.append(plan)
        if len(written) > 1:
            raise KeyboardInterrupt

    places.before = interrupt_the_second
    two = TWO.format(name="left", second="202402", to="left")

    code, _, _ = run(places, f"{two} INTO OUTFILE '{path}' FORMAT JSONEachRow {ALLOWED}")

    assert code == 130
    assert statuses_in(path) == [("202401", "committed")]


def test_exports_that_a_stop_left_unbegun_are_reported(places: Places) -> None:
    """Harm prevented: a shutdown between two exports ends with 0, as if both were done."""

    def shut_down(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    places.before = shut_down
    two = TWO.format(name="shut", second="202402", to="shut")

    code, out, err = run(places, f"{two} FORMAT JSONEachRow {ALLOWED}")

    assert code == 4, err
    assert "202402" not in out
    assert "Cannot export db.events to lake.n.shut: the command was stopped before it began" in err


def test_a_killed_statement_exports_none_of_its_other_commands(places: Places) -> None:
    """Harm prevented: the error says that nothing else becomes visible, and the rest does."""
    killed: list[str] = []

    def kill(*_: object) -> None:
        if killed:
            return
        with contextlib.closing(SqliteLedger(places.warehouse / LEDGER_FILE)) as ledger:
            (row,) = (row for row in ledger.rows() if row.destination_table == "lake.n.killed")
        statement = f"KILL QUERY WHERE query_id = '{row.claim.query_id}' SYNC FORMAT CSV"
        killed.append(run(places, statement)[1])

    places.before = kill
    three = TWO.format(name="killed", second="202402", to="killed") + (
        ", EXPORT PARTITION ID '209912' TO TABLE lake.n.killed"
    )

    code, out, err = run(places, f"{three} FORMAT JSONEachRow {ALLOWED}")

    assert (code, "finished" in killed[0]) == (4, True), err
    assert [json.loads(line)["partition_id"] for line in out.splitlines()] == ["202401"]
    assert "nothing else of it becomes visible" in err
    assert err.count("Cannot ") == 1


@pytest.fixture
def lake(places: Places, request: pytest.FixtureRequest) -> str:
    """Return a lake table with the partitions 202401 and 202402."""
    name = f"lake.n.of_{abs(hash(request.node.name))}"
    code, _, err = places.run("export", "db.events", "--all", "--to", name)
    assert code == 0, err
    return name


def test_an_error_of_one_command_loses_no_result_of_those_before_it(
    places: Places, lake: str
) -> None:
    """Harm prevented: rows have left main, and neither the file nor the screen says so."""
    path = places.root / "detached.json"
    two = f"ALTER TABLE {lake} DETACH PARTITION 202402, DROP DETACHED PART '202402_7_7_0'"

    code, out, err = run(places, f"{two} INTO OUTFILE '{path}' FORMAT JSONEachRow")

    assert (code, out) == (3, ""), err
    assert "Cannot find part 202402_7_7_0" in err
    (row,) = (json.loads(line) for line in path.read_text().splitlines())
    assert (row["partition_id"], row["status"]) == ("202402", "detached")
    assert f"undone by ALTER TABLE {lake} ATTACH PARTITION ID '202402'" in row["message"]


def test_a_result_of_no_command_leaves_no_file(places: Places, lake: str) -> None:
    path = places.root / "none.json"
    one = f"ALTER TABLE {lake} DROP DETACHED PART '202402_7_7_0'"

    code, _, err = run(places, f"{one} INTO OUTFILE '{path}' FORMAT JSONEachRow")

    assert (code, path.exists()) == (3, False), err


def test_an_unknown_commit_counts_more_than_an_error_after_it(
    places: Places, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a program does not run a statement again that may have landed."""
    monkeypatch.setattr(IcebergTable, "send", lambda *_: Sent(applied=False, error="no answer"))
    two = f"ALTER TABLE {lake} DETACH PARTITION 202402, DROP DETACHED PART '202402_7_7_0'"

    code, out, err = run(places, two)

    assert (code, "202402: not known: it may have landed" in out) == (5, True), out + err
    assert "Cannot find part 202402_7_7_0" in err


def test_a_dry_run_says_all_errors_too(places: Places) -> None:
    two = TWO.format(name="rehearsed", second="209912", to="rehearsed")

    code, out, err = run(places, f"{two} {ALLOWED}", "--dry-run")

    assert code == 3, err
    assert ("202401" in out, "209912" in err) == (True, True)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_dry_run_of_exports_has_the_format(places: Places, more: tuple[str, ...]) -> None:
    """Harm prevented: a program that reads FORMAT gets a table for people from the dry run."""
    two = TWO.format(name="planned", second="202402", to="planned")

    code, out, err = run(places, f"{two} FORMAT JSONEachRow {ALLOWED}", "--dry-run", *more)

    rows = [json.loads(line) for line in out.splitlines()]
    found = [(row["partition_id"], row["status"], row["rows"]) for row in rows]
    assert (code, found) == (0, [("202401", "export", 1), ("202402", "export", 2)]), err


def test_a_dry_run_of_exports_writes_no_file(places: Places) -> None:
    path = places.root / "planned.json"
    two = TWO.format(name="planned", second="202402", to="planned")

    code, out, err = run(places, f"{two} INTO OUTFILE '{path}' FORMAT CSV {ALLOWED}", "--dry-run")

    assert (code, path.exists()) == (0, False), err
    assert ("action" in out, f"a dry run writes no result to {path}" in err) == (True, True)


def test_a_dry_run_of_what_clickhouse_runs_has_the_format(places: Places) -> None:
    statement = "ALTER TABLE ch.db.events DROP PARTITION ID '202401' FORMAT JSONEachRow"

    code, out, err = run(places, statement, "--dry-run", "--allow-alter")

    assert code == 0, err
    row = json.loads(out)
    assert (row["status"], row["message"]) == (
        "run",
        "it would be run by ClickHouse on db.events; nothing was done",
    )


def test_a_dry_run_of_a_kill_writes_no_file(places: Places) -> None:
    """Harm prevented: the kill itself is refused for the file of its dry run."""
    path = places.root / "killed.json"
    assert places.run("export", "db.events", "--all", "--to", "lake.n.to_kill")[0] == 0
    kill = f"KILL QUERY WHERE query_id = 'none' INTO OUTFILE '{path}' FORMAT CSV"

    code, _, err = run(places, kill, "--dry-run")

    assert (code, path.exists()) == (0, False), err
    assert f"a dry run writes no result to {path}" in err


@pytest.mark.parametrize("more", ["", "SETTINGS export_merge_tree_partition_wait = 0"])
def test_exports_are_waited_for(places: Places, more: str) -> None:
    """Harm prevented: a setting that is taken and does nothing."""
    one = "ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.waited"
    settings = f"{ALLOWED}, {more.removeprefix('SETTINGS ')}" if more else ALLOWED

    code, _, err = run(places, f"{one} {settings}")

    assert (code, "`mergeberg alter` ends with its exports" in err) == (
        (3, True) if more else (0, False)
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere/answer.tsv", "nowhere is not a directory. Create it"),
        ("", "it is a directory. Name a file"),
    ],
)
@pytest.mark.parametrize("mode", ["", "TRUNCATE", "APPEND"])
def test_nothing_is_exported_when_the_result_cannot_be_written(
    places: Places, tmp_path: Path, path: str, message: str, mode: str
) -> None:
    before = places.files()
    one = "ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.unwritten"

    code, _, err = run(places, f"{one} INTO OUTFILE '{tmp_path / path}' {mode} {ALLOWED}")

    assert (code, message in err) == (3, True), err
    assert places.files() == before


def test_a_file_that_came_into_being_meanwhile_is_kept(tmp_path: Path) -> None:
    """Harm prevented: it is looked for before an export of hours, and overwritten behind it."""
    outfile = Outfile(str(tmp_path / "answer.tsv"))
    check_ending(Ending(outfile))
    Path(outfile.path).write_text("mine")

    with pytest.raises(DestinationError, match="File exists"):
        write_outfile(outfile, b"ours")
    assert Path(outfile.path).read_text() == "mine"
    with pytest.raises(RefusedError, match="the file exists already"):
        check_ending(Ending(outfile))


UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.decompress,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "zst": partial(unpacked_by, "zstd"),
    "zstd": partial(unpacked_by, "zstd"),
    "br": partial(unpacked_by, "brotli"),
    "brotli": partial(unpacked_by, "brotli"),
    "lz4": partial(unpacked_by, "lz4"),
    "xz": lzma.decompress,
    "lzma": lzma.decompress,
    "bz2": bz2.decompress,
}
"""What reads a file back, by each name that ClickHouse has for its compression."""


@pytest.mark.parametrize("name", UNPACKED)
def test_a_file_is_compressed_as_its_name_or_the_clause_says(tmp_path: Path, name: str) -> None:
    """Harm prevented: plain text under a name that says zstd, which no program opens."""
    content = b"202401\tcommitted\t1\n" * 100
    by_name = Outfile(str(tmp_path / f"named.tsv.{name.upper()}"))
    by_clause = Outfile(str(tmp_path / "said.tsv"), compression=name, level=7)
    bare = Outfile(str(tmp_path / f"bare.{name}"), compression="none")

    for outfile in (by_name, by_clause, bare):
        check_ending(Ending(outfile))
        write_outfile(outfile, content)

    packed = [Path(one.path).read_bytes() for one in (by_name, by_clause)]
    assert [UNPACKED[name](one) for one in packed] == [content, content]
    assert max(map(len, packed)) < len(content)
    assert Path(bare.path).read_bytes() == content


@pytest.mark.parametrize("name", ["answer.zip", "gz", "a.gz/answer", "answer.tsv.", "answer"])
def test_a_name_that_clickhouse_does_not_know_is_plain(tmp_path: Path, name: str) -> None:
    outfile = Outfile(str(tmp_path / name))
    Path(outfile.path).parent.mkdir(exist_ok=True)

    check_ending(Ending(outfile))
    write_outfile(outfile, b"plain")

    assert Path(outfile.path).read_bytes() == b"plain"


@pytest.mark.parametrize("name", ["gz", "deflate", "br", "xz", "zst", "lz4", "snappy"])
def test_a_compressed_file_has_the_bytes_that_clickhouse_writes(tmp_path: Path, name: str) -> None:
    outfile = Outfile(str(tmp_path / f"ours.{name}"))

    write_outfile(outfile, b"1\t2\n")

    with OwnClickHouse("test") as clickhouse:
        there = clickhouse.directory / f"theirs.{name}"
        clickhouse.command(f"SELECT 1, 2 INTO OUTFILE '{there}' FORMAT TabSeparated")
        assert Path(outfile.path).read_bytes() == there.read_bytes()


@pytest.mark.parametrize(
    ("outfile", "code", "message"),
    [
        (Outfile("x", compression="zip"), 48, "compression zip: Unknown compression method 'zip'"),
        (Outfile("x.zst", level=23, compression="zstd"), 36, "compression zstd: Invalid compr"),
        (Outfile("x", level=0, compression="bz2"), 36, "compression bz2: Invalid compression lev"),
        (Outfile("x", level=30, compression="none"), 36, "compression none: Invalid compression"),
        (Outfile("x.br", append=True), 36, "Cannot append the result to x.br: it is compressed"),
    ],
)
def test_a_compression_that_cannot_be_written_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outfile: Outfile, code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(RefusedError) as refused:
        check_ending(Ending(outfile))

    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value
    assert list(tmp_path.iterdir()) == []


def test_an_empty_result_is_an_empty_compressed_file(tmp_path: Path) -> None:
    outfile = Outfile(str(tmp_path / "empty.xz"))

    write_outfile(outfile, b"")

    assert lzma.decompress(Path(outfile.path).read_bytes()) == b""
