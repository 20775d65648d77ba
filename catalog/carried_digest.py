"""The kept digest of an export whose files are written anew, and whose rows stay."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

from catalog.clickhouse.digests import FileDigests
from catalog.storages.opening import Storages
from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.export.verification import digest_location
from tableformat.file_names import exported_by
from tableformat.ledger import Row

__all__ = ["carry_digest"]


def carry_digest(
    row: Row, files: Iterable[BranchFile], state: LakeTableState, storages: Storages
) -> None:
    """Keep the digest of an export for the claim that its files are written anew for.

    Else the proof that its rows are those of the source would end with the files. A claim that is a
    statement's is of other rows; there is nothing to carry where the export kept no digest.

    Args:
        row: with the claim.
        files: those in whose place others come.
        state: of the table.
        storages: open what locations belong to.

    Raises:
        DestinationError: it cannot be read or stored.
    """
    written_by = {exported_by(file.path) for file in files}
    if row.claim.statement or len(written_by) != 1:
        return
    (named,) = written_by
    if named is None:
        return
    with closing(FileDigests(storages)) as digests:
        kept = digests.kept(digest_location(state.location, *named))
        if kept is not None:
            to = row.claim.transaction_id
            location = digest_location(state.location, row.key.hash, to)
            digests.keep(location, replace(kept, transaction_id=to))
