"""What `--all` prints: what was done at once, what is wrong last, and what it comes to."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable

import pytest

from spark_ext.cli.output import TextOutput
from spark_ext.cli.summary import Detail, Effect, Line, Summary
from tests.wrong.places import Places

MONTHS = 8


@pytest.fixture
def words(places: Places, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the export of a table of the test's own, of eight partitions of one row."""
    name = f"t{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (ts DateTime('UTC'), id Int64) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(ts) ORDER BY id",
        f"INSERT INTO db.{name} SELECT addMonths(toDateTime('2024-01-31', 'UTC'), number), number"
        f" FROM numbers({MONTHS})",
    )
    return (f"db.{name}", "--all", "--to", f"lake.n.{name}")


def late_row(places: Places, words: tuple[str, ...]) -> None:
    """Add a row to 202403, so that its next export is refused for a while."""
    places.clickhouse_run(f"INSERT INTO {words[0]} SELECT toDateTime('2024-03-01', 'UTC'), 99")


def test_unchanged_partitions_are_one_line_and_what_is_wrong_is_last(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: the one refusal of 3,000 partitions scrolls away, and nothing sums up."""
    first = places.run("export", *words)[1].splitlines()
    assert [line.split(": ")[1].split(" ·")[0] for line in first[:-1]] == ["exported"] * MONTHS
    assert re.fullmatch(r"8 exported · 8 rows · [\d.]+ KiB · [\d.]+ s", first[-1])

    late_row(places, words)
    code, out, _ = places.run("export", *words)

    lines = out.splitlines()
    assert code == 3
    assert lines[0] == "7 partitions already exported: 202401 … 202408 (-v lists them)"
    assert lines[1].startswith("partition 202403: refused: ")
    assert re.fullmatch(r"7 already exported, 1 refused · [\d.]+ s", lines[2])
    assert len(lines) == 3


def test_quiet_is_what_is_wrong_and_the_sum_and_verbose_is_everything(
    places: Places, words: tuple[str, ...]
) -> None:
    code, out, err = places.run("export", *words, "--quiet")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    late_row(places, words)

    quiet = places.run("export", *words, "-q")[1].splitlines()
    verbose = places.run("export", *words, "-v")[1].splitlines()

    assert [line.split(":")[0] for line in quiet[:-1]] == ["partition 202403"]
    assert len(verbose) == MONTHS + 1
    assert verbose[-2].startswith("partition 202403: refused")
    code, _, err = places.run("export", *words, "-q", "-v")
    assert (code, "--quiet and --verbose are given" in err) == (2, True)


def test_programs_get_every_partition_and_a_summary(places: Places, words: tuple[str, ...]) -> None:
    _, out, _ = places.run("export", *words, "--json")

    *outcomes, last = map(json.loads, out.splitlines())
    assert [one["status"] for one in outcomes] == ["committed"] * MONTHS
    assert set(last) == {"summary"}
    found = last["summary"]
    assert (found["partitions"], found["rows"]) == ({"committed": MONTHS}, MONTHS)
    assert found["bytes"] == sum(one["bytes"] for one in outcomes)
    assert found["seconds"] > 0


def test_of_one_partition_that_was_named_there_is_no_summary(
    places: Places, words: tuple[str, ...]
) -> None:
    named = (words[0], "--partition-id", "202401", *words[2:])

    assert len(places.run("export", *named)[1].splitlines()) == 1
    assert len(places.run("export", *named, "--json")[1].splitlines()) == 1


def test_verify_and_archive_sum_up_as_well(places: Places, words: tuple[str, ...]) -> None:
    places.reads_parts = True
    places.run("export", *words)
    late_row(places, words)

    verified = places.run("verify", *words)[1].splitlines()
    archived = places.run("archive", *words, "--where", "partition_id < '202403'")[1].splitlines()
    objects = places.run("archive", *words, "--where", "partition_id = '202404'", "--json")[1]

    assert re.fullmatch(r"7 equal, 1 not comparable · 7 rows · [\d.]+ s", verified[-1]), verified
    assert verified[-2].startswith("partition 202403: not comparable")
    assert re.fullmatch(r"2 detached · 2 rows · [\d.]+ s", archived[-1]), archived
    assert all("source" in one or "summary" in one for one in map(json.loads, objects.splitlines()))


def line(show: Callable[[], None], effect: Effect) -> Line:
    return Line("p", "refused", "refused", effect, show)


def test_what_was_held_back_is_shown_also_when_it_is_interrupted() -> None:
    """Harm prevented: after Ctrl-C nobody knows what had been refused."""
    shown: list[str] = []

    def interrupted() -> None:
        with Summary(TextOutput(), Detail.NORMAL, of_all=True, as_json=False) as summary:
            summary.add(line(lambda: shown.append("refused"), Effect.WRONG))
            assert shown == []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert shown == ["refused"]
