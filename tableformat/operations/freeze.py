"""Runs ALTER TABLE … FREEZE and UNFREEZE: an Iceberg tag keeps partitions of main.

* A tag keeps one partition, all partitions, or those whose ids begin with a text (`Months`).
  ClickHouse allows the last for tables of the old syntax.
* The tag of some partitions refers to a separate snapshot, without the files of the others. A
  reader of the tag gets only those partitions. UNFREEZE of one partition removes it from a tag of
  several in the same way. No data file is changed.
* As in ClickHouse, FREEZE without a name uses the next number. A partition that does not exist is
  skipped. A partition that is frozen under a name is not frozen again under it (code 84); one that
  came later is, also under a name of all partitions. UNFREEZE that finds nothing is no error.
* Each FREEZE has a separate tag and table property (`Frozen`: partitions and name). So two
  concurrent statements never overwrite each other's record: a commit cannot require the value of a
  property (Iceberg's specification, commit requirements).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, assert_never

from tableformat.clickhouse_codes import DIRECTORY_ALREADY_EXISTS
from tableformat.committer import (
    DETACHED_BRANCH,
    MAIN_BRANCH,
    BranchFile,
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
    EVERY_PARTITION,
    AllPartitions,
    OnePartition,
    OperationPorts,
)

__all__ = [
    "FROZEN",
    "LAST_NUMBER",
    "UNFROZEN",
    "Freeze",
    "Frozen",
    "Months",
    "Unfreeze",
    "frozen_in",
    "is_unfrozen",
]

FROZEN: Final = "mergeberg.frozen."
"""The prefix of the table property of a tag that FREEZE created; the tag's name follows."""
UNFROZEN: Final = "mergeberg.unfrozen."
"""The prefix of the table property of partitions that UNFREEZE removed from a tag of several."""
LAST_NUMBER: Final = "mergeberg.frozen-last"
"""The table property with the last number that FREEZE used as a name."""


@dataclass(frozen=True, slots=True)
class Months:
    """The partitions whose ids begin with a text: those of 2024 for `FREEZE PARTITION '2024'`."""

    prefix: str

    def __str__(self) -> str:
        """Return it as a statement has it."""
        return f"PARTITION {quote_string(self.prefix)}"


Target: TypeAlias = OnePartition | Months | AllPartitions
"""The partitions of a statement."""

_WIDE: Final = "*"
"""The end of a stored target of several partitions; no partition id has it."""


def _stored(which: Target) -> str:
    """Return a target as properties store it: an id, `2024*` for months, '' for all partitions."""
    match which:
        case OnePartition(partition_id):
            return partition_id.value
        case Months(prefix):
            return f"{prefix}{_WIDE}"
        case AllPartitions():
            return ""
        case _:
            assert_never(which)


def _is_wide(stored: str) -> bool:
    """Whether a stored target may have several partitions."""
    return not stored or stored.endswith(_WIDE)


def _covering(stored: str) -> list[str]:
    """Return the stored targets that have every partition of one, except that of all partitions."""
    digits = stored.removesuffix(_WIDE)
    return [stored, *(f"{digits[:length]}{_WIDE}" for length in range(len(digits), 0, -1))]


def _covers(wide: str, narrow: str) -> bool:
    """Whether every partition of one stored target is a partition of another."""
    return not wide or wide in _covering(narrow)


