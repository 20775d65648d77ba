"""What the documents point to is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.repository.source_files import FOLDERS, ROOT, source_files

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\[[^\]]*\]\(([^)#\s:]*)#([^)\s]+)\)")
CITED = re.compile(r"\b(docs/[\w./-]+\.md)#([\w-]+)")
LINES = 250
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


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


def test_no_page_is_longer_than_a_reader_reads() -> None:
    over = [
        f"{path}: {lines} lines"
        for page in documents()
        if (path := page.relative_to(ROOT).as_posix())
        and (lines := len(page.read_text(encoding="utf-8").splitlines())) > LINES
    ]

    assert over == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of the titles on a page, as GitHub forms them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in shown}


def test_every_anchor_that_is_named_is_a_title_of_its_page() -> None:
    """Harm prevented: a link that ends at the top of a page, because its title went elsewhere."""
    linked = [
        (str(document.relative_to(ROOT)), document.parent / page if page else document, anchor)
        for document in documents()
        for page, anchor in ANCHOR.findall(document.read_text(encoding="utf-8"))
    ]
    cited = [
        (file.path, ROOT / page, anchor)
        for file in source_files(*FOLDERS)
        for page, anchor in CITED.findall(file.text)
    ]

    assert linked
    assert [
        (name, f"{page.name}#{anchor}")
        for name, page, anchor in linked + cited
        if page.suffix == ".md" and anchor not in anchors(page)
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


def test_the_first_page_tells_the_targets_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in documents())
    told = re.findall(r"(?:`|^    )make ([a-z-]+)", pages, re.MULTILINE)

    assert told
    assert [name for name in told if not re.search(rf"^{name}:.*##", makefile, re.MULTILINE)] == []
