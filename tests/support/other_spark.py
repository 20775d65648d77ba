"""The older Spark, with its Iceberg: `python -m tests.support.other_spark`, of `make soak`.

An environment of its own has our locked packages and, in place of the locked PySpark, the one of
requirements/older-spark. There a newcomer's shell exports by CALL and by ALTER TABLE, the command
line finds that done, and exports the rest; PyIceberg here reads every row once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from requirements.packages import install
from tests.support.frozen_parts import ROOT

__all__ = ["main"]

_PLACE: Final = ROOT / ".readers" / "older-spark"
_LOCK: Final = ROOT / "requirements" / "dev.lock"
_OLDER: Final = ROOT / "requirements" / "older-spark" / "older-spark.lock"
_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_TABLE: Final = (
    "CREATE DATABASE db",
    "CREATE TABLE db.t (p UInt8, k UInt64, s String) ENGINE = MergeTree PARTITION BY p ORDER BY k",
    "INSERT INTO db.t SELECT number % 3, number, toString(number) FROM numbers(300000)",
)
_ALLOWED: Final = "SETTINGS allow_experimental_export_merge_tree_part = 1"
_STATEMENTS: Final = (
    "SELECT version()",
    "CALL lake.system.export_partition(table => 'n.t', source => 'ch.db.t', partition_id => '0')",
    f"ALTER TABLE ch.db.t EXPORT PARTITION ID '1' TO TABLE lake.n.t {_ALLOWED}",
    "SELECT 'rows', count(*), sum(k) FROM lake.n.t",
    "SELECT partition_id, status FROM mergeberg.system.replicated_partition_exports ORDER BY 1",
)


def main() -> int:
    """Try it; return 0 when everything is as it should be."""
    python = _environment()
    with tempfile.TemporaryDirectory(prefix="older-spark-") as directory:
        root = Path(directory)
        with EmbeddedConnection(root / "clickhouse", create=True) as connection:
            for statement in _TABLE:
                connection.command(statement)
        places = ["--source", f"chdb:{root / 'clickhouse'}", "--warehouse", str(root / "warehouse")]
        shell = ["spark", *places, "--", "-e", "; ".join(_STATEMENTS)]
        lines = _run(python, shell, root).splitlines()
        rest = _run(python, ["export", "db.t", "--all", "--to", "lake.n.t", *places], root)
        table = open_catalog("lake", warehouse=root / "warehouse").catalog.load_table("n.t")
        numbers = sorted(table.scan().to_arrow().column("k").to_pylist())
    sys.stdout.write("\n".join([*lines, rest]))
    below = [number for number in range(300_000) if number % 3 < 2]
    found = {
        "it is the older Spark": any(line.startswith("4.0.") for line in lines),
        "both statements exported": sum("\tcommitted\t100000\t" in line for line in lines),
        "Spark reads them": f"rows\t{len(below)}\t{sum(below)}" in lines,
        "they are completed": [line for line in lines if line.endswith("\tCOMPLETED")],
        "the command finds them done": rest.count("already exported"),
        "every row is there once": numbers == [*range(300_000)],
    }
    wanted = (True, 2, True, ["0\tCOMPLETED", "1\tCOMPLETED"], 2, True)
    wrong = {
        what: is_so
        for (what, is_so), one in zip(found.items(), wanted, strict=True)
        if is_so != one
    }
    sys.stdout.write(f"not so: {wrong}\n" if wrong else "all of it on the older Spark\n")
    return 1 if wrong else 0


def _environment() -> Path:
    """Make the environment, or find it made; return its Python, with mergeberg as it is now."""
    python = _PLACE / "bin" / "python"
    ready, wanted = _PLACE / ".ready", _LOCK.read_text() + _OLDER.read_text()
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", _PLACE], check=True)
        for one in (_LOCK, _OLDER):
            install(one, _PLACE)
        ready.write_text(wanted)
    project = ("--no-deps", "--no-build-isolation", "--force-reinstall", ROOT)
    subprocess.run([python, *_PIP, *project], check=True)
    return python


def _run(python: Path, words: list[str], root: Path) -> str:
    """Run a command of the other environment; return what it printed.

    Raises:
        CalledProcessError: it failed.
    """
    keep = {"PATH", "HOME", "LANG", "JAVA_HOME"}
    environ = {name: text for name, text in os.environ.items() if name in keep}
    environ |= {"XDG_CACHE_HOME": str(_PLACE / "cache"), "TMPDIR": str(root)}
    command = [str(python.parent / "mergeberg"), *words]
    return subprocess.check_output(command, cwd=root, env=environ, text=True)


if __name__ == "__main__":
    sys.exit(main())
