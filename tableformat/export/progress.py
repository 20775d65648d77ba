"""How far an export is that runs elsewhere, by the receipts of its finished files.

A source part is processed when all of its rows are in finished files, whole or in slices
(coverage.md reading 17; RQ…SystemTables.Exports).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tableformat.file_names import RECEIPTS
from tableformat.ledger import ExportedPart, Row
from tableformat.receipt import PartRange

__all__ = ["processed_parts", "receipts_below"]


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


def _reach(ranges: list[tuple[int, int]]) -> int:
    """Return up to which row ranges cover a part from its first one, without a gap."""
    reached = 0
    for start, stop in sorted(ranges):
        if start > reached:
            break
        reached = max(reached, stop)
    return reached
