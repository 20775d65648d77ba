"""What of an earlier attempt can be taken over: finished files, by their receipts (DESIGN 5.5).

A file is taken over only when it holds exactly the rows of a slice of today's plan, written as
today's plan would write it, and is still there with the size that its receipt names. Anything else
is written again under a name of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace

from tableformat.errors import LedgerError, MissingError
from tableformat.export.slices import Slice, WritePlan
from tableformat.receipt import PartRange, Receipt
from tableformat.storage import Storage

__all__ = ["finished_files", "just_written", "recipe_of", "stored_receipts"]

_SETTLED_LATER = ("layout", "job", "versions", "storage", "tree", "share")


def recipe_of(plan: WritePlan, slices: Iterable[Slice]) -> str:
    """Return a digest of all that decides what the files of a partition hold.

    Not in it: where the frozen parts lie and who reads them, which change from run to run, and how
    the files are named.
    """
    how = {k: v for k, v in asdict(plan).items() if k not in _SETTLED_LATER}
    what = [([_rows_of(r) for r in s.ranges], s.rows, s.directory, s.partition) for s in slices]
    return hashlib.sha256(json.dumps([how, what], sort_keys=True).encode()).hexdigest()


def _rows_of(one: PartRange) -> tuple[str, str, int, int | None, int | None]:
    """Return which rows of the source a range is, wherever it was frozen."""
    return one.source_name, one.hash_of_all_files, one.rows, one.start, one.stop


def stored_receipts(
    storage: Storage, below: str, known: dict[str, Receipt] | None = None
) -> tuple[Receipt, ...]:
    """Return the receipts below a location that can be read; a damaged one names no file.

    Args:
        storage: that has them.
        below: the location.
        known: those that were read before, by location; gets what is read now. A receipt is
            written once, and never changes.

    Raises:
        DestinationError: they cannot be listed or read.
    """
    read = {} if known is None else known
    found = []
    for stored in storage.list(below):
        at = stored.location
        if at.rsplit("/", 1)[-1].split("-", 1)[0].isdecimal():
            try:
                receipt = read.get(at) or Receipt.from_json(storage.read(at).decode())
            except (LedgerError, UnicodeDecodeError):
                continue
            read[at] = receipt
            found.append(receipt)
    return tuple(found)


def finished_files(
    slices: tuple[Slice, ...], receipts: Iterable[Receipt], storage: Storage
) -> dict[int, Receipt]:
    """Return the receipts of slices that need not be written again, by today's slice number.

    Args:
        slices: the plan of one partition.
        receipts: those of its transaction.
        storage: that has its files.
    """
    by_rows: dict[object, list[Receipt]] = {}
    for receipt in receipts:
        by_rows.setdefault(tuple(_rows_of(r) for r in receipt.ranges), []).append(receipt)
    found: dict[int, Receipt] = {}
    for one in slices:
        held = by_rows.get(tuple(_rows_of(r) for r in one.ranges), ())
        usable = next((r for r in held if _is_there(r, one, storage)), None)
        if usable is not None:
            found[one.number] = replace(usable, slice_number=one.number)
    return found


def just_written(slices: Iterable[Slice], receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """Return a receipt of this very run for each slice that has one.

    Args:
        slices: of one partition, that this run writes.
        receipts: those of its transaction, of earlier runs too.
    """
    of_slice = {(r.epoch, r.slice_number, r.ranges): r for r in receipts}
    found = (of_slice.get((s.epoch, s.number, s.ranges)) for s in slices)
    return tuple(r for r in found if r is not None)


def _is_there(receipt: Receipt, one: Slice, storage: Storage) -> bool:
    """Whether the file of a receipt is what the receipt says, to the last byte."""
    if receipt.partition != one.partition or one.rows not in (None, receipt.rows):
        return False
    try:
        return (
            storage.size(receipt.file_path) == receipt.file_bytes
            and storage.sha256(receipt.file_path) == receipt.sha256
        )
    except MissingError:
        return False
