"""Finds what pages, docstrings and comments refer to, and whether the repository has it.

`EVERY` names the kinds of references; `dangling` returns those whose target is missing.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spark_ext.public_names import PUBLIC
from tests.repository.source_files import FOLDERS, PACKAGES, ROOT, names_in, source_files

__all__ = ["EVERY", "Reference", "dangling", "documents", "is_there", "links"]

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
_ANCHOR: Final = re.compile(r"\[[^\]]*\]\(([^)#\s:]*)#([^)\s]+)\)")
_CITED_ANCHOR: Final = re.compile(r"\b(docs/[\w./-]+\.md)#([\w-]+)")
_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"`(?:\.\./)*([\w./-]+\.(?:py|pyi|toml|json|lock|in|tla))`")
_DOTTED: Final = re.compile(r"`([a-z_]\w*(?:\.\w+)+)(?:\(\))?`")
_PAGE: Final = re.compile(r"\b([\w./-]+\.md)\b")
_PAGE_OF_DOCS: Final = re.compile(r"\bdocs/[\w./-]+\.md\b")
_ABSENT: Final = re.compile(
    r"\bDESIGN\b|\bcoverage\.md\b|\bHole \d|\bnotes/\w+\.md\b|\breadings? \d+\b"
)
"""How documents were cited that are not in the repository."""
_NOT_MODULES: Final = frozenset(
    (
        *("adls", "array", "ch", "chdb", "client", "database", "db", "default", "gc", "gcs"),
        *("hdfs", "jdbc", "lake", "mergeberg", "n", "os", "pa", "parts", "pyiceberg", "request"),
        *("row", "s3", "spark", "state", "sys", "system", "t", "tables", "write"),
    )
)
"""Words before a dot that are tables, settings, libraries or values."""
_NOT_FUNCTIONS: Final = frozenset({"json", "md", "parquet", "py", "sql", "table", "toml", "txt"})
"""Words behind a dot that are extensions of files, or stand for the name of a table."""


class Reference(NamedTuple):
    """A reference: the file that has it, its target, and whether the target exists."""

    where: str
    target: str
    exists: bool


def dangling(references: Iterable[Reference]) -> Sequence[tuple[str, str]]:
    """Return the references without a target: the file, and what it names."""
    return [(one.where, one.target) for one in references if not one.exists]


def documents() -> Sequence[Path]:
    """Return every page, the fragments of the changelog included."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> Sequence[str]:
    """Return the files that a page links to."""
    return _LINK.findall(page.read_text(encoding="utf-8"))


def _links() -> Iterator[Reference]:
    for page in documents():
        for link in links(page):
            if "://" not in link and not link.startswith("mailto:"):
                yield Reference(_path(page), link, (page.parent / link).exists())


def _anchors() -> Iterator[Reference]:
    linked = (
        (_path(page), page.parent / name if name else page, anchor)
        for page in documents()
        for name, anchor in _ANCHOR.findall(page.read_text(encoding="utf-8"))
    )
    cited = (
        (file.path, ROOT / page, anchor)
        for file in source_files(*FOLDERS)
        for page, anchor in _CITED_ANCHOR.findall(file.text)
    )
    for where, page, anchor in (*linked, *cited):
        if page.suffix == ".md":
            exists = page.is_file() and anchor in _titles(page)
            yield Reference(where, f"{page.name}#{anchor}", exists)


