"""Code that pages and docstrings cite is there: files, and functions as `module.function`."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from spark_ext.public_names import PUBLIC
from tests.repository.source_files import FOLDERS, PACKAGES, ROOT, names_in, source_files

FILE: Final = re.compile(r"`(?:\.\./)*([\w./-]+\.(?:py|pyi|toml|json|lock|in|tla))`")
DOTTED: Final = re.compile(r"`([a-z_]\w*(?:\.\w+)+)(?:\(\))?`")
PAGE: Final = re.compile(r"\b([\w./-]+\.md)\b")
NOT_MODULES: Final = {
    *("adls", "array", "ch", "chdb", "client", "database", "db", "default", "gc", "gcs", "hdfs"),
    *(
        "jdbc",
        "lake",
        "mergeberg",
        "n",
        "os",
        "pa",
        "parts",
        "pyiceberg",
        "request",
        "row",
        "s3",
        "spark",
    ),
    *("state", "sys", "system", "t", "tables", "write"),
}
"""Words before a dot that are tables, settings, libraries or values."""
NOT_FUNCTIONS: Final = {"json", "md", "parquet", "py", "sql", "table", "toml", "txt"}
"""Words behind a dot that are extensions of files, or stand for the name of a table."""


@functools.cache
def tracked() -> frozenset[str]:
    """Every file of the repository, but those whose path has a hidden folder."""
    found = set()
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith((".", "__pycache__"))]
        found |= {Path(folder, name).relative_to(ROOT).as_posix() for name in names}
    return frozenset(found)


@functools.cache
def by_suffix() -> Mapping[str, tuple[str, ...]]:
    """The files of the repository, by each end of their paths."""
    found = defaultdict[str, list[str]](list)
    for path in tracked():
        parts = path.split("/")
        for first in range(len(parts)):
            found["/".join(parts[first:])].append(path)
    return {suffix: tuple(paths) for suffix, paths in found.items()}


def pages() -> list[Path]:
    """Every page but the fragments of the changelog, which say how it was then."""
    return [
        ROOT / path
        for path in sorted(tracked())
        if path.endswith(".md") and not path.startswith("docs/changelog.d/")
    ]


@functools.cache
def defined() -> Mapping[str, frozenset[str]]:
    """What the product's modules define, by each end of their dotted names."""
    found = defaultdict[str, set[str]](set)
    for file in source_files(*PACKAGES, "conformance"):
        parts = file.path.removesuffix(".py").removesuffix("/__init__").split("/")
        names = set(names_in(file.tree))
        for first in range(len(parts)):
            found[".".join(parts[first:])] |= names
    found["spark_ext"] |= PUBLIC.keys()
    return {name: frozenset(names) for name, names in found.items()}


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module, or something that a module or a class defines."""
    modules = defined()
    if dotted in modules:
        return True
    parts = dotted.split(".")
    owners = (".".join(parts[:n]) for n in range(1, len(parts)))
    if any(o in modules and dotted.removeprefix(f"{o}.") in modules[o] for o in owners):
        return True
    return any(dotted in names for names in modules.values())


def is_code(dotted: str) -> bool:
    """Whether a dotted name can be meant as code of ours, and not a setting, a table or a file."""
    first, *_, last = dotted.split(".")
    return first not in NOT_MODULES and last not in NOT_FUNCTIONS


@functools.cache
def docstrings() -> tuple[tuple[str, str], ...]:
    """The docstrings and comments of all Python files, with their paths."""
    return tuple(_docstrings())


def _docstrings() -> Iterator[tuple[str, str]]:
    for file in source_files(*FOLDERS):
        comments = re.findall(r"(?m)^\s*# (.*)$", file.text)
        texts = (
            node.value.value
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        yield file.path, "\n".join((*texts, *comments))


@pytest.mark.parametrize(
    ("dotted", "found"),
    [
        ("commit.first_snapshot", True),
        ("tableformat.export.commit", True),
        ("cleanup.Cleaning.clean", True),
        ("committer.Leaving.paths", True),
        ("giving_up.kill", False),
        ("commit.no_such_function", False),
    ],
)
def test_a_cited_function_is_looked_up_in_its_module(dotted: str, *, found: bool) -> None:
    assert is_there(dotted) == found


def test_files_that_pages_cite_are_in_the_repository() -> None:
    """Harm prevented: after a move, a page sends its reader to a file that is gone."""
    cited = [
        (page.relative_to(ROOT).as_posix(), path)
        for page in pages()
        for path in FILE.findall(page.read_text(encoding="utf-8"))
        if ("/" in path or path.endswith(".py")) and not path.startswith("_")
    ]

    assert len(cited) > 50
    assert [(page, path) for page, path in cited if path not in by_suffix()] == []


def test_a_page_of_the_specification_cites_files_by_their_whole_path() -> None:
    """Harm prevented: `snapshot.py` may be any of three files."""
    cited = [
        (page.name, path)
        for page in (ROOT / "docs" / "spec").glob("*.md")
        for path in FILE.findall(page.read_text(encoding="utf-8"))
        if path.endswith(".py")
    ]

    assert len(cited) > 10
    assert [(page, path) for page, path in cited if path not in tracked()] == []


def test_functions_that_the_specification_cites_are_in_the_code() -> None:
    found = [
        (page.name, dotted)
        for page in (ROOT / "docs" / "spec").glob("*.md")
        for dotted in DOTTED.findall(page.read_text(encoding="utf-8"))
        if is_code(dotted)
    ]

    assert len(found) > 20
    assert [(page, dotted) for page, dotted in found if not is_there(dotted)] == []


def test_files_that_docstrings_cite_are_in_the_repository() -> None:
    cited = [(path, one) for path, text in docstrings() for one in FILE.findall(text)]

    assert len(cited) > 100
    assert [
        (path, one)
        for path, one in cited
        if one not in by_suffix() and ("/" in one or one.endswith(".py")) and "NAME" not in one
    ] == []


def test_pages_that_docstrings_cite_are_in_the_repository() -> None:
    cited = [
        (path, one)
        for path, text in docstrings()
        if not path.startswith("tests/")
        for one in PAGE.findall(text)
    ]

    assert len(cited) > 20
    assert [(path, one) for path, one in cited if one not in by_suffix()] == []


def test_functions_that_docstrings_of_the_product_cite_are_in_the_code() -> None:
    cited = [
        (path, dotted)
        for path, text in docstrings()
        if not path.startswith("tests/")
        for dotted in DOTTED.findall(text)
        if is_code(dotted)
    ]

    assert len(cited) > 20
    assert [(path, dotted) for path, dotted in cited if not is_there(dotted)] == []
