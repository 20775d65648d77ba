"""The Python files of the project, read once, for the tests about the repository."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("mergeberg", "tableformat", "catalog", "spark_ext")
FOLDERS: Final = (*PACKAGES, "conformance", "tests")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: where it is, as a path from the root, and what stands in it."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """The file as Python parses it: each time again, as a million nodes are much to keep."""
        # A search for garbage would find none, and takes longer with each node.
        gc.disable()
        try:
            return ast.parse(self.text, self.path)
        finally:
            gc.enable()

    @property
    def name(self) -> str:
        """The name of the file without the folders."""
        return self.path.rpartition("/")[2]


@functools.cache
def source_files(*folders: str) -> tuple[SourceFile, ...]:
    """Read every Python file below the folders, in the order of their paths."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(_read(path) for path in paths)


def _read(path: Path) -> SourceFile:
    return SourceFile(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def names_in(tree: ast.AST, before: str = "") -> Iterator[str]:
    """Yield what a module or a class defines, by qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield before + node.name
            if isinstance(node, ast.ClassDef):
                yield from names_in(node, f"{before}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (before + t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield before + node.target.id
