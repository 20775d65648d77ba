"""Commits without files and marks: a table's first snapshot, the fence, the change of its ledger.

Each makes every request dead that was staged on M or an older metadata (protocol.md, fence).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tableformat.committer import Commit, LakeTableState, Sent, Staged
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.loading import check_table_of_ledger, load_table
from tableformat.export.settling import Ports

__all__ = ["fence", "first_snapshot", "send_empty"]


def send_empty(
    ports: Ports,
    state: LakeTableState,
    why: str,
    *,
    step: Step = Step.SEND,
    remove_marks: tuple[str, ...] = (),
) -> tuple[Staged, Sent]:
    """Stage an empty append on M and send it once; like every commit it sets the ledger's identity.

    Args:
        ports: what to act on.
        state: M.
        why: a word for the snapshot's summary, `mergeberg.<why>`.
        step: the name under which it is sent.
        remove_marks: keys whose mark goes with it.
    """
    empty = Commit(
        (),
        state.layout,
        ports.ledger.identity,
        ((f"mergeberg.{why}", "1"),),
        ports.ledger.next_epoch(),
    )
    staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, empty))
    return staged, ports.effects(
        step, partial(ports.table.send, state, staged, empty, remove_marks)
    )


def first_snapshot(ports: Ports, layout_of: Callable[[LakeTableState], None]) -> LakeTableState:
    """Give a table that has none its first, empty snapshot, without a mark (protocol.md step 0).

    An export staged without a parent would not be protected by the fence.

    Args:
        ports: what to act on.
        layout_of: checks a loaded state before anything is written to it; raises when it is not
            ours to use.

    Raises:
        RefusedError: the table belongs to another ledger, or does not get a snapshot.
    """
    for attempt in range(1, ports.most_attempts + 1):
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        check_table_of_ledger(state, ports.ledger)
        layout_of(state)
        if state.main is not None:
            return state
        send_empty(ports, state, "first", step=Step.FIRST_SNAPSHOT)
        if attempt > 1:
            ports.pause(attempt)
    message = (
        "Cannot give the table its first snapshot: the catalog confirmed none of the attempts. "
        "Run the command again."
    )
    raise RefusedError(message)


def fence(ports: Ports) -> LakeTableState:
    """Make every request dead that was staged until now; return M afterwards.

    Of whoever was superseded before this began nothing can land any more.

    Raises:
        RefusedError: the catalog confirmed none of the attempts.
    """
    state = load_table(ports)
    first = state.last_sequence_number
    for attempt in range(1, ports.most_attempts + 1):
        send_empty(ports, state, "fence")
        state = load_table(ports)
        if state.last_sequence_number > first:
            return state
        ports.pause(attempt)
    message = (
        "Cannot make sure that nothing sent before lands later: the catalog confirmed none of "
        f"{ports.most_attempts} empty commits. Run the command again."
    )
    raise RefusedError(message)