@dataclass(frozen=True, slots=True)
class Frozen:
    """The record of a tag that FREEZE created: its name and its partitions, as `_stored` has them.

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
        """Return the name of the property that records the removal of partitions from this tag."""
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
    """Whether UNFREEZE removed a partition, or the partitions of a stored target, from a tag."""
    return any(one.unfrozen(stored) in state.properties for stored in _covering(partition))


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


def _last_number(state: LakeTableState) -> int:
    """Return the last number that FREEZE used as a name, 0 for none.

    Raises:
        DestinationError: the property is malformed.
    """
    text = state.properties.get(LAST_NUMBER, "0")
    if not (text.isascii() and text.isdigit()):
        message = (
            f"Cannot read the table's property {LAST_NUMBER}: {text!r} is no number. It was "
            "edited; set it to the last number that FREEZE used, or remove it, and FREEZE uses the "
            "first free number."
        )
        raise DestinationError(message)
    return int(text)


@dataclass(frozen=True, slots=True)
class Freeze:
    """FREEZE of a partition or of all, under `name`, None for the next number.

    `by` identifies the statement in its record.
    """

    which: Target
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
            files = _files(str(self), partitions, state, self.which)
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
        partition = _stored(self.which)
        if self.name is None:
            number = _last_number(state) + 1
            while str(number) in refs:
                number += 1
            return Frozen(str(number), str(number), partition, main, self.by)
        if self.name in (MAIN_BRANCH, DETACHED_BRANCH):
            raise self._taken(partitions)
        own = [one for one in held if one.name == self.name]
        for one in own:
            has = _covers(one.partition, partition) and not is_unfrozen(state, one, partition)
            has = has and self._is_in(one, partitions, state)
            if has or _covers(partition, one.partition):
                raise self._frozen_already(partitions, one)
        if self.name not in refs:
            return Frozen(self.name, self.name, partition, main, self.by)
        tag = f"{self.name}.{partition.removesuffix(_WIDE)}"
        if not own or not partition or tag in refs:
            raise self._taken(partitions)
        return Frozen(tag, self.name, partition, main, self.by)

    def _is_in(self, one: Frozen, partitions: Partitions, state: LakeTableState) -> bool:
        """Whether a tag of several partitions has files of the target, or may have had them.

        A partition that came to the table after that FREEZE is not in its tag.
        """
        if one.snapshot_id not in state.snapshots:
            # Another writer dropped the tag, and its snapshot has expired.
            return True
        frozen = replace(state, main=one.snapshot_id)
        return bool(_files(str(self), partitions, frozen, self.which))

    def _taken(self, partitions: Partitions) -> RefusedError:
        message = (
            f"Cannot run {self} on {partitions.name}: {self.name!r} is the name of a branch or tag "
            "that no FREEZE of this name made. Choose another name."
        )
        return RefusedError(message)

    def _frozen_already(self, partitions: Partitions, one: Frozen) -> RefusedError:
        what = f"partition {one.partition} is" if one.partition else "all partitions are"
        if one.partition and _is_wide(one.partition):
            what = f"the partitions that begin with {one.partition.removesuffix(_WIDE)} are"
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
        return Outcome(_shown(self.which), status, str(partitions.name), text)


@dataclass(frozen=True, slots=True)
class Unfreeze:
    """UNFREEZE of a partition or of all, under a name."""

    which: Target
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
        outcome = partial(Outcome, _shown(self.which), table=str(partitions.name))
        error = ""
        for attempt in range(ports.commit.most_attempts):
            state = load_table(ports.commit)
            refs = partitions.lake.references(state)
            gone = self._gone(state)
            pruning = self._pruning(partitions, state, refs)
            if not gone and pruning is None:
                # After an unconfirmed request, an absent tag means success, whoever removed it.
                status = Status.UNFROZEN if attempt else Status.EMPTY
                text = "" if attempt else f"nothing of it is frozen under the name {self.name!r}"
                return outcome(status=status, message=text)
            if dry_run:
                return outcome(status=Status.UNFROZEN, message="would be unfrozen")
            change = self._change(ports, partitions, state, refs, gone, pruning)
            sent = ports.commit.effects(Step.SEND, partial(partitions.lake.tag, state, change))
            if sent.applied and pruning is None:
                return outcome(status=Status.UNFROZEN)
            if sent.applied:
                # Partitions that came later are in another tag of several.
                continue
            error = sent.error
            ports.commit.pause(attempt + 1)
        text = f"it may have been unfrozen: {error}. Run it again"
        return outcome(status=Status.UNKNOWN, message=text)

    def _gone(self, state: LakeTableState) -> list[Frozen]:
        """Return the tags to remove: those of the name that keep no other partition."""
        mine = _stored(self.which)
        own = (one for one in frozen_in(state) if one.name == self.name)
        return [one for one in own if _covers(mine, one.partition)]

    def _pruning(
        self, partitions: Partitions, state: LakeTableState, refs: Mapping[str, int]
    ) -> tuple[Frozen, tuple[str, ...]] | None:
        """Return the tag that keeps other partitions too, and the files to remove from it.

        None if there is no such tag, or if it has no file of the partition.
        """
        mine = _stored(self.which)
        own = (
            one
            for one in frozen_in(state)
            if one.name == self.name
            and one.partition != mine
            and _covers(one.partition, mine)
            and not is_unfrozen(state, one, mine)
        )
        # No two tags of a name keep the same partition. A tag that another writer dropped or moved
        # is left alone.
        for whole in (one for one in own if refs.get(one.tag) == one.snapshot_id):
            frozen = replace(state, main=whole.snapshot_id)
            paths = tuple(f.path for f in _files(str(self), partitions, frozen, self.which))
            if paths:
                return whole, paths
        return None

    def _change(
        self,
        ports: OperationPorts,
        partitions: Partitions,
        state: LakeTableState,
        refs: Mapping[str, int],
        gone: list[Frozen],
        pruning: tuple[Frozen, tuple[str, ...]] | None,
    ) -> TagChange:
        """Return the change that removes tags, and files from a tag of several partitions.

        If no other partition has files in that tag, it removes the tag.
        """
        if pruning is None:
            return _without(state, gone, refs)
        whole, leaves = pruning
        frozen = replace(state, main=whole.snapshot_id)
        if len(leaves) == len(partitions.lake.paths_in_main(frozen)):
            return _without(state, [*gone, whole], refs)
        staged = _pruned(ports, partitions, state, whole.snapshot_id, leaves)
        left = replace(whole, snapshot_id=staged.snapshot_id)
        return replace(
            _without(state, gone, refs),
            pruned=(PrunedTag(whole.tag, staged, whole.snapshot_id),),
            properties=(left.property, (whole.unfrozen(_stored(self.which)), "true")),
        )


def _files(
    what: str, partitions: Partitions, state: LakeTableState, which: Target
) -> tuple[BranchFile, ...]:
    """Return the files of a target in main."""
    if isinstance(which, Months):
        return partitions.files_beginning(f"{what} on {partitions.name}", state, which.prefix)
    there = partitions.files(state, which.partition_id)
    return tuple(file for one in there.keys for file in one.files)


def _shown(which: Target) -> str:
    """Return a target as outcomes have it."""
    return _stored(which) or EVERY_PARTITION


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
