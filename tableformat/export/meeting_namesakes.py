"""Tables of one name that are exported for the first time at once: only one of them goes on.

They have keys, and leases, of their own, so that nothing else lets them meet. Each looks for the
others before anything is frozen, and once more when it has claimed: of two claims at least the one
that was written last is followed by a look that shows both, and whoever sees the other going on
gives up. Where both see both, the older transaction waits for the other to give up, for a bounded
time; without that wait neither might go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.export.claim import Wish
from tableformat.export.commit import Ports
from tableformat.export.content import Content
from tableformat.export.destination import Destination
from tableformat.export.giving_up import kill
from tableformat.export.in_main import Holding
from tableformat.export.leaving import held_in_main
from tableformat.export.namesakes import Namesakes, is_kept_back, namesakes
from tableformat.export.work import Claimed
from tableformat.ledger import Claim, Row, State
from tableformat.names import TableName
from tableformat.source import Source

__all__ = ["MeetingNamesakes"]

_MOST_LOOKS: Final = 8
_FIRST_VERSION: Final = 1


class MeetingNamesakes:
    """Looks for other tables of the source table's name that are exported to one destination."""

    def __init__(self, ports: Ports, source: Source, destination: Destination, wish: Wish) -> None:
        """Have looked at nothing yet."""
        self._ports = ports
        self._source = source
        self._to = destination
        self._wish = wish
        self._there: dict[TableName, bool] = {}
        self._known: Namesakes | None = None

    def before(
        self, row: Row | None, partition_id: str, content: Content, state: LakeTableState
    ) -> str:
        """Say why a partition is not to be frozen, '' when no other table's rows keep it back.

        The ledger is read for the first partition only: `met` reads it anew.

        Args:
            row: the ledger's row of the partition, None when it was never exported.
            partition_id: its id.
            content: what it holds.
            state: main.

        Raises:
            TableFormatError: the ledger or main cannot be read.
        """
        if self._known is None:
            self._known = self._look()
        return self._refusal(
            self._known, row, partition_id, state, content=content, is_gone=self._is_gone
        )

    def met(self, claimed: Iterable[Claimed]) -> Mapping[str, str]:
        """Give up claims beside which another table's goes on; say why, by partition id.

        Raises:
            TableFormatError: the ledger or main cannot be read or written; then none is to go on.
        """
        given_up: dict[str, str] = {}
        waiting = [one.row for one in claimed if is_kept_back(one.row, self._wish)]
        for attempt in range(1, _MOST_LOOKS + 1):
            found = self._look() if waiting else None
            if found is None or not any(found.has_any(row.key.partition_id) for row in waiting):
                break
            # After the ledger: what has landed by its word is in this M.
            state = self._ports.effects(Step.LOAD_METADATA, self._to.lake.load)
            still = []
            for row in waiting:
                partition_id = row.key.partition_id
                content = Content(row.claim.fingerprint, row.claim.parts, merge_explains=False)
                refusal = partial(self._refusal, found, row, partition_id, state, content=content)
                if not (why := refusal()):
                    continue
                is_later = refusal(after=row.claim)
                if is_later or attempt == _MOST_LOOKS:
                    given_up[partition_id] = why
                    self._give_up(row, why)
                else:
                    still.append(row)
            waiting = still
            if waiting:
                self._ports.pause(attempt)
        return given_up

    def _look(self) -> Namesakes:
        return self._ports.effects(
            Step.READ_LEDGER,
            lambda: namesakes(self._to.table, self._to.layout.table_uuid, self._ports.ledger.rows),
        )

    def _refusal(
        self,
        found: Namesakes,
        row: Row | None,
        partition_id: str,
        state: LakeTableState,
        *,
        content: Content,
        is_gone: Callable[[TableName], bool] = lambda _: False,
        after: Claim | None = None,
    ) -> str:
        def held(other: Row) -> Holding:
            return held_in_main(self._ports, other, state, other.key.hash)

        return found.refusal(
            row, partition_id, self._wish, held, content=content, is_gone=is_gone, after=after
        )

    def _is_gone(self, name: TableName) -> bool:
        """Whether the source has no table of a name any more; it is asked once."""
        if name not in self._there:
            engine = self._ports.effects(Step.DESCRIBE_SOURCE, lambda: self._source.engine_of(name))
            self._there[name] = engine is not None
        return not self._there[name]

    def _give_up(self, row: Row, why: str) -> None:
        """End a claim for which nothing was sent; only an earlier one of its key needs a proof."""
        if row.version > _FIRST_VERSION:
            kill(self._ports, row.key.hash, state=State.FAILED, why=why)
            return
        after = replace(
            row,
            state=State.FAILED,
            claim=replace(row.claim, recipe="", staging=()),
            updated=self._ports.clock(),
            last_error=why,
        )
        # Who has moved the row meanwhile has given it up, too, or goes on with it.
        self._ports.effects(Step.GIVE_UP, partial(self._ports.ledger.write, after))
