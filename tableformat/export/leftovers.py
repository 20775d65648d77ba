"""Which source snapshots are still of use: those of exports that were begun and can be resumed."""

from __future__ import annotations

from collections.abc import Callable

from tableformat.ledger import Ledger, Row, State

__all__ = ["staging_in_use"]


def staging_in_use(
    ledger: Ledger, is_useless: Callable[[Row], bool] = lambda _: False
) -> frozenset[str]:
    """Return the names that `Source.sweep_leftovers` keeps: of claims that did not end.

    Args:
        ledger: of the exports.
        is_useless: whether nothing would be saved by going on with a claim.
    """
    return frozenset(
        name
        for row in ledger.rows()
        if row.state is State.RUNNING and row.claim.staging and not is_useless(row)
        for name in row.claim.staging
    )
