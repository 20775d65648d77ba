"""The kept digest of an export whose files are copied, or written anew: its rows are the same."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace

from catalog.clickhouse.digests import FileDigests
from catalog.storages.opening import Storages
from tableformat.branches import BranchFile
from tableformat.export.verification import digest_location
from tableformat.file_names import exported_by
from tableformat.ledger import Row

__all__ = ["TableFiles", "carry_digest"]


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Where the files of a lake table are."""

    location: str
    storages: Storages


def carry_digest(row: Row, files: Iterable[BranchFile], source: TableFiles, to: TableFiles) -> None:
    """Keep the digest of an export for the claim that its files are copied or written anew for.

    Else the proof that its rows are those of the source would end with the files. A claim that is a
    statement's is of other rows; there is nothing to carry where the export kept no digest.

    Args:
        row: with the claim.
        files: those of which copies, or in whose place others, come.
        source: the table that has them.
        to: the table of the claim.

    Raises:
        DestinationError: it cannot be read or stored.
    """
    written_by = {exported_by(file.path) for file in files}
    if row.claim.statement or len(written_by) != 1:
        return
    (named,) = written_by
    if named is None:
        return
    with closing(FileDigests(source.storages)) as digests:
        kept = digests.kept(digest_location(source.location, *named))
    if kept is None:
        return
    transaction_id = row.claim.transaction_id
    with closing(FileDigests(to.storages)) as digests:
        location = digest_location(to.location, row.key.hash, transaction_id)
        digests.keep(location, replace(kept, transaction_id=transaction_id))
