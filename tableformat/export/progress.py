"""How far an export is that runs elsewhere, by the receipts of its finished files.

A source part is processed when all of its rows are in finished files, whole or in slices
(coverage.md reading 17; RQ…SystemTables.Exports).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from tableformat.file_names import RECEIPTS
from tableformat.ledger import ExportedPart, Row
from tableformat.receipt import PartRange, Receipt

__all__ = ["files_of_parts", "processed_parts", "receipts_below", "with_files", "without_files"]


def receipts_below(location: str, row: Row) -> str:
    """Return where the receipts of a row's claim are, in the table at a location."""
    return f"{location.rstrip('/')}/{RECEIPTS}/{row.key.hash}/{row.claim.transaction_id}"


def processed_parts(parts: Iterable[ExportedPart], finished: Iterable[PartRange]) -> frozenset[str]:
    """Return the names of the parts that are wholly in finished files.

    Args:
        parts: of the claim.
        finished: the rows that finished files hold, in any order; files of two attempts may hold
            the same ones.
    """
    held = defaultdict[str, list[tuple[int, int]]](list)
    for one in finished:
        stop = one.rows if one.stop is None else one.stop
        held[one.source_name].append((one.start or 0, stop))
    return frozenset(
        part.name for part in parts if part.name in held and _reach(held[part.name]) >= part.rows
    )


def with_files(
    parts: tuple[ExportedPart, ...], receipts: Iterable[Receipt]
) -> tuple[ExportedPart, ...]:
    """Return parts with the files that hold their rows, in the order of the slices.

    A part that is not yet wholly in finished files has none: its path says that it is exported.

    Args:
        parts: of a claim.
        receipts: of its finished files, in any order; of a slice that two attempts wrote, one.
    """
    of_slice: dict[int, Receipt] = {}
    for receipt in sorted(receipts, key=lambda r: (r.slice_number, r.attempt)):
        of_slice.setdefault(receipt.slice_number, receipt)
    paths = files_of_parts(of_slice.values())
    done = processed_parts(parts, (part for r in of_slice.values() for part in r.ranges))
    return tuple(
        replace(part, remote_paths=paths[part.name] if part.name in done else ()) for part in parts
    )


def files_of_parts(receipts: Iterable[Receipt]) -> dict[str, tuple[str, ...]]:
    """Return the files that hold rows of each part, by its name, in the order of the receipts."""
    found = defaultdict[str, list[str]](list)
    for receipt in receipts:
        for part in receipt.ranges:
            found[part.source_name].append(receipt.file_path)
    return {name: tuple(paths) for name, paths in found.items()}


def without_files(parts: Iterable[ExportedPart]) -> tuple[ExportedPart, ...]:
    """Return parts of which no file is of use any more."""
    return tuple(replace(part, remote_paths=()) for part in parts)


def _reach(ranges: list[tuple[int, int]]) -> int:
    """Return up to which row ranges cover a part from its first one, without a gap."""
    reached = 0
    for start, stop in sorted(ranges):
        if start > reached:
            break
        reached = max(reached, stop)
    return reached
