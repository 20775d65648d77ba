"""REPLACE PARTITION … FROM a ClickHouse table: exports come, all else leaves, in one snapshot.

From several shards, too: one export runs while the one before it waits to commit, and the innermost
commits for all. What one of them says keeps all of them back; finished files are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from spark_ext.operations.coming_from_clickhouse import Coming, Local
from spark_ext.operations.exports_from import OpensPorts
from tableformat.committer import Commit, CommitOutcome, NotSent
from tableformat.effects import Step
from tableformat.errors import RefusedError, SourceError, SourceGoneError, TableFormatError
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import WrittenClaim
from tableformat.export.outcome import Outcome, Status
from tableformat.export.settling import Ports
from tableformat.operations.landing_replaced import LandingReplaced
from tableformat.operations.replacing import Replacing, Staying
from tableformat.operations.which import OnePartition

__all__ = ["Replacement"]

_DONE: Final = (Status.COMMITTED, Status.REPLACED)


@dataclass(slots=True)
class Replacement:
    """REPLACE while it runs: one export in the other, and the innermost commits for all."""

    of: Coming
    which: OnePartition
    opens: OpensPorts
    told: list[Outcome] = field(default_factory=list)
    landed: dict[str, CommitOutcome] = field(default_factory=dict)

    def outcomes(self) -> Iterator[Outcome]:
        """Run it; yield what became of the partition of each table.

        Raises:
            TableFormatError: nothing was changed, or what failed cannot be told of one partition.
        """
        self._go_on(self.of.filled, (), ())
        for one in self.told:
            yield replace(one, status=Status.REPLACED) if one.status in _DONE else one

    def _go_on(
        self,
        left: tuple[Local, ...],
        gathered: tuple[tuple[Ports, Commit], ...],
        stays: tuple[Staying, ...],
    ) -> None:
        """Export what is left; when nothing is, commit what was gathered.

        Raises:
            TableFormatError: an export could not be begun; nothing has landed.
        """
        if not left:
            self._land(gathered, stays)
            return
        one, *others = left
        begun = False

        def land(ports: Ports, wanted: Commit) -> dict[str, CommitOutcome]:
            nonlocal begun
            begun = True
            now = (*gathered, (ports, wanted))
            try:
                self._go_on(tuple(others), now, stays)
            except TableFormatError as error:
                self._fail(now, error)
            return {key.key: self.landed[key.key] for key in wanted.keys}

        # Those behind it are told after it, whose export ends last.
        place = len(self.told)
        found = self.of.export(one, self.opens, land)
        self.told[place:place] = found
        if begun:
            return
        if all(each.status is Status.EMPTY for each in found):
            self._go_on(tuple(others), gathered, stays)
        elif all(each.status is Status.UNCHANGED for each in found):
            there = tuple(self._staying(one, each) for each in found)
            self._go_on(tuple(others), gathered, (*stays, *there))
        else:
            self._give_up(gathered, found)

    def _fail(self, gathered: tuple[tuple[Ports, Commit], ...], error: TableFormatError) -> None:
        """Answer for exports whose commit another one was to make, or the last of them."""
        keys = [key.key for _, wanted in gathered for key in wanted.keys]
        if all(key in self.landed for key in keys):
            # It was made: what failed comes after it.
            self.of.running.ports.note(error.message)
        # Another replica of this export's own table is as good as the one that it read.
        gone = isinstance(error, SourceGoneError)
        why = SourceError(error.message, code=error.code) if gone else error
        for key in keys:
            self.landed.setdefault(key, NotSent(why))

    def _give_up(
        self, gathered: tuple[tuple[Ports, Commit], ...], found: tuple[Outcome, ...]
    ) -> None:
        """Land nothing: one of the exports did not come so far."""
        why = next(each for each in found if each.status.exit_code)
        message = (
            f"Cannot run {self.of}: partition {why.partition_id} of another shard is "
            f"{why.status.value}: {why.message.rstrip('.')}. Run the statement again; finished "
            "files are kept."
        )
        for _, wanted in gathered:
            for key in wanted.keys:
                self.landed[key.key] = NotSent(RefusedError(message, code=why.code))

    def _staying(self, one: Local, found: Outcome) -> Staying:
        """Return an export that main has already.

        Raises:
            RefusedError: it is another one by now.
        """
        key = self.of.key(one)
        row = self.of.running.landing.row_of(key.hash)
        if row is None or row.done is None:
            raise self._changed()
        if row.done.landed.transaction_id != found.transaction_id:
            raise self._changed()
        return Staying(key, row.done.landed.fingerprint)

    def _changed(self) -> RefusedError:
        return RefusedError(
            f"Cannot run {self.of}: the partition was changed meanwhile. Run the statement again."
        )

    def _land(self, gathered: tuple[tuple[Ports, Commit], ...], stays: tuple[Staying, ...]) -> None:
        """Commit what was gathered, and let all else leave with it.

        Raises:
            RefusedError: nothing comes, and that was not allowed (code 36).
            TableFormatError: the table or the ledger failed before anything was sent.
        """
        which, running = self.which, self.of.running
        if gathered:
            landing = LandingReplaced(running, which, self.of.table, stays)
            self.landed |= landing.land(gathered[0][0], self._together(gathered))
            return
        if not stays and not self.of.allow_empty:
            raise self.of.nothing_comes()
        ended = running.run(Replacing(which, self.of.table, stays=stays))
        if ended.status is Status.REPLACED and stays:
            there = [one for one in self.told if one.status is Status.UNCHANGED]
            text = f"its rows are there already; {ended.rows:,} others left main"
            rows, files = sum(one.rows for one in there), sum(one.data_files for one in there)
            self.told = [replace(ended, rows=rows, data_files=files, message=text)]
        elif ended.status not in (Status.UNCHANGED, Status.EMPTY) or not self.told:
            self.told = [ended]

    def _together(self, gathered: tuple[tuple[Ports, Commit], ...]) -> Commit:
        """Return one commit of the exports of several tables.

        Raises:
            DestinationError: their list cannot be stored.
        """
        ports, first = gathered[0]
        if len(gathered) == 1 or ports.storage is None:
            return first
        keys = tuple(key for _, wanted in gathered for key in wanted.keys)
        landing, state = self.of.running.landing, ports.table.load()
        rows = [landing.row_of(key.key) for key in keys]
        written = tuple(
            WrittenClaim(row, key.receipts, may_shrink=True, beside=False)
            for row, key in zip(rows, keys, strict=True)
            if row is not None
        )
        name = self.of.running.ports.new_transaction(ports.ledger.next_epoch()).value
        storage = ports.storage(state.location)
        keep = partial(store_list, storage, state.location, name, written)
        listed = ports.effects(Step.NOTE_GROUP, keep)
        summary = {
            "mergeberg.source-table": self.of.table,
            "mergeberg.group": listed.name,
            "mergeberg.exports": str(len(written)),
            "mergeberg.receipts": listed.location,
            "mergeberg.receipts-sha256": listed.sha256,
            "mergeberg.ledger": first.ledger,
        }
        return replace(first, keys=keys, summary=tuple(summary.items()))
