"""`mergeberg spark` is Spark's own shell, and what it exports is what the other commands know."""

from __future__ import annotations

import io
import json
import re
import shlex
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from catalog.iceberg.catalogs import open_catalog
from spark_ext.cli.main import invoke
from tableformat.names import LakeName
from tests.support.iceberg_runtime import runtime_jar
from tests.support.interfaces import EVENTS, Ended, Interfaces, blocks, reads_as
from tests.support.processes import command_line, descendants

_SECRET = "swordfish"  # noqa: S105  what is looked for
_SECONDS_BETWEEN = 0.05
_HEADERS = (
    "partition_id\tstatus\trows\tdata_files\tbytes\tsnapshot_id\ttransaction_id\tmessage",
    "month\tn",
    "partition_id\tstatus",
)
"""Names of columns, which `mergeberg spark` prints above each result."""


@dataclass(slots=True)
class Seen:
    """What everybody on the host could see while a shell ran."""

    command_lines: set[str] = field(default_factory=set)
    modes: set[tuple[int, int]] = field(default_factory=set)

    def look(self, root: int, scratch: Path) -> None:
        """Read the command lines of a process and of those that it started, and its files."""
        own = command_line(root)
        for one in descendants(root):
            # Until it is another program, a process that it forks has its own command line, too.
            if (words := command_line(one)) != own:
                self.command_lines.add("\0".join(words))
        for file in scratch.glob("mergeberg-shell-*/spark.conf"):
            modes = (stat.S_IMODE(one.stat().st_mode) for one in (file.parent, file))
            self.modes.add((next(modes), next(modes)))


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A user who has installed mergeberg, and configured nothing."""

    interfaces: Interfaces
    seen: Seen = field(default_factory=Seen)

    @property
    def scratch(self) -> Path:
        """The user's directory for temporary files."""
        return self.interfaces.root / "tmp"

    def run(
        self, command: Sequence[str], text: str | None = None, more: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a command to its end, and look on."""
        environ = self.interfaces.environment()
        for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"):
            del environ[name]
        self.scratch.mkdir(exist_ok=True)
        own = {"TMPDIR": str(self.scratch), "XDG_CACHE_HOME": str(self.interfaces.root / "cache")}
        with subprocess.Popen(
            command,
            cwd=self.interfaces.root,
            env={**environ, **own, **(more or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                return self._ended(process, text)
            finally:
                # Its shell goes with it, where it has not ended.
                process.terminate()

    def _ended(self, process: subprocess.Popen[str], text: str | None) -> Ended:
        """Look on until a process ends."""
        while True:
            try:
                out, err = process.communicate(text, timeout=_SECONDS_BETWEEN)
            except subprocess.TimeoutExpired:
                # Asked again, it continues with the first input.
                text = None
                self.seen.look(process.pid, self.scratch)
            else:
                return Ended(process.returncode, out, err)


@pytest.fixture(scope="module")
def interfaces(tmp_path_factory: pytest.TempPathFactory) -> Interfaces:
    return Interfaces.made(tmp_path_factory.mktemp("shell"), {})


def command(interfaces: Interfaces, *options: str) -> list[str]:
    """Return the command of the page, with options that this machine needs."""
    mergeberg, spark, *words = shlex.split(interfaces.written(blocks("spark-sql.md", "sh")[0]))
    # The jars that all tests have are found below it.
    fetched = f"spark.jars.ivy={runtime_jar().parents[1]}"
    small = ("--master", "local[2]", "--conf", "spark.driver.memory=640m")
    return [mergeberg, spark, "--conf", fetched, *small, *options, *words]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_newcomer_types_the_statements_of_the_page(
    interfaces: Interfaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is configured; a secret is in no list of processes; lake and ledger are the usual."""
    newcomer = Newcomer(interfaces)
    (statements,) = blocks("spark-sql.md", "sql")
    (interfaces.root / "statements.sql").write_text(interfaces.written(statements))
    secret = (
        *("--source", "other=https://exporter@ch.invalid"),
        *("--conf", f"spark.mergeberg.source.other.password={_SECRET}"),
    )

    words = command(interfaces, *secret)
    ended = newcomer.run(words)

    lines = ended.out.strip().splitlines()
    without_names = "\n".join(line for line in lines if line not in _HEADERS)
    assert reads_as(blocks("spark-sql.md", "text")[0]).fullmatch(without_names), ended
    assert [line for line in lines if line in _HEADERS] == [*_HEADERS[:1] * 3, *_HEADERS[1:]]
    assert ended.err.splitlines()[-1] == blocks("spark-sql.md", "error")[0].strip()
    assert ended.code == 1
    assert re.search(r" (WARN|INFO|ERROR) ", ended.err) is None
    seen = newcomer.seen
    assert seen.modes == {(0o700, 0o600)}
    for program in ("org.apache.spark.deploy.SparkSubmit", "spark_ext.jvm.child", "pyspark.daemon"):
        assert any(program in line for line in seen.command_lines), seen.command_lines
    assert [line for line in seen.command_lines if _SECRET in line] == []
    assert [*newcomer.scratch.glob("mergeberg-*")] == []
    monkeypatch.setenv("PYICEBERG_HOME", str(interfaces.root))
    warehouse = words[words.index("--warehouse") + 1]
    lake = open_catalog("lake", warehouse=Path(warehouse))
    table = lake.table(LakeName.parse("lake.analytics.events"))
    assert table is not None
    assert sorted(table.loaded.scan().to_arrow()["n"].to_pylist()) == EVENTS
    out = io.StringIO()
    assert invoke(["exports", "list", "--json", "--warehouse", warehouse], out, out) == 0
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    known = [row for row in rows if row["destination_table"] == "lake.analytics.events"]
    assert [row["status"] for row in known] == ["COMPLETED", "COMPLETED"]


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_pyspark_has_everything_too_and_its_exit_code_is_the_commands(
    interfaces: Interfaces,
) -> None:
    newcomer = Newcomer(interfaces)
    call = "CALL lake.system.export_partition('n.more', 'ch.db.events', '202401')"
    typed = [
        f'print(spark.sql("{call}").first().status)',
        "table = spark.table('mergeberg.system.replicated_partition_exports')",
        "print(table.where(\"destination_table = 'lake.n.more'\").first().status)",
        "print(spark.table('lake.n.more').count())",
        "spark.stop()",
        "import os, sys; sys.stdout.flush(); os._exit(7)",
    ]
    # Without a terminal Python needs `-i` to be interactive.
    asks = {"PYSPARK_DRIVER_PYTHON_OPTS": "-i"}

    words = command(interfaces, "--python")
    ended = newcomer.run(words[: words.index("--")], "\n".join(typed) + "\n", asks)

    assert ended.out.split()[-3:] == ["committed", "COMPLETED", "310"], ended
    assert ended.code == 7


@pytest.mark.parametrize("option", ["--jars", "--packages=org.example:x:1", "--properties-file"])
def test_what_would_replace_ours_is_refused_after_the_dashes(option: str) -> None:
    err = io.StringIO()

    assert invoke(["spark", "--", option, "x"], io.StringIO(), err) == 2
    assert f"after --, {option.partition('=')[0]} would replace" in err.getvalue()


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages", "spark.sql.extensions"])
@pytest.mark.parametrize("words", [("--conf", "{}=x"), ("-c", "{}=x"), ("--conf={}=x",)])
def test_nor_may_settings_replace_ours(name: str, words: tuple[str, ...]) -> None:
    """Harm prevented: a shell that starts, and knows nothing of mergeberg."""
    err = io.StringIO()

    given = ["-e", "SELECT 1", *(word.format(name) for word in words)]
    assert invoke(["spark", "--", *given], io.StringIO(), err) == 2
    assert f"{name} would replace" in err.getvalue()
    assert f"Give --conf {name}=… before --" in err.getvalue()


def test_two_sources_of_one_name_are_refused() -> None:
    """The second would silently be the only one."""
    err = io.StringIO()

    words = ["spark", "--source", "chdb:./a b", "--source", "ch=https://h"]
    assert invoke(words, io.StringIO(), err) == 2
    assert "two sources are called 'ch'" in err.getvalue()


def test_the_environment_names_the_source_as_for_the_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may have a blank in its name."""
    for directory in ("jars", "bin", "conf"):
        (tmp_path / directory).mkdir()
    for jar in ("spark-core_2.13-4.1.4", "iceberg-spark-runtime-x", "sqlite-jdbc-x"):
        (tmp_path / "jars" / f"{jar}.jar").touch()
    program = tmp_path / "bin" / "spark-sql"
    program.write_text(f'#!/bin/sh\ncat "$2" > "{tmp_path}/out"; exit 9\n')
    program.chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("MERGEBERG_SOURCE", "chdb:/my data")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    warehouse = ["--warehouse", str(tmp_path / "lake")]
    err = io.StringIO()

    with pytest.raises(SystemExit) as ended:
        invoke(["spark", *warehouse], io.StringIO(), err)

    assert (ended.value.code, err.getvalue()) == (9, "")
    assert "spark.mergeberg.source.ch=chdb:/my\\ data\n" in (tmp_path / "out").read_text()
