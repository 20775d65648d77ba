"""While a partition leaves the source: what it was exported as must stay in the lake for ever.

An archived partition may get rows again, late ones or a test's. Once the manifest TTL of its export
is over, the next export would take them for its new content, and put them in the place of all that
was archived. So from the moment before the source is touched exporting it again is refused for
ever, as with a TTL of 0; `--force` and `exports forget` say otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tableformat.errors import RefusedError
from tableformat.export.leases import one_lease
from tableformat.ledger import LeaseHeld, Ledger, Owner, Record, Row, Stale

__all__ = ["kept_for_ever"]

# A process that lives renews nothing meanwhile; others ask whether it does.
_LEASE_SECONDS: Final = 600.0


@contextlib.contextmanager
def kept_for_ever(
    ledger: Ledger,
    row: Row,
    done: Record,
    *,
    owner: Owner,
    is_alive: Callable[[Owner], bool],
    now: int,
) -> Iterator[None]:
    """Let a completed export refuse others for ever, and hold its key's lease in the `with`.

    When the `with` ends with a refusal, so that the source is as it was, that is taken back. After
    any other error nobody knows what became of the source, and it stays.

    Args:
        ledger: where the row is.
        row: of the partition.
        done: the row's completed export, which is archived.
        owner: this process.
        is_alive: whether the owner of a lease may still work.
        now: milliseconds since 1970.

    Raises:
        RefusedError: an export of it runs, or the row moved meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    key = row.key.hash
    lease = one_lease(ledger, key, owner, is_alive=is_alive, seconds=_LEASE_SECONDS)
    if isinstance(lease, LeaseHeld):
        raise _refused(row, f"{lease.owner} works on it. Run the command again when it has ended")
    try:
        kept = _written(ledger, replace(row, done=replace(done, ttl=0, forgotten=False)), now)
        try:
            yield
        except RefusedError:
            _written(ledger, replace(kept, done=done), now)
            raise
    finally:
        ledger.release(lease)


def _written(ledger: Ledger, row: Row, now: int) -> Row:
    written = ledger.write(replace(row, updated=now))
    if isinstance(written, Stale):
        raise _refused(row, "its ledger row was changed at the same moment. Run the command again")
    return written


def _refused(row: Row, why: str) -> RefusedError:
    return RefusedError(
        f"Cannot archive partition {row.key.partition_id} of {row.source_table}: {why}."
    )
