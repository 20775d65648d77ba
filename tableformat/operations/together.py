"""Whether files were in main at the same time: then no row of one is a row of another.

Files that were there one after the other may be forms of the same rows: before and after an UPDATE,
or a copy and what it is of. No name tells that, and main may have been moved between the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from tableformat.branches import BranchFile
from tableformat.file_names import exported_by
from tableformat.operations.earlier import Earlier
from tableformat.operations.partition_files import KeyInMain

__all__ = ["were_taken_out", "were_together"]

Files = tuple[BranchFile, ...]


def were_together(back: Files, main: Files, keys: Iterable[KeyInMain]) -> bool:
    """Whether it is known that detached files and files of main were in main at the same time.

    Args:
        back: the files that are detached.
        main: those of main beside which they would be.
        keys: what main has of the keys that they are of.
    """
    files = (*back, *main)
    written = {exported_by(f.path) for f in files}
    if len(files) == 1 or (len(written) == 1 and None not in written):
        # What one transaction wrote of a key landed in one snapshot.
        return True
    detached = {f.sequence_number for f in back}
    if not main and len(detached) == 1 and detached != {0}:
        # One statement brought them to the branch, of what a table had then.
        return True
    return any(_had(at, back, main) for key in keys for at in key.earlier())


def were_taken_out(back: Files, main: Files, keys: Iterable[KeyInMain]) -> bool:
    """Whether it is known that the rows of detached files of others are nowhere in main.

    What others wrote since, while they were detached, are other rows; a copy may be of them. Where
    main was moved to before they were detached, others may have written them anew.

    Args:
        back: the files that are detached, which others wrote.
        main: all files of their partition in main.
        keys: what main has of the keys in the partition.
    """
    if not main and len({f.sequence_number for f in back}) == 1:
        return True
    taken = {at.number_of_detached: at.number for key in keys for at in key.earlier()}
    copies = [f.sequence_number for f in main if exported_by(f.path) is not None]
    return all(
        f.sequence_number in taken
        and all(0 < number <= taken[f.sequence_number] for number in copies)
        for f in back
    )


def _had(at: Earlier, back: Files, main: Files) -> bool:
    """Whether main had all these files before a statement."""
    return all(_came_from(at, f) for f in back) and all(
        f.path in at.paths or 0 < f.sequence_number <= at.number for f in main
    )


def _came_from(at: Earlier, file: BranchFile) -> bool:
    """Whether a detached file was in main then; what others wrote has no key in its name."""
    if exported_by(file.path) is None:
        return file.sequence_number == at.number_of_detached
    return file.path in at.paths
