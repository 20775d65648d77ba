"""Runs ALTER TABLE … FREEZE and UNFREEZE: an Iceberg tag keeps one partition, or all, of main.

* The tag of one partition refers to a separate snapshot, without the files of other partitions. A
  reader of the tag gets only that partition. UNFREEZE of one partition removes it from a tag of all
  partitions in the same way. No data file is changed.
* As in ClickHouse, FREEZE without a name uses the next number. A partition that does not exist is
  skipped. A partition that is frozen under a name is not frozen again under it (code 84). UNFREEZE
  that finds nothing is no error.
* Each frozen partition has a separate tag and table property (`Frozen`: partition and name). So two
  concurrent statements never overwrite each other's record: a commit cannot require the value of a
  property (Iceberg's specification, commit requirements).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tableformat.clickhouse_codes import DIRECTORY_ALREADY_EXISTS
from tableformat.committer import (
    DETACHED_BRANCH,
    MAIN_BRANCH,
    LakeTableState,
    PrunedTag,
    Staged,
    TagChange,
)
from tableformat.effects import Step
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.commit import load_table
from tableformat.export.outcome import Outcome, Status
from tableformat.names import quote_string
from tableformat.operations.partition_files import Partitions
from tableformat.operations.statement import (
    AllPartitions,
    OnePartition,
    OperationPorts,
    shown_partition,
)

__all__ = [
    "FROZEN",
    "LAST_NUMBER",
    "UNFROZEN",
    "Freeze",
    "Frozen",
    "Unfreeze",
    "frozen_in",
    "is_unfrozen",
]

FROZEN: Final = "mergeberg.frozen."
"""The prefix of the table property of a tag that FREEZE created; the tag's name follows."""
UNFROZEN: Final = "mergeberg.unfrozen."
"""The prefix of the table property of a partition that UNFREEZE removed from a tag of all."""
LAST_NUMBER: Final = "mergeberg.frozen-last"
"""The table property with the last number that FREEZE used as a name."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """The record of a tag that FREEZE created: its name and its partition, '' for all of them.

    `by` is unique to each statement.
    """

    tag: str
    name: str
    partition: str
    snapshot_id: int
    by: str

    @property
    def property(self) -> tuple[str, str]:
        """The property's name and value."""
        fields = {"name": self.name, "partition": self.partition, "by": self.by}
        return f"{FROZEN}{self.tag}", json.dumps({**fields, "snapshot": self.snapshot_id})

    def unfrozen(self, partition: str) -> str:
        """Return the name of the property that records the removal of a partition from this tag."""
        return f"{UNFROZEN}{json.dumps([self.tag, partition])}"


def frozen_in(state: LakeTableState) -> tuple[Frozen, ...]:
    """Return the records of all tags that FREEZE created in a table.

    Raises:
        DestinationError: a property is malformed.
    """
    return tuple(
        _read(name.removeprefix(FROZEN), text)
        for name, text in sorted(state.properties.items())
        if name.startswith(FROZEN)
    )


def is_unfrozen(state: LakeTableState, one: Frozen, partition: str) -> bool:
    """Whether UNFREEZE removed a partition from a tag of all partitions."""
    return one.unfrozen(partition) in state.properties


def _read(tag: str, text: str) -> Frozen:
    try:
        fields = json.loads(text)
        return Frozen(
            tag, fields["name"], fields["partition"], int(fields["snapshot"]), fields["by"]
        )
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"Cannot read the table's property {FROZEN}{tag}: {text!r} is not what FREEZE wrote. "
            "It was edited; put the value back from an earlier metadata file."
        )
        raise DestinationError(message) from error


