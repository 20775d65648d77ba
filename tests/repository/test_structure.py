"""The product has few modules, and cites only documents that are in the repository."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from tests.repository.source_files import FOLDERS, ROOT, source_files
from tests.repository.structure import crossed_files, importers, modules, statement_lists

MODULES = 320
MEDIAN = (150, 300)
SINGLE_IMPORTER = 85
STATEMENT_LISTS = 4
CROSSED = {"export": 122, "detach": 68, "call": 128}
ABSENT = re.compile(r"\bDESIGN\b|\bcoverage\.md\b|\bHole \d|\bnotes/\w+\.md\b|\breadings? \d+\b")
"""How documents were cited that are not in the repository."""
CITED = re.compile(r"\bdocs/[\w./-]+\.md\b")
MAY_NAME_THEM = ("tests/repository/test_structure.py",)


def texts() -> dict[str, str]:
    """Return every Python file and every page, by path."""
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    found = {file.path: file.text for file in source_files(*FOLDERS)}
    return found | {page.relative_to(ROOT).as_posix(): page.read_text() for page in pages}


def test_there_are_not_more_modules_than_a_reader_can_keep_in_mind() -> None:
    lines = modules()
    single = [path for path, found in importers().items() if len(found) == 1]

    assert len(lines) <= MODULES
    assert MEDIAN[0] <= statistics.median(lines.values()) <= MEDIAN[1]
    assert len(single) <= SINGLE_IMPORTER, sorted(single)


def test_statements_are_listed_in_few_modules() -> None:
    found = statement_lists()

    assert 1 <= len(found) <= STATEMENT_LISTS, found


@pytest.mark.spark
@pytest.mark.nightly
def test_a_command_crosses_few_files() -> None:
    found = {name: len(files) for name, files in crossed_files().items()}

    assert found.keys() == CROSSED.keys()
    assert all(0 < found[name] <= most for name, most in CROSSED.items()), found


def test_code_and_documents_cite_only_what_is_in_the_repository() -> None:
    """Harm prevented: a reader looks for the source of a rule, and nobody outside has it."""
    wrong = [
        f"{path}: {match[0]}"
        for path, text in texts().items()
        if path not in MAY_NAME_THEM and not path.startswith("docs/changelog.d/")
        for match in ABSENT.finditer(text)
    ]
    gone = [
        f"{path}: {cited}"
        for path, text in texts().items()
        for cited in CITED.findall(text)
        if not Path(ROOT, cited).is_file()
    ]

    assert wrong == []
    assert gone == []
