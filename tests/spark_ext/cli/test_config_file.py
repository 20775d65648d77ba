"""The configuration file: defaults of options, which the command line and the environment win."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from catalog.clickhouse.frozen.definition import parse_parts
from spark_ext.cli.commands.config import read_config
from spark_ext.cli.main import invoke, main
from spark_ext.cli.options import Size
from tableformat.errors import RefusedError, UsageError
from tests.support.command_lines import context_of
from tests.wrong.places import Places

FILE = "mergeberg.toml"
OF_ONE_RUN = {"--debug", "--force", "--json", "--no-wait", "--yes", "--help-all"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MERGEBERG_CONFIG", raising=False)


def written(directory: Path, text: str, mode: int = 0o600) -> Path:
    file = directory / FILE
    file.write_text(text)
    file.chmod(mode)
    return file


def run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return invoke(words, out, err), out.getvalue(), err.getvalue()


def given(file: Path | None, *words: str) -> dict[str, Any]:
    """Return the values of the options of a command line, by parameter."""
    return context_of(file, *words).params


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", command


EXPORT = ("export", "db.t", "--all", "--to", "lake.n.t")


def test_a_command_has_the_defaults_of_its_table_and_of_the_general_one(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        [general]
        source = "https://exporter@ch1.example"
        max-slices = 2
        [export]
        max-slices = 5
        check-rows = true
        convert = ["UInt64=long", "a=string"]
        no-parallel-formatting = true
        [exports.list]
        limit = 20
        """,
    )

    export, archive = given(file, *EXPORT), given(file, "archive", *EXPORT[1:])
    listed, log = given(file, "exports", "list"), given(file, "exports", "log")

    assert export["source"] == archive["source"] == "https://exporter@ch1.example"
    assert (export["max_slices"], archive["max_slices"]) == (5, 2)
    assert (export["check_rows"], export["no_parallel_formatting"]) == (True, True)
    assert export["convert"] == ("UInt64=long", "a=string")
    assert (listed["limit"], log["limit"]) == (20, 50)
    assert archive["convert"] == ()


def test_the_command_line_wins_and_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(
        tmp_path,
        "[general]\nmax-slices = 2\nledger = 'sqlite:/file'\n[export]\nconvert = ['a=string']\n"
        "[archive]\ndrop = true\n",
    )
    monkeypatch.setenv("MERGEBERG_LEDGER", "sqlite:/variable")

    found = given(file, *EXPORT, "--max-slices", "3", "--convert", "b=string")
    named = given(file, *EXPORT, "--ledger", "sqlite:/word")
    archive = given(file, "archive", *EXPORT[1:], "--detach")

    assert (found["max_slices"], found["convert"]) == (3, ("b=string",))
    assert (found["ledger"], named["ledger"]) == ("sqlite:/variable", "sqlite:/word")
    assert (archive["drop"], given(file, "archive", *EXPORT[1:])["drop"]) == (False, True)


def test_a_number_is_read_as_on_the_command_line(tmp_path: Path) -> None:
    """Harm prevented: files of 128 bytes."""
    file = written(tmp_path, "[export]\ntarget-file-size = 128\nmax-bandwidth = '50MB'\n")

    found = given(file, *EXPORT)

    assert found["max_bytes_per_file"] == 128 * 1024**2
    assert found["max_bandwidth"] == 50_000_000


def test_a_required_option_may_be_in_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[export]\nto = 'lake.n.t'\nall = true\n")

    found = given(file, "export", "db.t")

    assert (found["to"], found["everything"]) == ("lake.n.t", True)


@pytest.mark.parametrize(
    ("key", "value", "located"),
    [
        ("warehouse", "lake", "{}/lake"),
        ("warehouse", "/lake", "/lake"),
        ("source-config", "secret/source.toml", "{}/secret/source.toml"),
        ("source", "chdb:./clickhouse", "chdb:{}/clickhouse"),
        ("source", "chdb:/clickhouse", "chdb:/clickhouse"),
        ("source", "chdb:data?config-file=c.xml", "chdb:{}/data?config-file={}/c.xml"),
        ("source", "parts:d?ddl=t.sql&zone=UTC", "parts:{}/d?ddl={}/t.sql&zone=UTC"),
        ("source", "https://exporter@ch1.example", "https://exporter@ch1.example"),
        ("ledger", "sqlite:ledger.db", "sqlite:{}/ledger.db"),
        ("ledger", "keepers://zk1.example/lake", "keepers://zk1.example/lake"),
        ("to", "hive:tree", "hive:{}/tree"),
        ("to", "hive:s3://bucket/tree", "hive:s3://bucket/tree"),
        ("to", "lake.n.t", "lake.n.t"),
    ],
)
def test_a_relative_path_is_relative_to_the_file(
    tmp_path: Path, key: str, value: str, located: str
) -> None:
    """Harm prevented: a schedule that runs elsewhere makes a second, empty warehouse there."""
    file = written(tmp_path, f"[export]\n{key} = '{value}'\n")
    words = EXPORT[:3] if key == "to" else EXPORT

    found = given(file, *words)[key.replace("-", "_")]

    assert str(found) == located.replace("{}", str(tmp_path))