def _titles(page: Path) -> frozenset[str]:
    """Return the anchors of the titles on a page, as GitHub forms them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return frozenset(
        re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in shown
    )


def _path(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@functools.cache
def _tracked() -> frozenset[str]:
    """Every file of the repository, but those whose path has a hidden folder."""
    found = set()
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith((".", "__pycache__"))]
        found |= {Path(folder, name).relative_to(ROOT).as_posix() for name in names}
    return frozenset(found)


@functools.cache
def _by_suffix() -> Mapping[str, tuple[str, ...]]:
    """The files of the repository, by each end of their paths."""
    found = defaultdict[str, list[str]](list)
    for path in _tracked():
        parts = path.split("/")
        for first in range(len(parts)):
            found["/".join(parts[first:])].append(path)
    return {suffix: tuple(paths) for suffix, paths in found.items()}


def _pages() -> Iterator[tuple[str, str]]:
    """Every page with its text, but the fragments of the changelog, which say how it was then."""
    for path in sorted(_tracked()):
        if path.endswith(".md") and not path.startswith("docs/changelog.d/"):
            yield path, (ROOT / path).read_text(encoding="utf-8")


def _specification() -> Iterator[tuple[str, str]]:
    return (one for one in _pages() if Path(one[0]).parent == Path("docs/spec"))


@functools.cache
def _defined() -> Mapping[str, frozenset[str]]:
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
    modules = _defined()
    if dotted in modules:
        return True
    parts = dotted.split(".")
    owners = (".".join(parts[:n]) for n in range(1, len(parts)))
    if any(o in modules and dotted.removeprefix(f"{o}.") in modules[o] for o in owners):
        return True
    return any(dotted in names for names in modules.values())


def _is_code(dotted: str) -> bool:
    """Whether a dotted name can be meant as code of ours, and not a setting, a table or a file."""
    first, *_, last = dotted.split(".")
    return first not in _NOT_MODULES and last not in _NOT_FUNCTIONS


@functools.cache
def _docstrings() -> Sequence[tuple[str, str]]:
    """The docstrings and comments of all Python files, with their paths."""
    return tuple((file.path, _documented(file.text, file.tree)) for file in source_files(*FOLDERS))


def _documented(text: str, tree: ast.Module) -> str:
    docstrings = (
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    return "\n".join((*docstrings, *re.findall(r"(?m)^\s*# (.*)$", text)))


def _docstrings_of_product() -> Iterator[tuple[str, str]]:
    return (one for one in _docstrings() if not one[0].startswith("tests/"))


def _files_of_pages() -> Iterator[Reference]:
    for page, text in _pages():
        for path in _FILE.findall(text):
            if ("/" in path or path.endswith(".py")) and not path.startswith("_"):
                yield Reference(page, path, path in _by_suffix())


def _paths_of_specification() -> Iterator[Reference]:
    """Files of code in the specification, which cites them by their whole path."""
    for page, text in _specification():
        for path in _FILE.findall(text):
            if path.endswith(".py"):
                yield Reference(page, path, path in _tracked())


def _files_of_docstrings() -> Iterator[Reference]:
    for where, text in _docstrings():
        for path in _FILE.findall(text):
            may_be_absent = ("/" not in path and not path.endswith(".py")) or "NAME" in path
            yield Reference(where, path, path in _by_suffix() or may_be_absent)


def _pages_of_docstrings() -> Iterator[Reference]:
    for where, text in _docstrings_of_product():
        for page in _PAGE.findall(text):
            yield Reference(where, page, page in _by_suffix())


def _functions(texts: Iterable[tuple[str, str]]) -> Iterator[Reference]:
    for where, text in texts:
        for dotted in filter(_is_code, _DOTTED.findall(text)):
            yield Reference(where, dotted, is_there(dotted))


def _texts() -> Iterator[tuple[str, str]]:
    """Every Python file and every page, with its text."""
    yield from ((file.path, file.text) for file in source_files(*FOLDERS))
    yield from ((_path(page), page.read_text(encoding="utf-8")) for page in documents())


def _pages_of_docs() -> Iterator[Reference]:
    for where, text in _texts():
        for page in _PAGE_OF_DOCS.findall(text):
            yield Reference(where, page, (ROOT / page).is_file())


def _absent_documents() -> Iterator[Reference]:
    for where, text in _texts():
        if not where.startswith("docs/changelog.d/"):
            for found in _ABSENT.finditer(text):
                yield Reference(where, found[0], exists=False)


EVERY: Final[Mapping[str, Callable[[], Iterator[Reference]]]] = {
    "links of pages": _links,
    "anchors": _anchors,
    "files in pages": _files_of_pages,
    "files in the specification": _paths_of_specification,
    "functions in the specification": lambda: _functions(_specification()),
    "files in docstrings": _files_of_docstrings,
    "pages in docstrings": _pages_of_docstrings,
    "functions in docstrings": lambda: _functions(_docstrings_of_product()),
    "pages of docs in all texts": _pages_of_docs,
    "documents outside of the repository": _absent_documents,
}
"""What finds the references of each kind."""
