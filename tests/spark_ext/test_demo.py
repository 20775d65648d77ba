"""`mergeberg demo`: a user's first five minutes, here with few rows."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.cli.main import invoke
from spark_ext.demo.data import MONTHS, fill, months
from spark_ext.demo.directory import DemoDirectory
from spark_ext.demo.readers import Measures, differences, query_duckdb

ROOT = Path(__file__).parents[2]
ROWS = 3000


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and its output."""

    code: int
    out: str
    err: str


def run(*arguments: str, **environment: str) -> Ended:
    """Run the demo in a process of its own, as a user does."""
    return mergeberg("demo", *arguments, **environment)


def mergeberg(*words: str, **environment: str) -> Ended:
    """Run a command in a process of its own, as a user does."""
    ended = subprocess.run(
        [sys.executable, "-c", "from spark_ext.cli.main import run; run()", *words],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        text=True,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def run_here(*arguments: str) -> Ended:
    """Run the demo in this process: it must not start Spark."""
    return in_this_process("demo", *arguments)


def in_this_process(*words: str) -> Ended:
    """Run a command in this process: it must not start Spark."""
    out, err = io.StringIO(), io.StringIO()
    code = invoke(list(words), out, err)
    return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoDirectory, Ended]:
    place = DemoDirectory(tmp_path_factory.mktemp("demo") / "demo")
    return place, run("--directory", str(place.path), "--rows", str(ROWS))


@pytest.fixture
def made(first: tuple[DemoDirectory, Ended]) -> DemoDirectory:
    place, ended = first
    assert ended.code == 0, ended.err
    return place


@contextlib.contextmanager
def moved(path: Path, away: Path) -> Iterator[None]:
    path.rename(away)
    try:
        yield
    finally:
        away.rename(path)


def metadata(place: DemoDirectory) -> str:
    table = place.lake_table()
    assert table is not None
    return str(table.loaded.metadata_location)


@pytest.mark.spark
def test_the_first_run_shows_what_it_does_and_all_readers_agree(
    first: tuple[DemoDirectory, Ended],
) -> None:
    place, ended = first

    assert (ended.code, "Next:" in ended.err) == (0, False)
    for number in "1234":
        assert f"\n{number}. " in ended.out
    for partition in ("202401", "202402", "202403"):
        assert f"partition {partition}: exported · {ROWS:,} rows · 1 file · " in ended.out
    assert ended.out.count(" · snapshot ") == 3
    assert ended.out.count(f"{3 * ROWS:,}  ") == 2
    assert "All three results are equal." in ended.out
    assert f"mergeberg exports list --warehouse {place.warehouse}" in ended.out


@pytest.mark.spark
def test_the_second_run_changes_nothing_and_starts_no_spark(made: DemoDirectory) -> None:
    """People run it twice; a second copy of every row would be a bad first impression."""
    before = metadata(made)

    ended = run("--directory", str(made.path), SPARK_HOME="/nowhere")

    assert ended.code == 0, ended.err
    assert ended.out.count(": already exported") == 3
    assert "Nothing was written" in ended.out
    assert "Spark" not in ended.err
    assert metadata(made) == before


@pytest.mark.spark
def test_programs_get_an_object_per_partition_and_one_with_the_results(
    made: DemoDirectory,
) -> None:
    ended = run_here("--directory", str(made.path), "--json")
    records = [json.loads(line) for line in ended.out.splitlines()]

    assert (ended.code, ended.err) == (0, "")
    assert [x.get("partition_id") for x in records] == ["202401", "202402", "202403", None]
    results = records[-1]["answers"]
    assert set(results) == {"ClickHouse", "PyIceberg", "DuckDB"}
    assert results["ClickHouse"] == results["PyIceberg"] == results["DuckDB"]
    assert records[-1]["equal"] is True


