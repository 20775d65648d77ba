"""What the documents point to is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.repository.references import EVERY, dangling, documents, links
from tests.repository.source_files import ROOT

LINES = 250


def test_every_link_between_documents_leads_somewhere() -> None:
    found = [*EVERY["links of pages"]()]

    assert len(found) > len(documents()) // 2
    assert dangling(found) == []


def test_no_page_is_longer_than_a_reader_reads() -> None:
    over = [
        f"{path}: {lines} lines"
        for page in documents()
        if (path := page.relative_to(ROOT).as_posix())
        and (lines := len(page.read_text(encoding="utf-8").splitlines())) > LINES
    ]

    assert over == []


def test_every_anchor_that_is_named_is_a_title_of_its_page() -> None:
    """Harm prevented: a link that ends at the top of a page, because its title went elsewhere."""
    named = [*EVERY["anchors"]()]

    assert named
    assert dangling(named) == []


def test_every_document_can_be_reached_from_the_first_page() -> None:
    """A page that nobody finds is not documentation."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        reached.add(document)
        found = (link for link in links(document) if link.endswith(".md"))
        pages = {(document.parent / link).resolve() for link in found}
        waiting.extend(pages - reached)

    fragments = ROOT / "docs" / "changelog.d"
    lost = [page for page in documents() if page not in reached and page.parent != fragments]
    assert [str(page.relative_to(ROOT)) for page in lost] == []


def test_the_changelog_has_a_section_for_the_version_of_the_package() -> None:
    """Harm prevented: a release whose changes nobody can read."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_each_changelog_fragment_says_its_kind_of_change() -> None:
    """Harm prevented: a release leaves out a change, because its file has another name."""
    fragments = sorted((ROOT / "docs" / "changelog.d").iterdir())

    assert [
        path.name
        for path in fragments
        if path.name != "README.md"
        and not (
            re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md", path.name)
            and path.read_text(encoding="utf-8").strip()
        )
    ] == []


def test_the_first_page_names_the_existing_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in documents())
    named = re.findall(r"(?:`|^    )make ([a-z-]+)", pages, re.MULTILINE)

    assert named
    assert [name for name in named if not re.search(rf"^{name}:.*##", makefile, re.MULTILINE)] == []