def test_a_quoted_path_of_frozen_parts_stays_one(tmp_path: Path) -> None:
    directory = tmp_path / "a%b&c"
    directory.mkdir()
    file = written(directory, "[general]\nsource = 'parts:d?ddl=t.sql'\n")

    found = parse_parts(given(file, *EXPORT)["source"])

    assert (found.directory, found.ddl_file) == (directory / "d", directory / "t.sql")


def test_in_the_working_directory_a_path_stays_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "[general]\nsource = 'chdb:./clickhouse'\n")
    monkeypatch.chdir(tmp_path)

    assert given(None, *EXPORT)["source"] == "chdb:./clickhouse"


def sample(option: click.Option) -> object:
    """Return a value for an option, as a file has it."""
    if option.is_flag:
        return True
    match option.type:
        case Size():
            one: object = "1MB"
        case click.Choice(choices=choices):
            one = str(choices[0])
        case click.IntRange() | click.FloatRange():
            one = 1
        case _:
            one = "x=y"
    return [one] if option.multiple else one


@pytest.mark.parametrize("name", dict(commands(main)))
def test_every_option_of_every_command_may_be_in_a_file(tmp_path: Path, name: str) -> None:
    """Harm prevented: an option that is added to a command, and that no file can have."""
    command = dict(commands(main))[name]
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option) and option.opts[0] not in OF_ONE_RUN
    ]
    keys = {option.opts[0].removeprefix("--"): sample(option) for option in options}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    file = written(tmp_path, "\n".join([f"[{name}]", *lines]))

    found: Any = read_config(file, main, is_named=True)
    values = found.defaults
    for part in name.split("."):
        values = values[part]

    assert {option.name for option in options} == values.keys()


@pytest.mark.parametrize("option", sorted(OF_ONE_RUN - {"--help-all"}))
def test_what_is_about_one_run_cannot_be_in_a_file(tmp_path: Path, option: str) -> None:
    """Harm prevented: whoever works in that directory is never asked, and replaces everything."""
    key = option.removeprefix("--")
    file = written(tmp_path, f"[export]\n{key} = true\n")

    with pytest.raises(UsageError, match=f"{key}, which is about a single run"):
        read_config(file, main, is_named=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[export]\nmax_replace = 1", "Did you mean max-replace?"),
        ("[export]\nwher = 'x'", "Did you mean where?"),
        ("[export]\nqqqqq = 1", "`mergeberg export --help` lists the options."),
        ("[partitions]\nmax-replace = 1", "an option that `mergeberg partitions` does not have"),
        ("[exports.list]\nlimt = 1", "`mergeberg exports list` does not have. Did you mean limit?"),
        ("[exports]\nlimit = 1", "exports.limit is outside of a table"),
        ("[exports.lst]\nlimit = 1", "exports.lst is not a command. Did you mean list?"),
        ("[genral]\nsource = 'x'", "genral is not a command. Did you mean general?"),
        ("[general]\nsorce = 'x'", "an option that no command has. Did you mean source?"),
        ("general = 1", "general is outside of a table"),
        ("[export]\nto = ['a', 'b']", "[export] to is a list, and the option takes one value"),
        ("[export]\nto = 2024-01-01", "[export] to is neither a text nor a number"),
        ("[export]\nto = true", "[export] to is neither a text nor a number"),
        ("[export]\nverify = 'yes'", "[export] verify is neither true nor false"),
        ("[general]\nmax-slices = 0", "[general] max-slices: 0 is not in the range x>=1"),
        ("[export]\nmax-bandwidth = '50XB'", "'50XB': it is not a size"),
        ("[general]\nlog-level = 'loud'", "[general] log-level: 'loud' is not one of"),
    ],
)
def test_what_no_option_takes_is_refused_with_the_nearest_name(
    tmp_path: Path, text: str, message: str
) -> None:
    """Harm prevented: a default that is written down, and in force nowhere."""
    file = written(tmp_path, text)

    code, out, err = run("--config", str(file), "exports", "list")

    assert (code, out) == (2, "")
    assert f"Cannot use the configuration {file}: " in err
    assert message in err


