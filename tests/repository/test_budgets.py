"""Files and functions are read in one sitting, and the name of a test in one line."""

from __future__ import annotations

import ast

from tests.repository.source_files import FOLDERS, SourceFile, source_files

FILE = 700
FUNCTION = 60
INIT = 40
CONFTEST = 150
NAME_OF_TEST = 72
LONGER: dict[str, tuple[int, str]] = {
    "tableformat/export/commit.py": (900, "the commit protocol, read from top to bottom"),
    "spark_ext/sql/statements.py": (800, "the one list of statements, each with its arguments"),
}
"""Files that may be longer: how long, and why."""


def budget(file: SourceFile) -> int:
    own = {"__init__.py": INIT, "conftest.py": CONFTEST}.get(file.name, FILE)
    return LONGER.get(file.path, (own, ""))[0]


def test_every_file_keeps_its_budget() -> None:
    files = source_files(*FOLDERS)
    over = [
        f"{file.path}: {lines} lines, {budget(file)} allowed"
        for file in files
        if (lines := len(file.text.splitlines())) > budget(file)
    ]

    assert len(files) > len(FOLDERS)
    assert over == []


def test_every_function_keeps_its_budget() -> None:
    over = [
        f"{file.path}:{node.lineno} {node.name}: {lines} lines, {FUNCTION} allowed"
        for file in source_files(*FOLDERS)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION
    ]

    assert over == []


def test_the_name_of_a_test_is_read_in_one_line() -> None:
    names = [
        node.name
        for file in source_files("tests")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]

    assert len(names) > 1000
    assert [name for name in names if len(name) > NAME_OF_TEST] == []
