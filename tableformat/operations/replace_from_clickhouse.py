"""Commits REPLACE PARTITION … FROM a ClickHouse table: exports and removals, in one snapshot.

The export job calls `LandingReplaced.land` where it would commit; by then it has claimed its keys
and written their files. The other keys of the partition are claimed here, as for any statement, and
every turn plans again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tableformat.committer import Commit, CommitOutcome, Committed, NotSent, Unknown
from tableformat.errors import InternalError, RefusedError, TableFormatError
from tableformat.export.commit import Ports, commit, load_table
from tableformat.export.leases import Leases
from tableformat.ledger import Key, Row
from tableformat.operations.copy_from import Replacing, Staying
from tableformat.operations.run import Running, works_on_it
from tableformat.operations.statement import AsPlanned, OnePartition, Plan, is_for_another
from tableformat.operations.statement_commit import Stopping

__all__ = ["LandingReplaced"]

_MOST_PLANS: Final = 20


@dataclass(slots=True)
class LandingReplaced:
    """Commits exports together with the removal of all other files of the partition.

    `running` runs statements. `stays` are exports in main that stay. `snapshot_id` is the snapshot
    of the commit, None before it.
    """

    running: Running
    which: OnePartition
    table: str
    stays: tuple[Staying, ...] = ()
    snapshot_id: int | None = field(default=None, init=False)

    def land(self, ports: Ports, wanted: Commit) -> dict[str, CommitOutcome]:
        """Commit exports and removals; return the outcomes of the exports' keys, as `commit` does.

        Args:
            ports: the ports of the exports.
            wanted: the commit of the exports, which are claimed and written.
        """
        ended: dict[str, CommitOutcome] = {}
        try:
            with self._leases() as leases:
                ended = self._landed(ports, wanted, leases)
        except TableFormatError as error:
            if not ended:
                return {one.key: NotSent(error) for one in wanted.keys}
            # The outcome is known. Leases that could not be released expire.
            self.running.ports.note(error.message)
        own = _with_others({one.key: ended[one.key] for one in wanted.keys}, ended)
        if all(isinstance(one, Committed) for one in own.values()):
            return self._swept(wanted, own, ended)
        return own

    def _leases(self) -> Leases:
        ports = self.running.ports
        return Leases(
            ports.commit.ledger,
            ports.owner,
            effects=ports.commit.effects,
            is_alive=ports.is_alive,
            note=ports.note,
        )

    def _landed(self, ports: Ports, wanted: Commit, leases: Leases) -> dict[str, CommitOutcome]:
        """Plan and commit until a turn has an outcome.

        Raises:
            RefusedError: another run works on the partition, or changed it in every turn.
            TableFormatError: the table or the ledger failed before anything was sent.
        """
        stopping = Stopping(self.running.ports, Replacing(self.which, self.table))
        for _ in range(_MOST_PLANS):
            ended = self._turn(ports, wanted, stopping, leases)
            if ended is not None:
                stopping.clean()
                return ended
        message = (
            f"Cannot run REPLACE {self.which} FROM {self.table}: other processes changed the "
            f"partition {_MOST_PLANS} times while the statement was planned. Run it again."
        )
        raise RefusedError(message)

    def _turn(
        self, ports: Ports, wanted: Commit, stopping: Stopping, leases: Leases
    ) -> dict[str, CommitOutcome] | None:
        """Plan on M, claim the keys that leave and commit; None if a new plan is needed."""
        landing, state = self.running.landing, load_table(self.running.ports.commit)
        landing.refuse_moving(self.which, state)
        brings = tuple(self._key(one.key) for one in wanted.keys)
        statement = Replacing(self.which, self.table, brings, self.stays)
        plan = self.running.planned(statement, state)
        leaves = Plan(tuple(one for one in plan.changes if one.key not in brings))
        held = leases.take_all(tuple(one.key.hash for one in leaves.changes))
        if held and stopping.stop(held, leases):
            return None
        if held:
            message = f"Cannot run {statement}: {works_on_it(held)}. Run it again."
            raise RefusedError(message)
        rows: tuple[Row, ...] | None = ()
        if leaves.changes:
            rows = landing.claim(statement, leaves, state)
        if rows is None:
            return None
        others = landing.commit_of(statement, leaves, rows, ((),) * len(rows), state)
        entry = ("mergeberg.statement", str(statement))
        together = replace(
            wanted, keys=(*wanted.keys, *others.keys), summary=(*wanted.summary, entry)
        )
        ended = commit(ports, together, AsPlanned(statement, self.running.partitions, plan))
        has_landed = all(isinstance(ended[one.key], Committed) for one in wanted.keys)
        if not has_landed and any(is_for_another(one) for one in ended.values()):
            return None
        if any(not isinstance(ended[row.key.hash], Committed) for row in rows):
            landing.note_error(rows, f"{statement} did not land with them")
        return ended

    def _key(self, key: str) -> Key:
        row = self.running.landing.row_of(key)
        if row is None:
            message = f"The ledger lost the row of key {key}. This is a bug, please report it."
            raise InternalError(message)
        return row.key

    def _swept(
        self,
        wanted: Commit,
        own: dict[str, CommitOutcome],
        ended: dict[str, CommitOutcome],
    ) -> dict[str, CommitOutcome]:
        """Remove files that did not leave with the commit because the exports had landed before.

        That happens when a request of an earlier run lands during this one.
        """
        landed = [one for one in own.values() if isinstance(one, Committed)]
        self.snapshot_id = landed[0].snapshot_id
        if all(isinstance(one, Committed) for one in ended.values()):
            return own
        stays = tuple(Staying(self._key(one.key), one.fingerprint) for one in wanted.keys)
        try:
            left = self.running.run(Replacing(self.which, self.table, stays=(*self.stays, *stays)))
            why = left.message if left.status.exit_code else ""
        except TableFormatError as error:
            why = error.message
        if not why:
            return own
        text = f"it landed in snapshot {self.snapshot_id}, but the other files stay: {why}"
        return dict.fromkeys(own, Unknown(text))


def _with_others(
    own: dict[str, CommitOutcome], ended: dict[str, CommitOutcome]
) -> dict[str, CommitOutcome]:
    """Return the outcomes of the exports' keys; the first also counts what left of other keys."""
    landed = {key: one for key, one in own.items() if isinstance(one, Committed)}
    others = [
        one.leaves for key, one in ended.items() if key not in own and isinstance(one, Committed)
    ]
    if not (landed and others):
        return own
    key, first = next(iter(landed.items()))
    every = (first.leaves, *others)
    leaves = replace(
        first.leaves,
        paths=tuple(path for one in every for path in one.paths),
        rows=sum(one.rows for one in every),
        bytes=sum(one.bytes for one in every),
        copied_back=all(one.copied_back for one in every),
    )
    return {**own, key: replace(first, leaves=leaves)}