def test_help_is_there_whatever_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: the message says to run --help, which has the same message."""
    written(tmp_path, "[export]\nmax_replace = 1\n")
    monkeypatch.chdir(tmp_path)

    code, _, err = run("export", "db.t", "--to", "lake.n.t")

    assert (code, "Next: mergeberg export --help" in err) == (2, True)
    assert run("export", "--help")[0] == run("export", "--help-all")[0] == 0


def test_options_of_the_log_may_be_in_the_file(tmp_path: Path) -> None:
    log = tmp_path / "run.json"
    file = written(tmp_path, "[general]\nlog = 'json:run.json'\nlog-level = 'debug'\n")

    assert run("--config", str(file), "config")[0] == 0
    assert log.exists()


def test_config_and_the_help_name_the_file_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nothing, without = run("config"), run("--help")
    file = written(
        tmp_path,
        "[export]\nmax-slices = 5\nconvert = ['UInt64=long']\n[general]\nsource = 'chdb:x'\n",
    )

    _, shown, _ = run("config")
    _, as_json, _ = run("config", "--json")
    _, ignored, _ = run("config", "--config", "")
    line = f"Defaults of options are taken from {file}\n"

    assert "no configuration file" in nothing[1]
    assert shown == (
        f'# {file}\n[general]\nsource = "chdb:x"\n'
        '[export]\nmax-slices = 5\nconvert = ["UInt64=long"]\n'
    )
    assert json.loads(as_json) == {
        "file": str(file),
        "defaults": {
            "general": {"source": "chdb:x"},
            "export": {"max-slices": 5, "convert": ["UInt64=long"]},
        },
    }
    assert ignored == nothing[1]
    assert "are taken from" not in without[1]
    assert run("--help")[1].endswith(line)
    assert "[default: 5" in run("export", "--help")[1]


def test_a_file_may_be_named_by_a_variable_or_behind_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "[export]\nmax-slices = 5\n")

    behind = run("config", "--config", str(file))
    monkeypatch.setenv("MERGEBERG_CONFIG", str(file))
    by_variable = run("config")

    assert behind == by_variable
    assert behind[1].startswith(f"# {file}\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conf = ['spark.hadoop.fs.s3a.secret.key=abc']", "spark.hadoop.fs.s3a.secret.key=…"),
        ("source = 'https://me:abc@ch1.example'", "https://me@ch1.example"),
    ],
)
def test_a_secret_that_others_may_read_is_warned_of_and_never_shown(
    tmp_path: Path, text: str, shown: str
) -> None:
    file = written(tmp_path, f"[export]\n{text}\n", 0o644)

    _, out, err = run("--config", str(file), "config")
    file.chmod(0o600)
    quiet = run("--config", str(file), "config")

    assert f"{file} holds a secret" in err
    assert f"Run: chmod 600 {file}" in err
    assert "abc" not in out + err
    assert shown in out
    assert (quiet[1], quiet[2]) == (out, "")


def test_a_file_without_a_secret_may_be_read_by_everybody(tmp_path: Path) -> None:
    file = written(tmp_path, "[general]\nsource = 'https://exporter@ch1.example'\n", 0o644)

    assert run("--config", str(file), "config")[2] == ""


def test_a_file_that_was_found_and_that_others_may_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a command in /tmp reads from the server of whoever wrote a file there."""
    file = written(tmp_path, "[general]\nsource = 'https://evil.example'\n", 0o666)
    monkeypatch.chdir(tmp_path)

    code, _, err = run("config")

    assert code == 3
    assert f"Cannot use the configuration {file}: everybody may change it (mode 666)" in err
    assert run("--config", str(file), "config")[0] == 0
    assert run("--help")[0] == 0
    with pytest.raises(RefusedError):
        read_config(file, main, is_named=False)


@pytest.mark.representative
def test_an_export_takes_everything_from_the_file(places: Places) -> None:
    file = written(
        places.root,
        "[general]\nsource = 'chdb:clickhouse'\nsource-wait = 0.3\nwarehouse = 'warehouse'\n"
        "[export]\nto = 'lake.n.by_file'\nall = true\nmax-replace = 0\n",
    )

    first = run("--config", str(file), "export", "db.events", "--json")
    forced = run("export", "db.events", "--config", str(file), "--force")
    listed = run("exports", "list", "--config", str(file), "--to", "lake.n.by_file")
    file.unlink()

    assert first[0] == 0, first
    assert forced[0] == 3, forced
    assert "--max-replace allows 0" in forced[2]
    assert "2 exports: 2 COMPLETED" in listed[1]
