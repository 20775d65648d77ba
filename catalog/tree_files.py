"""The data files and commit files of a tree of Hive directories, read and compared.

What a commit file says is what was written: a data file that is gone, or has other bytes, is an
error that names it, and so is a commit file of another export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from tableformat.errors import DestinationError, MissingError
from tableformat.hive.commit_file import CommitFile, CommittedFile, is_commit_name
from tableformat.hive.layout import TreePaths
from tableformat.storage import Storage

__all__ = ["TreeFiles"]


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
        """Yield what is exported, as the commit files say.

        Args:
            tree: its uuid.

        Raises:
            DestinationError: one of them was changed since it was written, or is of another tree.
        """
        for stored in self.storage.list(self.paths.commits):
            name = stored.location.rsplit("/", 1)[-1]
            if is_commit_name(name):
                yield self.commit(name, tree)

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
