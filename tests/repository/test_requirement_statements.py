"""No statement that the requirement documents write is missing from those that tests run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from conformance.requirements import load_requirements
from tests.repository.source_files import ROOT
from tests.requirement_statements.statements import (
    CANCELLATION,
    EXPORTS,
    QUERIES,
    STORIES,
    TEMPORARY,
    WITHOUT_MEANING,
)

# The documents are next to a working tree, where somebody has them.
_DOCUMENTS: Final = ROOT.parent / "shared" / "requirements"
_BLOCK: Final = re.compile(r"```sql\n(.*?)```", re.DOTALL)
_IN_TABLE: Final = re.compile(r"\| `(ALTER[^`]*)`")
_IN_SENTENCE: Final = re.compile(r"(?:For example,|Run) (ALTER TABLE [^.]*)")
_LINE: Final = re.compile(r"(?:ALTER|OPTIMIZE) TABLE")
_STORIES: Final = (EXPORTS, *STORIES.values())
_STEPS: Final = [CANCELLATION[1], *(step for story in _STORIES for step in story.steps)]


def _plain(text: str) -> str:
    """Return a statement on one line; one document writes PARTITION/PART, another a bar."""
    return " ".join(text.replace("/PART ", "|PART ").replace("/VOLUME ", "|VOLUME ").split())


def _written(document: Path) -> Iterator[str]:
    """Yield every statement that a document writes."""
    text = document.read_text(encoding="utf-8")
    for block in _BLOCK.findall(text):
        for piece in re.split(r";|\n(?=ALTER TABLE)", re.sub(r"--[^\n]*", "", block)):
            yield _plain(piece)
    for found in (*_IN_TABLE.findall(text), *_IN_SENTENCE.findall(text)):
        yield _plain(found)
    if not _BLOCK.search(text):
        yield from (_plain(one.rstrip(";")) for one in text.split("\n") if _LINE.match(one))


def test_every_statement_of_the_documents_is_run() -> None:
    """Where the documents are not at hand, of the statements that were written down from them."""
    known = {step.text for step in _STEPS} | {*QUERIES.values(), *TEMPORARY, *WITHOUT_MEANING}
    written = {one for path in sorted(_DOCUMENTS.glob("*.md")) for one in _written(path) if one}

    assert written - known == set()
    assert len(known) >= 60


def test_every_statement_is_of_a_requirement() -> None:
    ids = {one.id for one in load_requirements().all}

    assert {step.id for step in _STEPS if step.id} | QUERIES.keys() <= ids