@dataclass(frozen=True, slots=True)
class Freeze:
    """FREEZE of a partition or of all, under `name`, None for the next number.

    `by` identifies the statement in its record.
    """

    which: OnePartition | AllPartitions
    name: str | None = None
    by: str = field(default_factory=lambda: secrets.token_hex(8))

    def __str__(self) -> str:
        """Return the statement."""
        what = "" if isinstance(self.which, AllPartitions) else f" {self.which}"
        return f"FREEZE{what}" + (f" WITH NAME {quote_string(self.name)}" if self.name else "")

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Create the tag; return the outcome, whose message has the name.

        Raises:
            RefusedError: the partition is frozen under that name (code 84), or the name is that of
                another branch or tag.
            TableFormatError: the table or the ledger failed; the partition may be frozen.
        """
        error = ""
        for attempt in range(ports.commit.most_attempts):
            state = load_table(ports.commit)
            if made := next((one for one in frozen_in(state) if one.by == self.by), None):
                return self._report(partitions, made, dry_run=False)
            there = partitions.files(state, self.which.partition_id)
            files = tuple(f for one in there.keys for f in one.files)
            if not files and isinstance(self.which, OnePartition):
                of = self.which.partition_id
                partitions.refuse_named_elsewhere(str(self), state, of)
            if not files or state.main is None:
                return self._outcome(
                    partitions, Status.EMPTY, "nothing to do: it is not in the table"
                )
            frozen = self._planned(partitions, state, state.main)
            own = {f.path for f in files}
            others = tuple(p for p in partitions.lake.paths_in_main(state) if p not in own)
            if not dry_run and others:
                # A tag of main would keep the other partitions, too.
                staged = _pruned(ports, partitions, state, state.main, others)
                frozen = replace(frozen, snapshot_id=staged.snapshot_id)
                change = TagChange(pruned=(PrunedTag(frozen.tag, staged),))
            else:
                change = TagChange(added=(frozen.tag,))
            outcome = self._report(partitions, frozen, dry_run=dry_run)
            outcome = replace(outcome, rows=sum(f.rows for f in files), data_files=len(files))
            if dry_run:
                return outcome
            properties = [frozen.property]
            if self.name is None:
                properties.append((LAST_NUMBER, frozen.name))
            change = replace(change, properties=tuple(properties))
            sent = ports.commit.effects(Step.SEND, partial(partitions.lake.tag, state, change))
            if sent.applied:
                return outcome
            error = sent.error
            ports.commit.pause(attempt + 1)
        text = f"it may have been frozen: {error}. Run it again"
        return self._outcome(partitions, Status.UNKNOWN, text)

    def _planned(self, partitions: Partitions, state: LakeTableState, main: int) -> Frozen:
        held, refs = frozen_in(state), partitions.lake.references(state)
        partition = str(self.which.partition_id or "")
        if self.name is None:
            number = int(state.properties.get(LAST_NUMBER, "0")) + 1
            while str(number) in refs:
                number += 1
            return Frozen(str(number), str(number), partition, main, self.by)
        if self.name in (MAIN_BRANCH, DETACHED_BRANCH):
            raise self._taken(partitions)
        own = [one for one in held if one.name == self.name]
        for one in own:
            whole = not one.partition and not is_unfrozen(state, one, partition)
            if not partition or one.partition == partition or whole:
                raise self._frozen_already(partitions, one)
        if self.name not in refs:
            return Frozen(self.name, self.name, partition, main, self.by)
        tag = f"{self.name}.{partition}"
        if not own or not partition or tag in refs:
            raise self._taken(partitions)
        return Frozen(tag, self.name, partition, main, self.by)

    def _taken(self, partitions: Partitions) -> RefusedError:
        message = (
            f"Cannot run {self} on {partitions.name}: {self.name!r} is the name of a branch or tag "
            "that no FREEZE of this name made. Choose another name."
        )
        return RefusedError(message)

    def _frozen_already(self, partitions: Partitions, one: Frozen) -> RefusedError:
        what = f"partition {one.partition} is" if one.partition else "all partitions are"
        message = (
            f"Cannot run {self} on {partitions.name}: {what} frozen under this name, at snapshot "
            f"{one.snapshot_id} (already exists and is not empty). Choose another name, or "
            "UNFREEZE it first."
        )
        return RefusedError(message, code=DIRECTORY_ALREADY_EXISTS)

    def _report(self, partitions: Partitions, frozen: Frozen, *, dry_run: bool) -> Outcome:
        would = "would be frozen " if dry_run else ""
        text = f"{would}under the name {quote_string(frozen.name)}, tag {frozen.tag}"
        made = self._outcome(partitions, Status.FROZEN, text)
        return replace(made, snapshot_id=frozen.snapshot_id)

    def _outcome(self, partitions: Partitions, status: Status, text: str) -> Outcome:
        return Outcome(shown_partition(self.which), status, str(partitions.name), text)


@dataclass(frozen=True, slots=True)
class Unfreeze:
    """UNFREEZE of a partition or of all, under a name."""

    which: OnePartition | AllPartitions
    name: str

    def __str__(self) -> str:
        """Return the statement."""
        what = "" if isinstance(self.which, AllPartitions) else f" {self.which}"
        return f"UNFREEZE{what} WITH NAME {quote_string(self.name)}"

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Remove tags, or a partition from a tag of all; return the outcome.

        Raises:
            TableFormatError: the table or the ledger failed; the same statement, run again,
                finishes.
        """
        outcome = partial(Outcome, shown_partition(self.which), table=str(partitions.name))
        error = ""
        for attempt in range(ports.commit.most_attempts):
            state = load_table(ports.commit)
            refs = partitions.lake.references(state)
            gone = self._gone(state)
            pruning = None if gone else self._pruning(partitions, state, refs)
            if not gone and pruning is None:
                # After an unconfirmed request, an absent tag means success, whoever removed it.
                status = Status.UNFROZEN if attempt else Status.EMPTY
                text = "" if attempt else f"nothing of it is frozen under the name {self.name!r}"
                return outcome(status=status, message=text)
            if dry_run:
                return outcome(status=Status.UNFROZEN, message="would be unfrozen")
            if pruning is None:
                change = _without(state, gone, refs)
            else:
                change = self._taken_off(ports, partitions, state, pruning)
            sent = ports.commit.effects(Step.SEND, partial(partitions.lake.tag, state, change))
            if sent.applied:
                return outcome(status=Status.UNFROZEN)
            error = sent.error
            ports.commit.pause(attempt + 1)
        text = f"it may have been unfrozen: {error}. Run it again"
        return outcome(status=Status.UNKNOWN, message=text)

    def _gone(self, state: LakeTableState) -> list[Frozen]:
        """Return the tags to remove: those of the name, or of the name and the partition."""
        own = [one for one in frozen_in(state) if one.name == self.name]
        partition = str(self.which.partition_id or "")
        return [one for one in own if not partition or one.partition == partition]

    def _pruning(
        self, partitions: Partitions, state: LakeTableState, refs: Mapping[str, int]
    ) -> tuple[Frozen, tuple[str, ...]] | None:
        """Return the tag of all partitions, and the files of the partition to remove from it.

        None if there is no such tag, or if it has no file of the partition.
        """
        of = self.which.partition_id
        own = (one for one in frozen_in(state) if one.name == self.name and not one.partition)
        whole = next(own, None)
        if of is None or whole is None or is_unfrozen(state, whole, str(of)):
            return None
        if refs.get(whole.tag) != whole.snapshot_id:
            # Another writer dropped or moved it.
            return None
        there = partitions.files(replace(state, main=whole.snapshot_id), of)
        paths = tuple(f.path for key in there.keys for f in key.files)
        return (whole, paths) if paths else None

    def _taken_off(
        self,
        ports: OperationPorts,
        partitions: Partitions,
        state: LakeTableState,
        pruning: tuple[Frozen, tuple[str, ...]],
    ) -> TagChange:
        """Return the change that removes a partition from a tag of all.

        If no other partition has files, it removes the tag.
        """
        whole, leaves = pruning
        if len(leaves) == len(
            partitions.lake.paths_in_main(replace(state, main=whole.snapshot_id))
        ):
            return _without(state, [whole], {whole.tag: whole.snapshot_id})
        staged = _pruned(ports, partitions, state, whole.snapshot_id, leaves)
        left = replace(whole, snapshot_id=staged.snapshot_id)
        return TagChange(
            pruned=(PrunedTag(whole.tag, staged, whole.snapshot_id),),
            properties=(left.property, (whole.unfrozen(str(self.which.partition_id)), "true")),
        )


