"""Names say what a thing is; these words say nothing."""

from __future__ import annotations

import ast
import re

import pytest

from tests.repository.source_files import FOLDERS, source_files

FORBIDDEN = ("common", "handler", "helper", "manager", "misc", "util", "utils", "helpers")


def words(name: str) -> set[str]:
    """Split a name at underscores, slashes and capitals."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("TableManager", {"table", "manager"}),
        ("tests/x_utils.py", {"tests", "x", "utils", "py"}),
        ("HTTPHandler", {"http", "handler"}),
        ("utilise", {"utilise"}),
    ],
)
def test_a_name_is_split_into_words(name: str, found: set[str]) -> None:
    assert words(name) == found


def test_no_module_and_no_class_is_named_by_a_word_that_says_nothing() -> None:
    names = [(file.path, file.path) for file in source_files(*FOLDERS)]
    names += [
        (f"{file.path}:{node.lineno}", node.name)
        for file in source_files(*FOLDERS)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ClassDef)
    ]

    assert [(place, name) for place, name in names if words(name) & set(FORBIDDEN)] == []
