"""What the documents point to is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.repository.source_files import ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_link_between_documents_leads_somewhere() -> None:
    links = [
        (document, link)
        for document in documents()
        for link in LINK.findall(document.read_text(encoding="utf-8"))
        if "://" not in link and not link.startswith("mailto:")
    ]

    assert len(links) > len(documents()) // 2
    assert [
        (str(document.relative_to(ROOT)), link)
        for document, link in links
        if not (document.parent / link).exists()
    ] == []


def test_every_document_can_be_reached_from_the_first_page() -> None:
    """A page that nobody finds is not documentation."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        reached.add(document)
        found = LINK.findall(document.read_text(encoding="utf-8"))
        pages = {(document.parent / link).resolve() for link in found if link.endswith(".md")}
        waiting.extend(pages - reached)

    fragments = ROOT / "docs" / "changelog.d"
    lost = [page for page in documents() if page not in reached and page.parent != fragments]
    assert [str(page.relative_to(ROOT)) for page in lost] == []


def test_the_first_page_tells_the_targets_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = re.findall(r"\bmake ([a-z-]+)", "".join(page.read_text() for page in documents()))

    assert told
    assert [name for name in told if not re.search(rf"^{name}:.*##", makefile, re.MULTILINE)] == []


def test_the_locks_name_no_place_and_cover_every_supported_python() -> None:
    """Where packages come from is the business of the machine that installs them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        f"py{line.rpartition(' ')[2].replace('.', '')}.lock"
        for line in project["classifiers"]
        if re.search(r"Python :: 3\.\d+$", line)
    }
    locks = {
        lock.name: lock.read_text(encoding="utf-8") for lock in ROOT.glob("requirements/*.lock")
    }

    assert set(locks) == wanted
    for text in locks.values():
        assert "://" not in text
        assert all(
            line.startswith(("    --hash=sha256:", " ")) or "==" in line
            for line in text.splitlines()
        )
