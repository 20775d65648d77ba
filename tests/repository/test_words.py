"""Names say what an object is; these words say nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.repository.source_files import FOLDERS, ROOT, source_files
from tests.repository.structure import importers

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FORBIDDEN = ("common", "handler", "helper", "manager", "misc", "util", "utils", "helpers")

UNCLEAR = (
    *("nobody says", "nobody is asked", "It asks nobody", "nobody works on", "nobody's that"),
    *("that nothing has", "asked waits for ever", "count nothing twice", "never nowhere"),
    *("hangs on", "made anew", "| passed over", "not ours to judge", "trusted here signed"),
    *("it is no value", "it is no number of", "is another's (", "not foreseen", "kill it again"),
    *("calculates, where", "last heard of it", "it is only told", "told as FAILED"),
    *("was begun so long ago", "Speak to another", "Database of our own", "who logs in at"),
    *("Look again every so", "dead exports left behind, in", "Not needed, but good to have"),
    *("It would work", "It would not work", "rows are in main since", "none of ClickHouse's about"),
    *("(when what is missing", "(when the reason is gone)", "(again; it is safe)", "(s) are"),
    *("Cannot tell what it is about", "supported is a server", "need not be found out by"),
    *("main has no file of it", "nothing of it is detached", "has no parts of it any more"),
    *("saves work and proves nothing", "it is kept what was", "gc need not be scheduled"),
    *("told to stop", "everybody on the way", "Cannot read an answer", "tell which one it is"),
    *("else stands behind", "its checksum was made of", "Cannot go on with", "Look who did"),
    *("a request of before", "dropped without a word", "which are only read", "spoken to over"),
    *("could not be told why", "said nothing", "nothing says who", "somebody else writes it"),
    *("written anew", "write it anew", "Somebody edited", "for what is there", "if they are to go"),
)
"""Phrases of pages and messages that were plain to nobody but their writer."""
OF_EXPORTS = ("Cannot export", "un the export again", "the export was ", "an export needs")
"""Phrases of messages that are wrong for every other command."""


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


def user_texts() -> list[tuple[str, str]]:
    """Return what users read: pages, and texts in the product, each in one line."""
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")) for page in pages]
    for file in source_files("catalog", "mergeberg", "spark_ext", "tableformat"):
        documented = {ast.get_docstring(node, clean=False) for node in _documented(file.tree)}
        found += [
            (f"{file.path}:{node.lineno}", node.value)
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value not in documented
        ]
    return [(place, " ".join(text.split())) for place, text in found]


def _documented(tree: ast.Module) -> Iterator[Documented]:
    return (node for node in ast.walk(tree) if isinstance(node, Documented))


def test_pages_and_messages_have_no_phrase_that_was_found_unclear() -> None:
    """Harm prevented: a message whose words a user has to translate before they help."""
    texts = user_texts()

    assert len(texts) > 10_000
    assert [(at, one) for at, text in texts for one in UNCLEAR if one in text] == []


def task_modules() -> set[str]:
    """Return the modules whose code runs in tasks, with all that they import."""
    imports: dict[str, set[str]] = {}
    for imported, by in importers().items():
        for one in by:
            imports.setdefault(one, set()).add(imported)
    left, reached = ["spark_ext/engine/tasks.py"], set[str]()
    while left:
        if (one := left.pop()) not in reached:
            reached.add(one)
            left.extend(imports.get(one, ()))
    rewriting = ("catalog/rewriting", "catalog/clickhouse/rows")
    return reached | {file.path for file in source_files(*rewriting)}


def test_no_message_of_a_task_takes_every_command_for_an_export() -> None:
    """Harm prevented: who archives, fetches or updates reads that something cannot be exported."""
    modules = task_modules()
    texts = [(at, text) for at, text in user_texts() if at.rpartition(":")[0] in modules]

    assert len(texts) > 1_000
    assert [(at, one) for at, text in texts for one in OF_EXPORTS if one in text] == []