@pytest.mark.spark
def test_readers_that_differ_are_an_error(
    made: DemoDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line would be worth nothing if it were printed in any case."""

    def wrong(*arguments: Any) -> Measures:
        return query_duckdb(*arguments) | {"coupons": 7}

    monkeypatch.setattr("spark_ext.cli.commands.demo.query_duckdb", wrong)

    ended = run_here("--directory", str(made.path))

    assert ended.code == 4
    assert "do not agree. coupons is " in ended.err
    assert "7 in DuckDB" in ended.err
    assert "equal" not in ended.out


@pytest.mark.spark
@pytest.mark.parametrize(
    ("taken", "message"),
    [
        ("warehouse", "db.events is in .*, and .*warehouse is empty"),
        ("warehouse/mergeberg-ledger.db", "the ledger mergeberg-ledger.db .* is not in"),
        ("warehouse/lake.db", "lake.analytics.events is not in .*, but the ledger"),
        ("warehouse/analytics", "files of lake.analytics.events are not in"),
        ("warehouse/analytics/events/data", "3 of 3 data files of lake.analytics.events"),
        ("clickhouse", "db.events, from which the lake was filled, is not in"),
    ],
)
def test_a_demo_with_a_part_taken_away_says_what_is_missing(
    made: DemoDirectory, taken: str, message: str, tmp_path: Path
) -> None:
    """Going on would export everything a second time, or compare with nothing."""
    with moved(made.path / taken, tmp_path / "away"):
        ended = run_here("--directory", str(made.path))

        assert (ended.code, ended.out) == (3, "")
        assert not (made.path / taken).exists()
    assert re.search(message, ended.err)
    assert ended.err.splitlines()[-1] == f"Next: rm -r {made.path}"


@pytest.mark.spark
def test_a_demo_that_was_copied_is_not_taken_for_the_original(
    made: DemoDirectory, tmp_path: Path
) -> None:
    """Iceberg's paths are absolute: the copy would write into the original."""
    copy = DemoDirectory(tmp_path / "copy")
    shutil.copytree(made.path, copy.path, symlinks=True)
    before = metadata(made)

    ended = run_here("--directory", str(copy.path))

    assert "was made in" in ended.err
    assert (ended.code, ended.out) == (3, "")
    assert metadata(made) == before


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """Somebody's own ./clickhouse must never get a table of ours."""
    (tmp_path / "clickhouse").mkdir()

    ended = run_here("--directory", str(tmp_path))

    assert (ended.code, ended.out) == (3, "")
    assert "the directory is not empty" in ended.err
    assert [p.name for p in tmp_path.rglob("*")] == ["clickhouse"]


def test_a_configured_catalog_is_never_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo's tables in the company's lake would be no demo."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")

    ended = run_here("--directory", str(tmp_path / "demo"))

    assert ended.code == 3
    assert "configured with a catalog named 'lake'" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_without_the_demo_extra_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute of work that ends in an ImportError is a minute lost."""
    monkeypatch.setitem(sys.modules, "duckdb", None)

    ended = run_here("--directory", str(tmp_path / "demo"))

    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("Cannot run the demo: duckdb is not installed")
    assert ended.err.endswith("Next: pip install 'mergeberg[demo]'\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_fill_is_repeated(tmp_path: Path) -> None:
    """Half a table under its final name would be exported as if it were whole."""
    with EmbeddedConnection(tmp_path / "clickhouse", create=True) as clickhouse:
        interrupted = fill(clickhouse, rows=10)
        next(interrupted)
        del interrupted
        assert months(clickhouse) == ()

        filled = tuple(fill(clickhouse, rows=10))

        assert len(filled) == len(MONTHS)
        assert months(clickhouse) == filled


def test_a_difference_is_reported_with_every_result() -> None:
    results: dict[str, Measures] = {"ClickHouse": {"tags": 1, "revenue": Decimal("1.50")},
               "DuckDB": {"tags": 2, "revenue": Decimal("1.5")}}  # fmt: skip

    assert differences(results) == ("tags is 1 in ClickHouse, 2 in DuckDB",)


@pytest.mark.spark
def test_the_first_page_shows_what_is_printed(first: tuple[DemoDirectory, Ended]) -> None:
    place, ended = first
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- demo output: begin -->.*?```text\n(.*?)```", page, re.DOTALL)

    assert lines_of(shown) == lines_of(ended.out.replace(str(place.path), "demo"))


@pytest.mark.spark
def test_the_quickstart_shows_what_its_commands_print(
    made: DemoDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a user's first commands fail, or print something else than the page."""
    monkeypatch.chdir(made.path.parent)
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    (program, printed) = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    examples = [
        (shlex.split(command)[1:], shown)
        for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)
        for command, shown in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)+)", block, re.MULTILINE)
    ]

    assert len(examples) == 7
    for words, shown in examples:
        ended = mergeberg(*words) if words[0] == "export" else in_this_process(*words)
        assert (ended.code, lines_of(without_rates(ended.out))) == (
            0,
            lines_of(without_rates(shown)),
        ), ended.err
    reading = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    assert lines_of(reading.stdout) == lines_of(printed), reading.stderr


def without_rates(text: str) -> str:
    """Return the text without rates, which are printed of what takes long enough."""
    return re.sub(r" · [^·\n]* rows/s$", "", text, flags=re.MULTILINE)


def lines_of(text: str) -> list[str]:
    """Return the lines without what differs from run to run: numbers, and the space they take."""
    without_numbers = re.sub(r"\d[\d,.]*( [KM]?i?B)?", "#", text.strip())
    return [" ".join(line.split()) for line in without_numbers.splitlines()]
