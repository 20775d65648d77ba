"""Measures the structure of the product.

    python -m tests.repository.structure

prints one table: how large modules are, how many have one importer only, how many files one export,
one DETACH and one CALL cross, how often statements and options are listed, how many decisions read
a text, how many references have no target, and what `mergeberg --help` loads. Below the table it
names the places behind a figure. It starts Spark, and needs a minute. `test_structure.py`,
`test_text_decisions.py`, `test_cited_code.py` and `test_documents.py` hold the figures that must
not grow.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from spark_ext.sql.statements import READERS, TYPED, Command, Optimize
from tableformat.export.options import EXPORT_OPTIONS
from tests.repository import references
from tests.repository.source_files import ROOT, SourceFile, source_files
from tests.repository.text_decisions import REMAINING, text_decisions

__all__ = [
    "ENTERED",
    "EVERY_HELP",
    "HELP",
    "crossed_files",
    "entered",
    "imported_by",
    "importers",
    "modules",
    "option_lists",
    "own",
    "statement_lists",
]

PRODUCT: Final = ("tableformat", "catalog", "spark_ext", "conformance")
_VALUES: Final = frozenset(one.__name__ for one in (*get_args(Command), Optimize))
"""The names of the values of statements."""
HELP: Final = "import spark_ext.cli.main as m; m.invoke(['--help'], sys.stdout, sys.stderr)"
"""A program that prints the help of `mergeberg`; it needs `sys`."""
EVERY_HELP: Final = (
    "import spark_ext.cli.main as m; groups = [((), m.main), (('exports',), m.exports)]; "
    "all(m.invoke([*before, name, '--help'], sys.stdout, sys.stderr) == 0"
    " for before, group in groups for name in group.commands) or sys.exit(1)"
)
"""A program that prints the help of every command; it needs `sys`."""
ENTERED: Final = "entered.json"
"""What the tracer writes: by command, pairs of a path and a function's qualified name."""


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
    """Return the product modules that name most statements: values, first words, or procedures."""
    return [file.path for file in source_files(*PRODUCT) if _lists_statements(file)]


def _lists_statements(file: SourceFile) -> bool:
    nodes = list(ast.walk(file.tree))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    names |= {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    texts = _constants(nodes)
    listed = ((_VALUES, names), (READERS.keys(), texts), (TYPED.keys(), texts))
    return any(2 * len(those & found) > len(those) for those, found in listed)


def option_lists() -> Sequence[str]:
    """Return the product modules that name most options of an export, at whichever interface."""
    return [file.path for file in source_files(*PRODUCT) if _lists_options(file)]


def _lists_options(file: SourceFile) -> bool:
    texts = _constants(ast.walk(file.tree))
    named = [one for one in EXPORT_OPTIONS.values() if {one.name, one.flag, one.setting} & texts]
    return 2 * len(named) > len(EXPORT_OPTIONS)


def _constants(nodes: Iterable[ast.AST]) -> frozenset[object]:
    # An option may have no setting.
    return frozenset(n.value for n in nodes if isinstance(n, ast.Constant) and n.value != "")


@functools.cache
def entered() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Run an export, a DETACH and a CALL; return the product functions that each enters, in order.

    A function is the path of its file and its qualified name. It needs Java.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for what in ("commands", "call"):
        with tempfile.TemporaryDirectory() as directory:
            ran = subprocess.run(
                [sys.executable, "-m", "tests.repository.tracer", what, directory],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
            written = json.loads(Path(directory, ENTERED).read_text(encoding="utf-8"))
        found |= {name: [(path, own) for path, own in pairs] for name, pairs in written.items()}
    return found


def crossed_files() -> Mapping[str, Sequence[str]]:
    """Return the product files that an export, a DETACH and a CALL enter."""
    return {name: sorted({path for path, _ in functions}) for name, functions in entered().items()}


def imported_by(program: str, **environment: str) -> tuple[frozenset[str], float]:
    """Return the modules that a program imports in a new interpreter, and its CPU seconds."""
    around = (
        "import sys, time\n"
        "before = set(sys.modules)\n"
        "try:\n"
        f"    {program}\n"
        "finally:\n"
        "    found = ' '.join(set(sys.modules) - before)\n"
        "    sys.stderr.write(f'\\n{time.process_time()} {found}')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", around],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, *names = ran.stderr.splitlines()[-1].split()
    return frozenset(names), float(seconds)


def own(names: frozenset[str]) -> frozenset[str]:
    """Return those of some modules that are the product's."""
    return frozenset(name for name in names if name.partition(".")[0] in ("mergeberg", *PRODUCT))


_Row = tuple[str, str, Sequence[str]]
"""A row of the table: its name, its figure, and the places behind it, if a reader needs them."""


def _table() -> Iterator[_Row]:
    lines = modules()
    single = sum(len(found) == 1 for found in importers().values())
    yield "product modules", f"{len(lines)}", ()
    yield "median lines of a module", f"{statistics.median(lines.values()):.0f}", ()
    yield "modules with one importer", f"{single}", ()
    for name, files in crossed_files().items():
        yield f"files that one {name} crosses", f"{len(files)}", ()
    statements, options = statement_lists(), option_lists()
    yield "modules that list the statements", f"{len(statements)}", statements
    yield "modules that list an export's options", f"{len(options)}", options
    yield from _text_decisions()
    yield from _dangling()
    loaded, seconds = imported_by(HELP)
    yield "modules that --help loads", f"{len(own(loaded))}", sorted(own(loaded))
    yield "CPU seconds of --help", f"{seconds:.1f}", ()


def _text_decisions() -> Iterator[_Row]:
    found = Counter((one.path, one.function) for one in text_decisions())
    for kind, places in REMAINING.items():
        why = [f"{path}, {function}: {places[path, function]}" for path, function in places]
        number = sum(found.pop(place, 0) for place in places)
        yield kind, f"{number}", why
    others = [f"{path}, {function}" for path, function in found]
    yield "other texts of our own that decide", f"{found.total()}", others


def _dangling() -> Iterator[_Row]:
    every = [one for find in references.EVERY.values() for one in find()]
    wrong = [f"{where}: {target}" for where, target in references.dangling(every)]
    yield "references to files, pages and code", f"{len(every)}", ()
    yield "references without a target", f"{len(wrong)}", wrong


def main() -> None:
    """Print the table, and below it the places behind its figures."""
    began = time.monotonic()
    rows = []
    for name, figure, places in _table():
        sys.stdout.write(f"{name:<42}{figure:>8}\n")
        rows.append((name, places))
    sys.stdout.write(f"measured in {time.monotonic() - began:.0f} s\n")
    for name, places in rows:
        if places:
            sys.stdout.write("\n  ".join((f"\n{name}:", *places)) + "\n")


if __name__ == "__main__":
    main()
