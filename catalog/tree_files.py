"""The data files and commit files of a tree of Hive directories, read and compared.

What a commit file says is what was written: a data file that is gone, or has other bytes, is an
error that names it, and so is a commit file of another export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tableformat.errors import DestinationError, MissingError
from tableformat.hive.commit_file import (
    CommitFile,
    CommittedFile,
    commit_name,
    is_commit_name,
    without_replaced,
)
from tableformat.hive.exported import Exported
from tableformat.hive.layout import TreePaths
from tableformat.storage import Storage

__all__ = ["PublishedCommits", "TreeFiles"]

_MOST_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class TreeFiles:
    """The files of a tree, which is in `storage`."""

    storage: Storage
    paths: TreePaths

    def check(self, commit: CommitFile, file: CommittedFile, *, content: bool) -> None:
        """Compare a data file with what its commit file says: its size, and its `content`.

        Raises:
            DestinationError: it is gone, or is not what was written, or cannot be read.
        """
        location = self.paths.absolute(file.path)
        try:
            is_it = self.storage.size(location) == file.bytes and (
                not content or self.storage.sha256(location) == file.sha256
            )
        except MissingError as error:
            raise self._unusable(commit, file, "gone") from error
        if not is_it:
            raise self._unusable(commit, file, "not what was written")

    def content(self, commit: CommitFile, file: CommittedFile) -> bytes:
        """Return a data file, which is what was written.

        Raises:
            DestinationError: it is gone, or is not what was written, or cannot be read.
        """
        try:
            data = self.storage.read(self.paths.absolute(file.path))
        except MissingError as error:
            raise self._unusable(commit, file, "gone") from error
        if (len(data), hashlib.sha256(data).hexdigest()) != (file.bytes, file.sha256):
            raise self._unusable(commit, file, "not what was written")
        return data

    def _unusable(self, commit: CommitFile, file: CommittedFile, why: str) -> DestinationError:
        return DestinationError(
            f"Cannot use {self.paths.absolute(file.path)}, a file of the export {commit.name}: it "
            f"is {why}. Put it back from a copy, or export to another tree."
        )

    def commits(self, tree: str) -> Iterator[CommitFile]:
        """Yield what is exported, as the commit files say: those that no other one replaces.

        Args:
            tree: its uuid.

        Raises:
            DestinationError: one of them was changed since it was written, or is of another tree.
        """
        last: MissingError | None = None
        for _ in range(_MOST_LOOKS):
            try:
                yield from without_replaced(self._all(tree))
            except MissingError as error:
                # It was replaced between the two looks: its successor is on the next list.
                last = error
            else:
                return
        message = (
            f"Cannot read the commit files in {self.paths.commits}: {_MOST_LOOKS} times one was "
            f"gone that was listed, the last: {last}. Run the command again."
        )
        raise DestinationError(message)

    def _all(self, tree: str) -> tuple[CommitFile, ...]:
        return tuple(self.commit(name, tree) for name in sorted(self.listed()))

    def listed(self) -> set[str]:
        """Return the names of the commit files that are there, also of replaced exports."""
        names = (o.location.rsplit("/", 1)[-1] for o in self.storage.list(self.paths.commits))
        return {name for name in names if is_commit_name(name)}

    def commit(self, name: str, tree: str) -> CommitFile:
        """Return the commit file of a name.

        Raises:
            MissingError: it is not there.
            DestinationError: it was changed since it was written, or is of another tree.
        """
        at = self.paths.commit(name)
        found = CommitFile.from_bytes(self.storage.read(at), at)
        if (found.name, found.tree) != (name, tree):
            message = (
                f"Cannot use {at}: it says that it is {found.name} of the tree {found.tree}, and "
                f"this is {tree}. It was copied here; remove it."
            )
            raise DestinationError(message)
        return found


class PublishedCommits:
    """The commit files that one process puts, and removes. One that was seen is not looked for."""

    def __init__(self, files: TreeFiles) -> None:
        """Start without having looked."""
        self._files = files
        self._there: set[str] = set()

    def complete(self, exported: Exported) -> None:
        """Write the commit files that are owed: of a run that died, or that somebody removed.

        Those of exports that were replaced go, after their successors are there.

        Raises:
            DestinationError: a data file is not what was written, or a commit file is refused.
        """
        made = exported.counting
        if not all(commit.name in self._there for commit in made):
            self._there |= self._files.listed()
        for commit in made:
            if commit.name not in self._there:
                for file in commit.files:
                    self._files.check(commit, file, content=True)
                self.put(commit)
        for replaced in exported.until:
            self._withdraw(exported.commits[replaced].name)

    def put(self, commit: CommitFile) -> None:
        """Put a commit file, and then remove those that it replaces."""
        # Of two runs at once both write the same bytes.
        at = self._files.paths.commit(commit.name)
        self._files.storage.put_if_absent(at, commit.to_bytes())
        self._there.add(commit.name)
        for replaced in commit.replaces:
            self._withdraw(commit_name(commit.partition_id, replaced))

    def _withdraw(self, name: str) -> None:
        """Remove a commit file of an export that was replaced, where it was seen.

        One that is put again by a run that was held up counts for nobody: its successors name it.
        """
        if name in self._there:
            self._files.storage.delete(self._files.paths.commit(name))
            self._there.discard(name)
