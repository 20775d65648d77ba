"""A commit file: what tells the outside that a partition is exported, and by which files.

It is written whole by put-if-absent, once for each export, and never changed (docs/spec/hive.md). A
file of the tree that no commit file names is not, or not yet, exported. One that replaces earlier
exports of the partition names all of them: from the moment that it is there, none of them counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from tableformat.hive.sealed import REPLACING_FORMAT, TREE_FORMAT, damaged, opened, sealed

__all__ = ["CommitFile", "CommittedFile", "commit_name", "is_commit_name", "without_replaced"]

_REMEDY: Final = "remove it: the next export writes it anew"
_NAME: Final = re.compile(r"commit_[A-Za-z0-9-]+_\d{1,20}")


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A data file: its path from the tree's root, its size in bytes, rows, and digest in hex."""

    path: str
    bytes: int
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CommitFile:
    """One export of a partition; `tree` is the tree's identity, `source_table` a name for people.

    `fingerprint` stands for the parts that were exported. No files: the partition had no rows.
    `replaces` are the transaction ids of every earlier export of the same key.
    """

    tree: str
    source_table: str
    partition_id: str
    transaction_id: str
    fingerprint: str
    files: tuple[CommittedFile, ...]
    replaces: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return commit_name(self.partition_id, self.transaction_id)

    @property
    def rows(self) -> int:
        """Rows of its files."""
        return sum(f.rows for f in self.files)

    def to_bytes(self) -> bytes:
        """Return the stored form; equal exports have equal bytes, whoever writes them."""
        return sealed({**self.body(), "rows": self.rows}, self.format)

    @property
    def format(self) -> int:
        """The format of a document that has it: earlier releases refuse what replaces."""
        return REPLACING_FORMAT if self.replaces else TREE_FORMAT

    def body(self) -> dict[str, Any]:
        """Return its fields as documents have them, without `replaces` where there is none."""
        found = asdict(self)
        if not self.replaces:
            del found["replaces"]
        return found

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> CommitFile:
        """Read the stored form.

        Args:
            data: the stored form.
            what: names the document in errors.

        Raises:
            DestinationError: it was changed since it was written, or is of another format.
        """
        raw = opened(data, what, _REMEDY)
        try:
            rows = raw.pop("rows")
            raw["files"] = tuple(CommittedFile(**f) for f in raw["files"])
            raw["replaces"] = tuple(raw.get("replaces", ()))
            found = cls(**raw)
        except (KeyError, TypeError) as error:
            raise damaged(what, repr(error), _REMEDY) from error
        if found.rows != rows:
            why = f"its files have {found.rows} rows together, it says {rows}"
            raise damaged(what, why, _REMEDY)
        return found


def commit_name(partition_id: str, transaction_id: str) -> str:
    """Return the name of the commit file of an export."""
    return f"commit_{partition_id}_{transaction_id}"


def is_commit_name(name: str) -> bool:
    """Whether a name is that of a commit file."""
    return _NAME.fullmatch(name) is not None


def without_replaced(found: Iterable[CommitFile]) -> tuple[CommitFile, ...]:
    """Return those commit files of a tree that no other one replaces."""
    every = tuple(found)
    replaced = {one for commit in every for one in commit.replaces}
    return tuple(commit for commit in every if commit.transaction_id not in replaced)