def _pruned(
    ports: OperationPorts,
    partitions: Partitions,
    state: LakeTableState,
    at: int,
    leaves: tuple[str, ...],
) -> Staged:
    """Write the manifests of a snapshot with the files of `at` except those in `leaves`."""
    ledger = ports.commit.ledger
    number = ports.commit.effects(Step.READ_LEDGER, ledger.next_epoch)
    return ports.commit.effects(
        Step.STAGE,
        partial(partitions.lake.prune, state, at, leaves, ledger.identity, number),
    )


def _without(state: LakeTableState, gone: Sequence[Frozen], refs: Mapping[str, int]) -> TagChange:
    """Return the change that removes tags and their properties."""
    properties = [one.property[0] for one in gone]
    properties += [
        name
        for name in state.properties
        if name.startswith(UNFROZEN) and any(name.startswith(_of(one)) for one in gone)
    ]
    return TagChange(
        # A tag that another writer dropped or moved is left alone.
        removed=tuple(
            (one.tag, one.snapshot_id) for one in gone if refs.get(one.tag) == one.snapshot_id
        ),
        removed_properties=tuple(properties),
    )


def _of(one: Frozen) -> str:
    """Return the prefix of the properties of partitions that were removed from a tag."""
    return one.unfrozen("").removesuffix('""]')
