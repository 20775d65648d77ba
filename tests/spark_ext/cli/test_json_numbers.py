"""What programs read: no number in any JSON of ours is one that they would read as another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.cli.main import main
from spark_ext.json_text import EXACT, json_text
from spark_ext.sql.statements import TYPED
from tests.repository.source_files import ROOT
from tests.wrong.places import Places

_JSON = st.recursive(
    st.integers() | st.text() | st.booleans() | st.none(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
)


def inexact(value: Any) -> Iterator[int]:
    """Yield the integers of a value that JSON's readers take for others."""
    match value:
        case bool():
            return
        case int():
            if abs(value) > EXACT:
                yield value
        case dict():
            for one in value.values():
                yield from inexact(one)
        case list():
            for one in value:
                yield from inexact(one)
        case _:
            return


@given(value=_JSON)
def test_no_integer_is_written_that_is_read_as_another(value: object) -> None:
    assert [*inexact(json.loads(json_text(value)))] == []


@given(number=st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1))
def test_an_id_of_a_snapshot_is_always_a_text(number: int) -> None:
    written = {"snapshot_id": number, "a": [{"landed_snapshots": [number]}], "is": True}

    assert json.loads(json_text(written)) == {
        "snapshot_id": str(number),
        "a": [{"landed_snapshots": [str(number)]}],
        "is": True,
    }


def test_all_json_of_commands_and_logs_is_written_in_one_place() -> None:
    """Harm prevented: a command that prints numbers of its own."""
    # What goes to Java is read by us, with all of its digits.
    to_java = {"sql/dispatch.py", "jvm/jar.py"}
    writers = {
        str(file.relative_to(ROOT / "spark_ext"))
        for file in (ROOT / "spark_ext").rglob("*.py")
        if "json.dumps" in file.read_text()
    }

    # Texts of TOML are written as those of JSON.
    toml = {"cli/commands/config.py"}

    assert writers == {"json_text.py", *to_java, *toml}


def commands(group: click.Group = main, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands that take --json."""
    for name, command in group.commands.items():
        words = (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, words)
        elif any(isinstance(p, click.Option) and "--json" in p.opts for p in command.params):
            yield " ".join(words)


TO = ("--to", "lake.n.numbers")
KEY = ("202401", "--table", "db.events")
WALKED: tuple[tuple[str, ...], ...] = (
    ("check", "db.events", *TO),
    ("partitions", "db.events"),
    ("parts", "db.events"),
    ("export", "db.events", "--all", *TO, "--dry-run"),
    ("export", "db.events", "--all", *TO),
    ("export", "db.events", "--all", *TO),
    ("verify", "db.events", "--all", *TO),
    ("archive", "db.events", "--all", *TO, "--dry-run"),
    ("exports", "list"),
    ("exports", "show", *KEY),
    ("exports", "log"),
    ("exports", "events"),
    ("exports", "watermark", "--table", "db.events", *TO),
    ("exports", "cancel", *KEY, *TO),
    ("exports", "forget", *KEY, *TO),
    ("exports", "unarchive", *KEY, *TO, "--yes"),
    ("gc", *TO),
    ("maintain", "lake.n.numbers", "--only", "compact", "--dry-run"),
    ("detach", "lake.n.numbers", "--partition-id", "202401", "--yes"),
    ("attach", "lake.n.numbers", "--partition-id", "202401"),
    ("freeze", "lake.n.numbers", "--name", "kept"),
    ("alter", "ALTER TABLE lake.n.numbers UPDATE s = 'x' WHERE id = 1", "--yes"),
    ("drop", "lake.n.numbers", "--partition-id", "202401", "--yes"),
    ("show", "lake.n.numbers"),
    # Behind the others: the table is the new ledger's then.
    ("exports", "rebuild", *TO, "--ledger", "sqlite:DIR/new.db"),
    ("read", "hive:DIR/tree"),
    ("read", "hive:DIR/tree", "--rows"),
)
STATEMENTS = ("alter", "attach", "detach", "drop", "freeze", "maintain")
# These run statements as `drop` does, or need what `tests/spark_ext/test_demo.py` starts.
ALIKE = {one.command for one in TYPED.values()} | {"config", "demo"}


def values(text: str) -> Iterator[Any]:
    """Yield the values of an output: one a line, or a document over several."""
    decoder, left = json.JSONDecoder(), text.lstrip()
    while left:
        value, end = decoder.raw_decode(left)
        yield value
        left = left[end:].lstrip()


def test_every_command_that_takes_json_is_walked() -> None:
    walked = {" ".join(words[: 2 if words[0] == "exports" else 1]) for words in WALKED}

    assert {*commands()} - walked - ALIKE == set()


@pytest.mark.representative
def test_no_output_of_a_command_has_a_number_beyond_what_is_exact(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: `jq .snapshot_id` gives the id of no snapshot."""
    log, ids = tmp_path / "log", 0
    spoke, quiet = set[tuple[str, ...]](), list[object]()
    tree = ("export", "db.wide", "--all", "--to", f"hive:{tmp_path}/tree")
    places.clickhouse_run(
        "CREATE TABLE db.wide (u UInt64, i Int64, n Nullable(Int64), a Array(Int64), "
        "m Map(String, Int64), t Tuple(x Int64, y UInt8)) ENGINE = MergeTree ORDER BY u",
        f"INSERT INTO db.wide SELECT {1 << 63}, {-(1 << 62)}, NULL, [1, {1 << 62}], "
        f"map('k', {1 << 62}), ({1 << 62}, 1)",
    )
    places.reads_parts = True
    assert places.run(*tree)[0] == 0, places.run(*tree)
    monkeypatch.setenv("MERGEBERG_LOG", f"json:{log}")

    for words in WALKED:
        given = [word.replace("DIR", str(tmp_path)) for word in words]
        if words[0] in STATEMENTS:
            given += ["--warehouse", str(places.warehouse)]
        if words[:2] == ("exports", "watermark"):
            given += ["--source", f"chdb:{places.clickhouse}"]
        code, out, err = places.run(*given, "--json")
        # A cancel of what has ended is an error, which is JSON as well.
        assert out or err or words[0] == "gc", (words, code)
        if out:
            spoke.add(words)
        else:
            quiet.append((words, code, err))
        for value in values(err):
            assert [*inexact(value)] == [], words
        for value in values(out):
            assert [*inexact(value)] == [], words
            found = [v for k, v in value.items() if k.endswith("snapshot_id") and v is not None]
            assert all(isinstance(one, str) for one in found), (words, value)
            ids += len(found)

    assert ids > 5
    assert len(spoke) >= len(WALKED) - 5, quiet
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(one.get("snapshot_id") for one in logged)
    assert [*inexact(logged)] == []


@pytest.mark.parametrize("form", ["JSON", "JSONEachRow", "JSONCompact"])
def test_neither_has_a_result_in_a_format_of_clickhouse(places: Places, form: str) -> None:
    statement = (
        f"ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.f{form} FORMAT {form}"
    )
    allowed = "SETTINGS allow_experimental_export_merge_tree_part = 1"

    code, out, err = places.run(
        "alter", f"{statement} {allowed}", "--source", f"chdb:{places.clickhouse}",
        "--warehouse", str(places.warehouse),
    )  # fmt: skip

    assert code == 0, err
    assert [*inexact([*values(out)])] == []
