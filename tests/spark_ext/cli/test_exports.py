"""`mergeberg exports`: the manifest, the log, the counters, the watermark, and to forget.

RQ…Logging, RQ…Metrics, RQ…SystemTables.Exports; N-10 … N-15, N-23, N-40, P-10, P-11.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers import uris
from catalog.processes import this_process
from spark_ext.cli.main import invoke
from tableformat.effects import Step
from tableformat.errors import SourceError, UsageError
from tableformat.ledger import Lease, Ledger, Owner, Row
from tableformat.ledger_text import parse_manifest
from tableformat.quantities import parse_duration
from tests.support.scenarios import AtStep, Partitions, run
from tests.support.scene import TWO_FILES
from tests.wrong.places import Places

EVENTS = "(ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree PARTITION BY toYYYYMM(ts)"


@pytest.fixture
def words(places: Places, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the export of a table of the test's own: 202401 with a row, 202402 with two."""
    name = f"t{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} {EVENTS} ORDER BY id",
        f"INSERT INTO db.{name} SELECT toDateTime('2024-01-31', 'UTC') + number * 86400, number, ''"
        " FROM numbers(3)",
    )
    return ("export", f"db.{name}", "--to", f"lake.n.{name}")


@contextlib.contextmanager
def ledger_of(places: Places) -> Iterator[Ledger]:
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as opened:
        yield opened


def row_of(places: Places, table: str, partition: str) -> Row:
    with ledger_of(places) as ledger:
        (row,) = (
            r for r in ledger.rows() if (r.source_table, r.key.partition_id) == (table, partition)
        )
    return row


def log_of(places: Places, table: str, *more: str) -> list[dict[str, Any]]:
    return [*places.outcomes("exports", "log", "--table", table, *more)]


def counters(places: Places) -> dict[str, int]:
    found = places.outcomes("exports", "events")
    return {str(one["event"]): int(str(one["value"])) for one in found}


def watermark(places: Places, words: tuple[str, ...]) -> dict[str, Any]:
    of = ("--table", words[1], *words[2:], "--source", f"chdb:{places.clickhouse}")
    (found,) = places.outcomes("exports", "watermark", *of)
    return found


def test_the_manifest_of_an_export_is_printed_and_can_be_checked(
    places: Places, words: tuple[str, ...]
) -> None:
    """N-10 … N-15: the fields of the notes, over several lines, with a checksum that holds."""
    (done,) = places.outcomes(*words, "--partition-id", "202402")

    code, out, _ = places.run("exports", "show", "202402", "--table", words[1], "--json")

    found = parse_manifest(out)
    assert code == 0
    assert out.startswith('{\n  "transaction_id": "')
    assert (found.transaction_id, found.partition_id, found.destination, found.completed) == (
        done["transaction_id"], "202402", words[3], True,
    )  # fmt: skip
    assert (str(found.snapshot_id), found.rows) == (done["snapshot_id"], 2)
    (part,) = found.parts
    assert part.part_name == "202402_2_2_0"
    assert [part.remote_path] == [*part.remote_paths]
    assert part.remote_path.endswith(".parquet")
    assert int(found.transaction_id) >> 22 > 1_600_000_000_000, "no snowflake of our time"


