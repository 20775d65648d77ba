"""Whether what is in main is what was frozen: the contract, and what both front doors share.

`export --verify` asks right after its commit, `mergeberg verify` at any time later. A kept digest
stands beside the receipts of its transaction (docs/spec/digest.md), so that the proof outlives the
source's partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from pyiceberg.schema import Schema

from tableformat.committer import Committed
from tableformat.digest import Difference, Digest, KeptDigest
from tableformat.effects import Step
from tableformat.errors import TableFormatError
from tableformat.export.commit import Ports
from tableformat.export.outcome import Outcome, Status
from tableformat.file_names import RECEIPTS
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.type_text import parse_type
from tableformat.source import FrozenPartition

__all__ = [
    "LakeDigests",
    "Verification",
    "columns_of",
    "differences",
    "digest_location",
    "told",
]

_NAME: Final = "digest.json"
_TOLD: Final = 3


class LakeDigests(Protocol):
    """Digests the data files of a lake table, and keeps digests of what was frozen."""

    def digest(
        self, locations: Sequence[str], schema: Schema, columns: Sequence[DigestColumn]
    ) -> Digest:
        """Return the digest of all rows of data files.

        Raises:
            UnsupportedError: a file is where it cannot be read from.
            DestinationError: a file cannot be read, or two readers do not agree on it.
        """
        ...

    def keep(self, location: str, kept: KeptDigest) -> None:
        """Store a digest.

        Raises:
            DestinationError: it cannot be stored.
        """
        ...

    def kept(self, location: str) -> KeptDigest | None:
        """Return the digest that was stored there, None when there is none.

        Raises:
            DestinationError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of what reads files."""
        ...


def digest_location(table_location: str, key: str, transaction_id: str) -> str:
    """Return where the digest of an export is kept: beside its receipts."""
    return f"{table_location.rstrip('/')}/{RECEIPTS}/{key}/{transaction_id}/{_NAME}"


def columns_of(digest: Digest) -> tuple[DigestColumn, ...]:
    """Return the columns of a kept digest, to digest files as it was made.

    Raises:
        UsageError: a type cannot be read.
    """
    return tuple(DigestColumn(c.name, "", parse_type(c.type), c.type) for c in digest.columns)


def differences(
    files: LakeDigests, locations: Sequence[str], schema: Schema, expected: Digest,
    columns: Sequence[DigestColumn],
) -> tuple[Difference, ...]:  # fmt: skip
    """Return in what the data files differ from what was expected, nothing when they are equal.

    Args:
        files: reads them.
        locations: of all data files of the partition in main.
        schema: of the lake table; a column that it does not have is a difference.
        expected: of the source.
        columns: those of `expected`.

    Raises:
        TableFormatError: a file cannot be read.
    """
    names = {f.name for f in schema.fields}
    there = [c for c in columns if c.name in names]
    gone = frozenset(c.name for c in columns) - {c.name for c in there}
    missing = tuple(Difference(name, "it", "is", "is not") for name in sorted(gone))
    if not there:
        return missing
    found = files.digest(locations, schema, there)
    # Without one of its columns a row has another hash, which says nothing.
    reference = expected.without(gone, checksum=found.checksum) if gone else expected
    return (*missing, *reference.differences(found))


@dataclass(frozen=True, slots=True)
class Verification:
    """What `export --verify` does about each partition; without `digests`, nothing.

    `location` is the lake table's, `columns` are the digested ones.
    """

    ports: Ports
    digests: LakeDigests | None
    location: str
    columns: tuple[DigestColumn, ...]

    def keep(self, row: Row, frozen: FrozenPartition) -> None:
        """Keep the digest before the commit: a process that dies after it leaves the proof.

        Raises:
            DestinationError: it cannot be stored.
        """
        digests, digest = self.digests, frozen.digest
        if digests is None or digest is None:
            return
        location = digest_location(self.location, row.key.hash, row.claim.transaction_id)
        taken = (
            row.source_table,
            row.key.partition_id,
            row.claim.transaction_id,
            self.ports.clock(),
        )
        kept = KeptDigest(*taken, digest)
        self.ports.effects(Step.KEEP_DIGEST, lambda: digests.keep(location, kept))

    def verified(
        self, made: Outcome, row: Row, frozen: FrozenPartition, landed: Committed
    ) -> Outcome:
        """Return the outcome of a commit after main was compared with what was frozen.

        Whatever stands in the way, the export is in main: no error leaves.
        """
        digests, digest = self.digests, frozen.digest
        if digests is None or not landed.in_main:
            return made
        if digest is None or landed.epoch != row.claim.epoch:
            text = (
                "it is in main, and ClickHouse could not digest its source"
                if digest is None
                else "an earlier run's files are in main; compare them with `mergeberg verify`"
            )
            return replace(made, status=Status.UNVERIFIED, message=text)
        check = partial(self._check, digests, digest, row)
        status, text = self.ports.effects(Step.VERIFY, check)
        if status is Status.COMMITTED:
            return replace(made, verified=True)
        return replace(made, status=status, message=text)

    def _check(self, digests: LakeDigests, expected: Digest, row: Row) -> tuple[Status, str]:
        """Return what the comparison makes of a committed export, and how that is said."""
        lake = self.ports.table
        try:
            state = lake.load()
            # All of the key: files of another export of it would be its rows twice.
            files = [f.path for f in lake.files_of(state, row.key.hash)]
            schema = table_of(state).schema()
            found = differences(digests, files, schema, expected, self.columns)
        except TableFormatError as error:
            return Status.UNVERIFIED, f"it is in main, and could not be verified: {error}"
        if found:
            return Status.DIFFERS, f"it is in main, and is not what was frozen: {told(found)}"
        return Status.COMMITTED, ""


def told(found: Sequence[Difference]) -> str:
    """Return the first differences in one sentence."""
    some = "; ".join(str(d) for d in found[:_TOLD])
    return some + (f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else "")
