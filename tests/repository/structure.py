"""Measures the structure of the product.

    python -m tests.repository.structure

prints one table: how large modules are, how many have one importer only, how many files one export,
one DETACH and one CALL cross, how often statements are listed, and what `mergeberg --help` loads.
`test_structure.py` holds the figures that must not grow.
"""

from __future__ import annotations

import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.repository.source_files import ROOT, SourceFile, source_files

__all__ = [
    "crossed_files",
    "importers",
    "loaded_by_help",
    "modules",
    "statement_lists",
]

PRODUCT: Final = ("tableformat", "catalog", "spark_ext", "conformance")
_STATEMENTS: Final = frozenset(
    (
        *("AttachPartition", "DetachPartition", "DropPartition", "DropDetached", "ReplaceFrom"),
        *("MoveToTable", "MoveToDisk", "Freeze", "Unfreeze", "Fetch", "Forget", "ClearColumn"),
        *("ClearIndex", "Update", "Delete", "Optimize", "ExportPartition"),
    )
)
_LISTED: Final = 8
# A module that names so many statements lists them.
_EXPORT: Final = (
    ["export", "db.t", "--all", "--source", "chdb:clickhouse", "--to", "lake.n.t"],
    ["--warehouse", "warehouse"],
)
_TRACER: Final = """
import json, pathlib, sys, threading
from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.cli.main import invoke
with EmbeddedConnection(pathlib.Path("clickhouse").resolve(), create=True) as connection:
    for sql in (
        "CREATE DATABASE db",
        "CREATE TABLE db.t (d Date, n UInt32) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(d) ORDER BY n",
        "INSERT INTO db.t SELECT '2024-01-31', number FROM numbers(10)",
    ):
        connection.command(sql)
found = {}
for name, args in json.loads(sys.argv[1]):
    files = set()
    def see(frame, event, _, files=files):
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)
    threading.setprofile(see)
    sys.setprofile(see)
    code = invoke(args, sys.stdout, sys.stderr)
    sys.setprofile(None)
    threading.setprofile(None)
    if code != 0:
        sys.exit(f"{name} ended with {code}")
    found[name] = sorted(files)
pathlib.Path(sys.argv[2]).write_text(json.dumps(found))
"""


def modules() -> Mapping[str, int]:
    """Return the lines of each product module, without `__init__.py`."""
    return {
        file.path: len(file.text.splitlines())
        for file in source_files(*PRODUCT)
        if file.name != "__init__.py"
    }


def importers() -> Mapping[str, frozenset[str]]:
    """Return which product modules import each product module."""
    names = {path.removesuffix(".py").replace("/", "."): path for path in modules()}
    found = defaultdict[str, set[str]](set)
    for file in source_files(*PRODUCT):
        for name in _imported(file):
            if name in names and names[name] != file.path:
                found[names[name]].add(file.path)
    return {path: frozenset(found[path]) for path in modules()}


def _imported(file: SourceFile) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def statement_lists() -> Sequence[str]:
    """Return the product modules that name most of the statements."""
    return [
        file.path
        for file in source_files(*PRODUCT)
        if len(_STATEMENTS & {n.id for n in ast.walk(file.tree) if isinstance(n, ast.Name)})
        >= _LISTED
    ]


def crossed_files() -> Mapping[str, Sequence[str]]:
    """Run an export and a DETACH on the command line; return the product files that they enter.

    Only the process of the command is looked at, and only functions: importing a module counts
    nothing. It needs Java.
    """
    where = ["--warehouse", "warehouse"]
    commands = [
        ("export", [*_EXPORT[0], *_EXPORT[1]]),
        ("detach", ["detach", "lake.n.t", "--partition-id", "202401", *where]),
    ]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "crossed.json")
        ran = subprocess.run(
            [sys.executable, "-c", _TRACER, json.dumps(commands), str(out)],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        found = json.loads(out.read_text(encoding="utf-8"))
    return {name: [p for path in paths if (p := _product(path))] for name, paths in found.items()}


def _product(path: str) -> str:
    place = Path(path)
    if not place.is_relative_to(ROOT):
        return ""
    inside = place.relative_to(ROOT).as_posix()
    return inside if inside.partition("/")[0] in PRODUCT else ""


def loaded_by_help() -> tuple[int, float]:
    """Return how many of our modules `mergeberg --help` loads, and its CPU seconds."""
    program = (
        "import sys, time\n"
        "from spark_ext.cli.main import invoke\n"
        "invoke(['--help'], sys.stdout, sys.stderr)\n"
        f"ours = [n for n in sys.modules if n.partition('.')[0] in {PRODUCT!r}]\n"
        "sys.stderr.write(f'{len(ours)} {time.process_time()}')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded, seconds = ran.stderr.split()
    return int(loaded), float(seconds)


def _table() -> Iterator[tuple[str, str]]:
    lines = modules()
    single = sum(len(found) == 1 for found in importers().values())
    yield "product modules", f"{len(lines)}"
    yield "median lines of a module", f"{statistics.median(lines.values()):.0f}"
    yield "modules with one importer", f"{single}"
    for name, files in crossed_files().items():
        yield f"files that one {name} crosses", f"{len(files)}"
    yield "modules that list the statements", f"{len(statement_lists())}"
    loaded, seconds = loaded_by_help()
    yield "modules that --help loads", f"{loaded}"
    yield "CPU seconds of --help", f"{seconds:.1f}"


def main() -> None:
    """Print the table."""
    began = time.monotonic()
    for name, figure in _table():
        sys.stdout.write(f"{name:<40}{figure:>8}\n")
    sys.stdout.write(f"measured in {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