def test_a_failed_export_has_a_manifest_that_is_not_completed(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: a source partition is dropped because a manifest was there."""

    def fail(*_: object) -> None:
        message = "Cannot read the source: the disk is on fire. Call for help."
        raise SourceError(message)

    places.before = fail
    places.run(*words, "--partition-id", "202401")

    found = parse_manifest(
        places.run("exports", "show", "202401", "--table", words[1], "--json")[1]
    )

    assert (found.completed, found.snapshot_id) == (False, None)
    assert [p.remote_path for p in found.parts] == [""]
    assert "on fire" in found.last_error


def test_each_part_has_its_file_in_the_manifest_before_the_others_have(tmp_path: Path) -> None:
    """N-15. Harm prevented: of a run of hours nobody can tell which parts are exported."""
    where = ("--warehouse", str(tmp_path / "warehouse"), "--ledger", f"sqlite:{tmp_path}/ledger.db")
    shown: list[str] = []

    def look() -> None:
        # As if the second file were still being written.
        (gone,) = (tmp_path / "warehouse").rglob("metadata/mergeberg/*/*/1-*.json")
        gone.unlink()
        for words in (("--json",), ()):
            out = io.StringIO()
            assert invoke(["exports", "show", "p1", *words, *where], out, io.StringIO()) == 0
            shown.append(out.getvalue())

    run(tmp_path, Partitions(), request=TWO_FILES, effects=AtStep(Step.NOTE_WRITTEN, look))

    found = parse_manifest(shown[0])
    assert (found.state, found.completed) == ("RUNNING", False)
    first, second = found.parts
    assert first.remote_path.endswith(".parquet")
    assert Path(first.remote_path.removeprefix("file://")).exists()
    assert (second.remote_path, second.remote_paths) == ("", ())
    assert shown[1].count(first.remote_path) == 1


def status_of(places: Places, words: tuple[str, ...]) -> tuple[str, str]:
    """Return status and last error of 202401, as they are listed."""
    found = places.outcomes("exports", "list")
    (one,) = (r for r in found if (r["source_table"], r["partition_id"]) == (words[1], "202401"))
    return str(one["status"]), str(one["last_error"])


def test_an_export_whose_process_is_gone_is_interrupted_at_once(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: nobody runs it again for a minute, because a dead process has the lease."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    places.before = interrupt
    assert places.run(*words, "--partition-id", "202401")[0] == 130
    assert status_of(places, words) == ("INTERRUPTED", "interrupted")
    key = row_of(places, words[1], "202401").key.hash
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    me = this_process()
    for owner, status in ((replace(me, pid=gone.pid), "INTERRUPTED"), (me, "IN_PROGRESS")):
        with ledger_of(places) as ledger:
            lease = ledger.take_lease(key, owner, 60.0)
            assert isinstance(lease, Lease)
            assert status_of(places, words)[0] == status
            ledger.release(lease)

    shown = places.run("exports", "show", "202401", "--table", words[1])[1]

    assert re.search(r"^resumable +yes$", shown, re.MULTILINE)


def test_a_cancelled_export_shows_since_when_nothing_of_it_can_land(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: KILLED, and nobody can say what a late request is compared with."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    places.before = interrupt
    places.run(*words, "--partition-id", "202401")
    places.run("exports", "cancel", "202401", "--table", words[1])
    lake = open_catalog("lake", warehouse=places.warehouse).catalog.load_table(words[3][5:])
    main = lake.metadata.current_snapshot()
    assert main is not None

    message = (
        f"given up: nothing sent before snapshot {main.snapshot_id} (sequence number "
        f"{main.sequence_number}) can land any more"
    )
    assert status_of(places, words) == ("KILLED", message[:100])
    shown = places.run("exports", "show", "202401", "--table", words[1])[1]
    assert message in shown
    assert re.search(r"^resumable +no$", shown, re.MULTILINE)


def test_under_a_group_commit_each_partition_has_a_manifest_of_its_own(
    places: Places, words: tuple[str, ...]
) -> None:
    """N-28: two partitions become visible in one snapshot, and each tells its own parts."""
    places.run(*words, "--all")

    first, second = (
        parse_manifest(places.run("exports", "show", p, "--table", words[1], "--json")[1])
        for p in ("202401", "202402")
    )

    assert first.snapshot_id == second.snapshot_id
    assert first.transaction_id != second.transaction_id
    assert [p.part_name for p in first.parts + second.parts] == ["202401_1_1_0", "202402_2_2_0"]


def test_the_log_lists_each_exported_part_and_each_refusal(
    places: Places, words: tuple[str, ...]
) -> None:
    places.run(*words, "--partition-id", "202402")
    places.run(*words, "--partition-id", "202402")

    part, whole, refused = log_of(places, words[1])
    assert (part["part_name"], part["status"], part["rows"]) == ("202402_2_2_0", "committed", 2)
    assert part["bytes_read"] > 0
    assert part["bytes_written"] == whole["bytes_written"] > 0
    assert (whole["part_name"], whole["partition"], whole["error"]) == ("", "202402", "")
    assert {e["event_type"] for e in (part, whole, refused)} == {"EXPORT_PARTITION"}
    assert (refused["status"], refused["bytes_written"]) == ("already_exported", 0)
    assert "in the lake, snapshot" in refused["error"]
    text = places.run("exports", "log", "--table", words[1])[1]
    assert "event_time" in text.splitlines()[0]
    assert len(text.splitlines()) == 4


def test_the_log_can_be_asked_for_the_last_hour(places: Places, words: tuple[str, ...]) -> None:
    places.run(*words, "--partition-id", "202402")
    with ledger_of(places) as ledger:
        (newest, *_) = (e for e in ledger.events(None, 100) if e.table == words[1])
        ledger.note((replace(newest, time=newest.time - 3_700_000),))

    assert len(log_of(places, words[1])) == 3
    assert len(log_of(places, words[1], "--since", "1h")) == 2
    assert log_of(places, words[1], "--since", "0s") == []


def test_the_counters_count_source_parts(places: Places, words: tuple[str, ...]) -> None:
    before = counters(places)
    places.run(*words, "--all")
    places.run(*words, "--all")

    after = counters(places)
    assert {name: after[name] - before.get(name, 0) for name in after} == {
        "PartsExports": 2, "PartsExportFailures": 0, "PartsExportDuplicated": 2, "Export": 0,
    }  # fmt: skip


def test_what_is_exported_now_is_counted(places: Places, words: tuple[str, ...]) -> None:
    """A lease alone is none: statements on the lake table take it, too."""
    seen: list[int] = []
    places.before = lambda *_: seen.append(counters(places)["Export"])
    places.run(*words, "--all")
    row = row_of(places, words[1], "202402")
    with ledger_of(places) as ledger:
        ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)

    assert (seen, counters(places)["Export"]) == ([2], 0)


def test_the_watermark_rises_by_partitions_and_a_merge_does_not_stop_it(
    places: Places, words: tuple[str, ...]
) -> None:
    """N-40: never inside a partition, and never above one that is missing."""
    places.clickhouse_run(f"INSERT INTO {words[1]} VALUES ('2024-02-03', 9, '')")
    places.run(*words, "--partition-id", "202402")
    first = watermark(places, words)
    assert (first["watermark"], first["stopped_by"], first["message"]) == (
        None, "202401", "it was never exported",
    )  # fmt: skip

    places.run(*words, "--partition-id", "202401")
    places.clickhouse_run(f"OPTIMIZE TABLE {words[1]} FINAL")

    second = watermark(places, words)
    assert (second["watermark"], second["reached"], second["stopped_by"]) == ("202402", 2, None)


def test_one_sentence_reports_the_watermark_and_what_stops_it(
    places: Places, words: tuple[str, ...]
) -> None:
    places.run(*words, "--partition-id", "202401")
    asked = ("exports", "watermark", "--table", words[1], *words[2:])

    code, out, _ = places.run(*asked, "--source", f"chdb:{places.clickhouse}")

    table, lake = words[1], words[3]
    sentence = f"{table} is in {lake} up to partition 202401 (1 of 2); partition 202402 stops it: "
    assert (code, out) == (0, f"{sentence}it was never exported\n")


def test_a_forgotten_export_is_replaced_when_the_source_changed(
    places: Places, words: tuple[str, ...]
) -> None:
    """N-23: the refusal ends, and nothing else: what is in main is replaced, not doubled."""
    export = (*words, "--partition-id", "202402", "--manifest-ttl", "0")
    (done,) = places.outcomes(*export)
    places.clickhouse_run(f"INSERT INTO {words[1]} VALUES ('2024-02-03', 9, '')")
    assert [o["status"] for o in places.outcomes(*export)] == ["refused"]
    before = row_of(places, words[1], "202402")

    code, out, _ = places.run("exports", "forget", "202402", "--table", words[1], *words[2:])

    after = row_of(places, words[1], "202402")
    assert code == 0
    assert f"exporting it again is no longer refused. {'The ledger still knows what landed'}" in out
    assert str(done["snapshot_id"]) in out
    assert before.done is not None
    assert after.done == replace(before.done, forgotten=True)
    assert (after.landed, after.claim, after.state) == (before.landed, before.claim, before.state)
    (replaced,) = places.outcomes(*export)
    assert (replaced["status"], replaced["rows"]) == ("replaced", 3)


def test_what_never_completed_or_is_unknown_cannot_be_forgotten(
    places: Places, words: tuple[str, ...]
) -> None:
    """P-11: an id that the ledger does not know is an error."""

    def fail(*_: object) -> None:
        message = "Cannot read the source: the disk is on fire. Call for help."
        raise SourceError(message)

    places.before = fail
    places.run(*words, "--partition-id", "202401")

    begun = places.run("exports", "forget", "202401", "--table", words[1])
    unknown = places.run("exports", "forget", "202402", "--table", words[1])

    assert (begun[0], unknown[0]) == (3, 3)
    assert "no export of it has completed, so none refuses another" in begun[2]
    assert "List what it has with `mergeberg exports list`" in unknown[2]


def test_of_two_destinations_one_must_be_named(places: Places, words: tuple[str, ...]) -> None:
    """Harm prevented: the export to the other lake is forgotten too."""
    other = f"{words[3]}_too"
    places.run(*words, "--partition-id", "202402")
    places.run(*words[:3], other, "--partition-id", "202402")

    code, _, err = places.run("exports", "forget", "202402", "--table", words[1])
    named = places.run("exports", "forget", "202402", "--table", words[1], "--to", other)

    assert (code, named[0]) == (2, 0)
    assert f"it was exported to {words[3]}, {other}. Name one of them with --to." in err


def test_a_structured_log_is_written_where_the_user_chose(
    places: Places, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an option or the environment; results and messages stay where they are."""
    file = places.root / "log.json"
    file.unlink(missing_ok=True)
    command = [*words, "--partition-id", "202402", *_places(places)]
    out, err = io.StringIO(), io.StringIO()
    assert invoke(["--log", f"json:{file}", *command], out, err) == 0
    objects = [json.loads(line) for line in file.read_text().splitlines()]

    of_it = [o["event"] for o in objects if o["partition_id"] == "202402"]
    assert of_it == ["claimed", "written", "sent", "landed", "settled", "committed"]
    assert "partition 202402: exported" in out.getvalue()
    assert '"event"' not in out.getvalue() + err.getvalue()

    monkeypatch.setenv("MERGEBERG_LOG", "json")
    again = places.run(*words, "--partition-id", "202402")
    assert [json.loads(line)["event"] for line in again[2].splitlines() if "202402" in line] == [
        "already_exported"
    ]


def test_options_of_the_log_stand_before_or_after_the_command(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: "No such option" for what the first page of the help has."""
    file = places.root / "levels.json"
    command = [*words, "--partition-id", "202402", *_places(places)]

    def levels(*arguments: str) -> set[str]:
        file.unlink(missing_ok=True)
        assert invoke(arguments, io.StringIO(), io.StringIO()) == 0
        return {json.loads(line)["level"] for line in file.read_text().splitlines()}

    assert levels("--log", f"json:{file}", *command) == {"info"}
    assert levels(*command, "--log", f"json:{file}") == {"info"}
    assert levels(*command, f"--log=json:{file}", "--log-level", "debug") == {"info", "debug"}
    assert levels(*command, "--log-level=error", "--log", f"json:{file}") == set()


def _places(places: Places) -> tuple[str, ...]:
    source = ("--source", f"chdb:{places.clickhouse}")
    return (*source, "--warehouse", str(places.warehouse))


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("0s", 0), ("30s", 30_000), ("15m", 900_000), ("7d", 604_800_000)]
)
def test_a_duration_is_read(text: str, milliseconds: int) -> None:
    assert parse_duration("--since", text) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "h", "1 h", "-1h", "1w", "1.5h", "٣h", "1h30m"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Write for example --since 30s, 15m, 1h or 7d"):
        parse_duration("--since", text)
