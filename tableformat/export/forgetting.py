"""`exports forget`: a completed export no longer refuses another one. Nothing else is forgotten.

Epoch, fingerprint and landed snapshots stay, and with them what prevents rows from being exported
twice (DESIGN 5.5; coverage.md reading 30, N-23, P-10, P-11).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tableformat.errors import RefusedError
from tableformat.export.archived import unarchive_command
from tableformat.export.leases import one_lease
from tableformat.ledger import LeaseHeld, Ledger, Owner, Row, Stale

__all__ = ["forget", "moved_meanwhile", "refuse_archived", "works_on_it"]


def forget(
    ledger: Ledger, row: Row, *, owner: Owner, is_alive: Callable[[Owner], bool], now: int
) -> str:
    """End the refusal of a row's completed export; say what was done, in a sentence.

    One that refuses nothing any more is left as it is.

    Args:
        ledger: where the row is.
        row: as it was read.
        owner: this process, which holds the key's lease meanwhile.
        is_alive: whether the owner of a lease may still work.
        now: milliseconds since 1970.

    Raises:
        RefusedError: an export of it runs, none has completed, it is archived, or the row moved
            meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    key = row.key.hash
    lease = one_lease(ledger, key, owner, is_alive=is_alive)
    if isinstance(lease, LeaseHeld):
        raise works_on_it(row, lease, now)
    try:
        return _forgotten(ledger, ledger.read(key) or row, now)
    finally:
        ledger.release(lease)


def _forgotten(ledger: Ledger, row: Row, now: int) -> str:
    done = row.done
    if done is None:
        raise _refused(row, "no export of it has completed, so none refuses another. Export it")
    refuse_archived(row)
    what = f"partition {row.key.partition_id} of {row.source_table} in {row.destination_table}"
    if not done.refuses(now):
        why = (
            "it was forgotten before" if done.forgotten else f"its TTL of {done.ttl} s has expired"
        )
        return f"{what}: nothing to do, {why}"
    written = ledger.write(replace(row, done=replace(done, forgotten=True), updated=now))
    if isinstance(written, Stale):
        raise moved_meanwhile(row)
    return (
        f"{what}: exporting it again is no longer refused. The ledger still knows what landed, "
        f"last in snapshot {done.landed.snapshot_id}: the same content stays as it is, other "
        "content replaces it"
    )


def works_on_it(row: Row, lease: LeaseHeld, now: int) -> RefusedError:
    """Return the refusal to forget what somebody works on at `now`."""
    seconds = max(0, now - lease.since) // 1000
    return _refused(row, f"{lease.owner} has worked on it for {seconds} s. Wait until it has ended")


def moved_meanwhile(row: Row) -> RefusedError:
    """Return the refusal to forget what others changed meanwhile."""
    return _refused(row, "its ledger row was changed at the same moment. Run the command again")


def refuse_archived(row: Row) -> None:
    """Refuse to forget a partition whose source is gone.

    Raises:
        RefusedError: it is archived.
    """
    if row.archived is not None:
        why = (
            "it is archived, and that is no refusal of a while. To let exports replace its rows "
            f"again, run `{unarchive_command(row)}`"
        )
        raise _refused(row, why)


def _refused(row: Row, why: str) -> RefusedError:
    return RefusedError(
        f"Cannot forget the export of partition {row.key.partition_id} of {row.source_table} in "
        f"{row.destination_table}: {why}."
    )
