"""Exports into a tree of Hive directories, which a fault meets at any act: what must be true then.

An act is an effect of the job, or a write of the tree's own inside one: a commit is an entry of the
log and then a commit file, and a crash falls between the two too. What is exported is known from
commit files alone, as anybody outside does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from catalog.hive import OpenedTree, open_tree
from catalog.ledgers.sqlite import SqliteLedger
from catalog.storages.schemes import Storages, open_storage
from tableformat.committer import Sent
from tableformat.effects import Step
from tableformat.errors import DestinationError, TableFormatError
from tableformat.export.ports import Lake
from tableformat.file_names import exported_by
from tableformat.hive.documents import CommitFile
from tableformat.ledger import Row, State
from tableformat.names import HiveName
from tableformat.storage import Storage
from tests.enumeration.faults import PAUSES, RESPONDED, Fault, failure
from tests.enumeration.scenarios import World
from tests.support.dying import Dies

__all__ = ["WRITES", "Acts", "TreeWorld", "check_end", "check_visible", "commits", "rows_of"]

T = TypeVar("T")
WRITES: Final = ("put", "put_if_absent", "delete")
"""What the tree does to its storage; the rest only reads."""


@dataclass
class Acts:
    """The acts of one process, numbered from 0; a fault meets the one of a number, if any.

    After a death nothing is done any more.
    """

    at: int = -1
    fault: Fault = Fault.DIES_BEFORE
    other: Callable[[], object] = lambda: None
    names: list[str] = field(default_factory=list)
    dead: bool = False

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform an effect."""
        return self._do(step.value, act, failure(step), responded=step in RESPONDED)

    def storing(self, what: str, act: Callable[[], T]) -> T:
        """Perform a write of the tree."""
        error = DestinationError(f"Cannot {what}: the disk is full. Make room.")
        return self._do(what, act, error, responded=False)

    def _do(
        self, name: str, act: Callable[[], T], error: TableFormatError, *, responded: bool
    ) -> T:
        if self.dead:
            raise Dies
        now = len(self.names) == self.at
        self.names.append(name)
        if not now:
            return act()
        fault = self.fault
        if fault is Fault.DIES_BEFORE:
            self._die()
        if fault is Fault.FAILS:
            raise error
        if fault in (Fault.PAUSED_BEFORE_BY_THE_DEAD, Fault.PAUSED_BEFORE_ALIVE):
            self.other()
            return act()
        done = act()
        if fault is Fault.DIES_AFTER:
            self._die()
        if fault is Fault.LIES:
            raise error
        if fault is Fault.LOST_RESPONSE:
            return cast("T", Sent(applied=False, error="lost")) if responded else done
        self.other()
        return done

    def _die(self) -> None:
        self.dead = True
        raise Dies


class _Storages:
    """Storages whose writes are acts."""

    def __init__(self, acts: Acts) -> None:
        self._acts = acts

    def __call__(self, location: str) -> Storage:
        return cast("Storage", _Stored(open_storage(location), self._acts))


class _Stored:
    def __init__(self, inner: Storage, acts: Acts) -> None:
        self._inner, self._acts = inner, acts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in WRITES:
            return method
        return lambda location, *data: self._acts.storing(
            f"{name} {location.rsplit('/', 2)[-2]}", lambda: method(location, *data)
        )


class TreeWorld(World):
    """A world whose destination is a tree; `acts` are those of the next process, if any."""

    acts: Acts | None = None

    @property
    def to(self) -> HiveName:
        """The name of the tree."""
        return HiveName.at(f"file://{self.directory}/tree")

    @property
    def tree(self) -> OpenedTree:
        """The tree as somebody opens it who only looks."""
        return open_tree(self.to, completes=False)

    def lake(self) -> Lake:
        """Open the tree, for a new process."""
        acts, self.acts = self.acts, None
        opened = open_tree(self.to)
        if acts is None:
            return opened
        return replace(opened, storages=cast("Storages", _Storages(acts)))


def commits(world: TreeWorld) -> dict[str, list[CommitFile]]:
    """Return what is exported, by partition: each commit file was read and is whole."""
    found: dict[str, list[CommitFile]] = {}
    for one in world.tree.commit_files():
        found.setdefault(one.partition_id, []).append(one)
    return found


def rows_of(world: TreeWorld) -> dict[str, Row]:
    """Return the ledger's rows by partition; no lease is left."""
    ledger = SqliteLedger(world.directory / "ledger.db", clock=world.clock)
    try:
        rows = {row.key.partition_id: row for row in ledger.rows()}
        leases = [ledger.holder(row.key.hash) for row in rows.values()]
    finally:
        ledger.close()
    assert leases == [None] * len(rows), "a lease is left"
    return rows


def check_visible(world: TreeWorld, contents: dict[str, set[int]]) -> None:
    """Check what commit files say at any moment: whole partitions, each once, files that are there.

    Args:
        world: as it is.
        contents: by partition the numbers of rows that its source ever had.
    """
    root = Path(world.to.uri.removeprefix("file://"))
    seen: set[str] = set()
    for partition_id, found in commits(world).items():
        assert len(found) == 1, f"{partition_id} is committed {len(found)} times"
        assert found[0].rows in contents[partition_id], "a part of a partition is visible"
        for file in found[0].files:
            data = (root / file.path).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.bytes, file.sha256)
            assert file.path not in seen, "a file is committed twice"
            seen.add(file.path)


def check_end(
    world: TreeWorld, expected: dict[str, int], fault: Fault, *, replaces: bool = False
) -> None:
    """Check a world in which the command was run again after a fault.

    Args:
        world: as it is.
        expected: the rows of each partition.
        fault: what had happened.
        replaces: whether the command replaces what was exported, each time that it is run.
    """
    made, rows = commits(world), rows_of(world)
    assert {p: found[0].rows for p, found in made.items()} == expected
    for partition_id, row in rows.items():
        (commit,) = made[partition_id]
        assert row.state is State.COMPLETED, row
        assert row.done is not None
        landed = row.done.landed
        assert replaces or len(row.landed) == 1, "it landed more than once"
        assert commit.replaces == tuple(x.transaction_id for x in row.landed[:-1])
        assert (landed.transaction_id, landed.rows, landed.data_files) == (
            commit.transaction_id, commit.rows, len(commit.files),
        )  # fmt: skip
        assert landed.fingerprint == commit.fingerprint
    committed = {f.path for found in made.values() for f in found[0].files}
    replaced = {(r.key.hash, x.transaction_id) for r in rows.values() for x in r.landed[:-1]}
    left = [p for p in _data_files(world) if p not in committed and exported_by(p) not in replaced]
    listed = {p.name for p in Path(world.tree.paths.commits.removeprefix("file://")).iterdir()}
    assert listed == {found[0].name for found in made.values()}, "a replaced commit file is left"
    # Another run that takes this one for dead writes what this one is writing.
    doubled = fault in PAUSES and not fault.others_live
    assert doubled or left == [], "data files are left that no commit file names"
    known = {(r.key.hash, c.transaction_id) for r in rows.values() for c in (r.claim, *r.old)}
    assert {exported_by(path) for path in left} <= known
    assert world.source.left == {}, "a source snapshot is left"


def _data_files(world: TreeWorld) -> list[str]:
    root = Path(world.to.uri.removeprefix("file://"))
    return [str(path.relative_to(root)) for path in root.rglob("*.parquet")]
