"""Takes, renews and releases the leases of the keys that a job exports.

A lease saves work and proves nothing: if it is lost, the commit protocol still prevents double
exports. One thread renews all leases. Once a second it also checks whether another process has
claimed a key of the job, so that a cancelled export stops soon. This, too, only saves work, so the
thread retries nothing while the ledger cannot be reached. Leaving waits for one request at most;
after an interruption it waits only for seconds (`Ledger.leave`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from tableformat.effects import Effects, Step
from tableformat.errors import LedgerError
from tableformat.ledger import Lease, LeaseHeld, Ledger, Owner
from tableformat.quantities import counted

__all__ = ["LEASE_SECONDS", "LOOK_SECONDS", "RENEW_SECONDS", "Leases", "one_lease"]

LEASE_SECONDS: Final = 60.0
RENEW_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 1.0


def one_lease(
    ledger: Ledger,
    key: str,
    owner: Owner,
    *,
    is_alive: Callable[[Owner], bool],
    seconds: float = LEASE_SECONDS,
) -> Lease | LeaseHeld:
    """Take a lease of one key without renewing it, also from an owner that has ended.

    Args:
        ledger: the ledger of the lease.
        key: the hash of the ledger key.
        owner: this process.
        is_alive: whether the owner of a lease may be running.
        seconds: the duration of the lease.

    Returns:
        The lease, or the lease of the running owner that has it.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    lease = ledger.take_lease(key, owner, seconds)
    if isinstance(lease, LeaseHeld) and not is_alive(lease.owner):
        lease = ledger.take_lease(key, owner, seconds, instead_of=lease.owner)
    return lease


class Leases:
    """The leases of one job; a context manager that releases all of them at its end."""

    def __init__(
        self,
        ledger: Ledger,
        owner: Owner,
        *,
        effects: Effects,
        is_alive: Callable[[Owner], bool],
        note: Callable[[str], None] | None = None,
    ) -> None:
        """Start without a lease.

        Args:
            ledger: the ledger of the leases.
            owner: this process.
            effects: the port through which leases are taken and released.
            is_alive: whether an owner may be running; the leases of other owners are taken over.
            note: called after an interruption if leases could not be released; without it that is
                an error.
        """
        self._ledger = ledger
        self._note = note
        self._is_leaving = False
        self._owner = owner
        self._effects = effects
        self._is_alive = is_alive
        self._held: dict[str, Lease] = {}
        self._watched: dict[str, int] = {}
        self._taken_over: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, name="leases", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread that renews the leases."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release every lease.

        Raises:
            LedgerError: the ledger cannot be reached, and the job was not interrupted, or there is
                no `note`.
        """
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            self.leave()
        self._ended.set()
        self._thread.join()
        self.release(*self._held)

    def leave(self) -> None:
        """Shorten all waits for the ledger to seconds, after the job was interrupted."""
        self._is_leaving = True
        self._ledger.leave()

    def take_over(self, key: str) -> None:
        """Take the lease of a key from any owner, before its export is given up."""
        held = self.take(key)
        while held is not None:
            held = self.take_from(key, held.owner)

    def take(self, key: str) -> LeaseHeld | None:
        """Take the lease of a key; return the lease of a running owner that has it."""
        return self.take_all((key,)).get(key)

    def take_all(self, keys: tuple[str, ...]) -> dict[str, LeaseHeld]:
        """Take the leases of keys; return, by key, the leases that running owners have."""
        taken = self._effects(
            Step.TAKE_LEASE,
            lambda: self._ledger.take_leases(keys, self._owner, LEASE_SECONDS),
        )
        left: dict[str, LeaseHeld] = {}
        for key, lease in zip(keys, taken, strict=True):
            held = self._keep(key, lease)
            if held is not None and not self._is_alive(held.owner):
                held = self.take_from(key, held.owner)
            if held is not None:
                left[key] = held
        return left

    def take_from(self, key: str, owner: Owner) -> LeaseHeld | None:
        """Take the lease of a key, also from this owner; return the lease of another owner."""
        taken = self._effects(
            Step.TAKE_LEASE,
            lambda: self._ledger.take_lease(key, self._owner, LEASE_SECONDS, instead_of=owner),
        )
        return self._keep(key, taken)

    def _keep(self, key: str, taken: Lease | LeaseHeld) -> LeaseHeld | None:
        if isinstance(taken, LeaseHeld):
            return taken
        with self._lock:
            self._held[key] = taken
        return None

    def release(self, *keys: str) -> None:
        """Release leases; keys without a lease of ours are skipped.

        Raises:
            LedgerError: the ledger cannot be reached; the leases expire by themselves.
        """
        with self._lock:
            leases = tuple(self._held.pop(key) for key in keys if key in self._held)
            for key in keys:
                self._watched.pop(key, None)
        if not leases:
            return
        try:
            self._effects(Step.RELEASE_LEASE, lambda: self._ledger.release(*leases))
        except LedgerError as unanswered:
            if not self._is_leaving or self._note is None:
                raise
            self._note(
                f"could not release {counted(len(leases), 'lease')}, which expire within "
                f"{LEASE_SECONDS:g} s: {unanswered}"
            )

    def watch(self, key: str, epoch: int) -> None:
        """Start to check whether another process claims a key after the claim of this epoch."""
        with self._lock:
            self._watched[key] = epoch
            self._taken_over.discard(key)

    def taken_over(self, key: str) -> bool:
        """Whether the last checks found a later claim of a watched key."""
        with self._lock:
            return key in self._taken_over

    def _renew_until_ended(self) -> None:
        renewed = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS):
            with self._lock:
                held, watched = tuple(self._held.values()), dict(self._watched)
            if watched:
                self._look(watched)
            if time.monotonic() - renewed >= RENEW_SECONDS:
                renewed = time.monotonic()
                self._renew(held)

    def _look(self, watched: Mapping[str, int]) -> None:
        try:
            rows = self._ledger.read_all(tuple(watched))
        except LedgerError:
            # The next check, or the commit protocol, detects a later claim.
            return
        with self._lock:
            for (key, epoch), row in zip(watched.items(), rows, strict=True):
                if row is not None and row.claim.epoch > epoch and key in self._watched:
                    self._taken_over.add(key)

    def _renew(self, held: Iterable[Lease]) -> None:
        for lease in held:
            if self._ended.is_set():
                return
            try:
                renewed = self._ledger.renew(lease, LEASE_SECONDS)
            except LedgerError:
                # The ledger cannot be reached for any key; the next turn renews them.
                return
            with self._lock:
                if isinstance(renewed, Lease) and lease.key in self._held:
                    self._held[lease.key] = renewed
