"""Tests the promises of a catalog that the commit protocol needs.

docs/spec/commit-protocol.md, sections 0 and 7, lists the promises.

    from conformance.suites.catalog import catalog_promises
    TestMine = catalog_promises(lambda name: MyCatalog(...))

`open_catalog(name)` opens the catalog called `name`, which is empty the first time. Each test opens
it twice by the same name, as two processes would.

The fence is the promise that a catalog refuses an attempt for ever once the table's last sequence
number has reached that of the attempt. Never export to a catalog that breaks one of these promises.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Final
from uuid import UUID

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.table import IcebergTable
from tableformat.committer import (
    Commit,
    KeyCommit,
    LakeTableState,
    SchemaChange,
    Sent,
    Staged,
)
from tableformat.iceberg import snapshot
from tableformat.names import LakeName
from tableformat.table_properties import EPOCH_PROPERTY, MARK_PREFIX

__all__ = ["CatalogPromises", "catalog_promises"]

_NAMES = itertools.count()
_NAME: Final = LakeName("any", ("conformance",), "t")
_SCHEMA: Final = Schema(NestedField(1, "n", LongType(), required=False))
_WIDER: Final = Schema(*_SCHEMA.fields, NestedField(2, "m", LongType(), required=False))
_ROUNDS: Final = 5
_NO_SNAPSHOT: Final = 4_711
# The requirements of a commit, each with a value that is never true.
_UNTRUE: Final[Mapping[str, Mapping[str, Any]]] = {
    "assert-table-uuid": {"uuid": UUID(int=7)},
    "assert-current-schema-id": {"current_schema_id": 99},
    "assert-default-spec-id": {"default_spec_id": 99},
    "assert-default-sort-order-id": {"default_sort_order_id": 99},
    "assert-ref-snapshot-id": {"snapshot_id": _NO_SNAPSHOT},
}
_IMPOSSIBLE: Final = {
    "action": "set-snapshot-ref",
    "ref-name": "tag",
    "type": "tag",
    "snapshot-id": _NO_SNAPSHOT,
}
Attempt = tuple[LakeTableState, Staged, Commit]


class CatalogPromises:
    """Tests a catalog; each test creates a table with the empty snapshot that an export adds."""

    open_catalog: ClassVar[Callable[[str], Catalog]]
    one: Catalog
    other: Catalog
    table: IcebergTable

    def setup_method(self) -> None:
        """Open two handles and create the table."""
        name = f"catalog-{next(_NAMES)}"
        self.one, self.other = (type(self).open_catalog(name) for _ in range(2))
        with contextlib.suppress(NamespaceAlreadyExistsError):
            self.one.create_namespace(_NAME.namespace)
        made = self.one.create_table(_NAME.identifier, _SCHEMA)
        self.table = IcebergTable(self.one, _NAME, made)
        assert self.send(self.attempt()).applied, "a first, empty snapshot is refused"

    def teardown_method(self) -> None:
        """Close both handles."""
        for catalog in (self.one, self.other):
            catalog.close()

    def attempt(self, key: str = "", number: int = 1) -> Attempt:
        """Stage a commit without rows on the current state of the table, with the mark of a key."""
        state = self.table.load()
        keys = (KeyCommit(key, number, "transaction", "content", ()),) if key else ()
        commit = Commit(keys, state.layout, "ledger", number=number)
        return state, self.table.stage(state, commit), commit

    def send(self, attempt: Attempt, remove_marks: tuple[str, ...] = ()) -> Sent:
        """Send an attempt to the catalog."""
        return self.table.send(*attempt, remove_marks)

    def append(self) -> None:
        """Commit a snapshot as another writer."""
        table = self.other.load_table(_NAME.identifier)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass

    def move_main(self, snapshot_id: int | None) -> None:
        """Move main to another snapshot, as an operator would."""
        assert snapshot_id is not None
        table = self.other.load_table(_NAME.identifier)
        table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()

    def expire(self, *snapshot_ids: int | None) -> None:
        """Expire snapshots, as an operator would."""
        table = self.other.load_table(_NAME.identifier)
        wanted = [i for i in snapshot_ids if i is not None]
        table.maintenance.expire_snapshots().by_ids(wanted).commit()
        left = self.table.load().snapshots
        assert not {*wanted} & {*left}, "an expired snapshot is still there"

    def assert_refused(self, attempt: Attempt, why: str) -> None:
        """Check that an attempt is refused as a whole."""
        before = self.table.load()
        assert not self.send(attempt).applied, f"applied: {why}"
        self.assert_unchanged(before, why)

    def assert_unchanged(self, before: LakeTableState, why: str) -> None:
        """Check that the metadata of the table is unchanged, including all properties."""
        after = self.table.load()
        was, now = snapshot.table_of(before).metadata, snapshot.table_of(after).metadata
        assert now == was, f"refused, and changed all the same: {why}"
        assert after.metadata_location == before.metadata_location, why

    def test_what_was_sent_is_what_the_table_has(self) -> None:
        """Harm prevented: a mark that names another snapshot than the one that was committed."""
        attempt = self.attempt("a" * 26, number=7)
        sent, state = self.send(attempt), self.table.load()

        _, staged, _ = attempt
        assert sent.applied
        assert state.main == staged.snapshot_id
        assert state.last_sequence_number == staged.sequence_number
        assert state.snapshots[staged.snapshot_id].parent_id == staged.parent_id
        mark = state.mark("a" * 26)
        assert mark is not None
        assert mark.snapshot_id == staged.snapshot_id
        assert state.properties[EPOCH_PROPERTY] == "7"

    @pytest.mark.parametrize("requirement", _UNTRUE)
    def test_one_requirement_that_is_not_so_refuses_everything(self, requirement: str) -> None:
        """Harm prevented: files in a table that they were not written for."""
        attempt = self.attempt("a" * 26)
        updates, requirements = snapshot.request(*attempt, ())
        untrue = _UNTRUE[requirement]
        altered = [
            r.model_copy(update=untrue) if r.type == requirement else r for r in requirements
        ]
        assert {r.type for r in requirements} == {*_UNTRUE}

        self.assert_cannot_be_applied(tuple(altered), updates)

    def test_one_update_that_is_impossible_refuses_everything(self) -> None:
        """Harm prevented: a mark without its snapshot."""
        updates, requirements = snapshot.request(*self.attempt("a" * 26), ())
        impossible = SetSnapshotRefUpdate.model_validate(_IMPOSSIBLE)
        late = SetPropertiesUpdate(updates={"late": "1"})

        self.assert_cannot_be_applied(requirements, (*updates, impossible, late))

    def assert_cannot_be_applied(
        self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> None:
        """Check that a request is refused as a whole, with any exception."""
        before = self.table.load()
        refused = True
        with contextlib.suppress(Exception):
            self.one.commit_table(snapshot.table_of(before), requirements, updates)
            refused = False
        assert refused, "applied what cannot be"
        self.assert_unchanged(before, "a request that cannot be applied")

    def test_the_fence(self) -> None:
        """Harm prevented: a late request lands after a rollback to the snapshot it was made for."""
        stale = self.attempt("a" * 26)
        self.append()
        self.move_main(stale[0].main)

        assert self.table.load().main == stale[0].main
        self.assert_refused(stale, "main is the parent again, the sequence number has passed")

    def test_the_fence_after_an_expiry(self) -> None:
        """Harm prevented: a fence that considers only snapshots that still exist."""
        stale = self.attempt("a" * 26)
        self.append()
        passed = self.table.load().main
        self.move_main(stale[0].main)
        self.expire(passed)

        assert self.table.load().last_sequence_number == stale[1].sequence_number
        self.assert_refused(stale, "the snapshot that passed the sequence number is expired")

    def test_a_request_whose_parent_is_gone(self) -> None:
        """Harm prevented: a snapshot without a parent removes all rows from main."""
        stale = self.attempt("a" * 26)
        self.append()
        self.expire(stale[0].main)

        self.assert_refused(stale, "the parent is expired")

    def test_a_first_snapshot_that_comes_second(self) -> None:
        """Harm prevented: a snapshot for an empty table replaces the rows that it has now."""
        name = LakeName("any", ("conformance",), "empty")
        made = self.one.create_table(name.identifier, _SCHEMA)
        empty = IcebergTable(self.one, name, made)
        state = empty.load()
        commit = Commit((), state.layout, "ledger")
        first, second = (empty.stage(state, commit) for _ in range(2))
        assert empty.send(state, first, commit, ()).applied
        before = empty.load()

        sent = empty.send(state, second, commit, ())
        assert not sent.applied, "applied: main is there already"
        assert empty.load() == before, "refused, and changed all the same"

    def test_a_request_that_is_delivered_twice(self) -> None:
        """Harm prevented: rows twice, because a proxy sent a request again."""
        attempt = self.attempt("a" * 26)
        assert self.send(attempt).applied

        self.assert_refused(attempt, "it was applied already")
        self.append()
        self.assert_refused(attempt, "it was applied already, and there is a later snapshot")

    def test_two_commits_at_once(self) -> None:
        """Harm prevented: both commits are applied, because neither sees the other."""
        handles = [
            IcebergTable(c, _NAME, c.load_table(_NAME.identifier)) for c in (self.one, self.other)
        ]
        for number in range(_ROUNDS):
            state = self.table.load()
            commit = Commit((), state.layout, "ledger", number=number)
            staged = [handle.stage(state, commit) for handle in handles]
            applied = _at_once(
                [
                    partial(h.send, state, s, commit, ())
                    for h, s in zip(handles, staged, strict=True)
                ]
            )
            after = self.table.load()
            assert applied.count(True) == 1, f"{applied.count(True)} of two were applied"
            assert after.main == staged[applied.index(True)].snapshot_id
            assert staged[applied.index(False)].snapshot_id not in after.snapshots

    def test_properties_are_set_and_removed_with_the_snapshot(self) -> None:
        """Harm prevented: a mark disappears before, or without, the commit that removes it."""
        assert self.send(self.attempt("a" * 26, number=1)).applied
        stale = self.attempt("b" * 26, number=2)
        self.append()
        before = self.table.load()
        sent = self.send(stale, remove_marks=("a" * 26,))
        assert not sent.applied, "applied: main has moved"
        self.assert_unchanged(before, "a request that removes a mark")

        assert self.send(self.attempt("b" * 26, number=3), remove_marks=("a" * 26,)).applied
        after = self.table.load()
        assert {k for k in after.properties if k.startswith(MARK_PREFIX)} == {
            MARK_PREFIX + "b" * 26
        }
        assert after.properties[EPOCH_PROPERTY] == "3"

    def test_a_schema_is_changed_once(self) -> None:
        """Harm prevented: a duplicate column; or a commit for the old schema after the change."""
        state, stale = self.table.load(), self.attempt("a" * 26)
        change = SchemaChange(_WIDER.model_dump_json(), ("m",), (("changed", "yes"),))
        assert self.table.evolve(state, change).applied
        before = self.table.load()

        assert [f.name for f in snapshot.table_of(before).schema().fields] == ["n", "m"]
        assert before.properties["changed"] == "yes"
        assert not self.table.evolve(state, change).applied, "applied: the schema is not that one"
        self.assert_unchanged(before, "a change of the schema that was made already")
        self.assert_refused(stale, "it was staged for the schema before")


def _at_once(requests: list[Callable[[], Sent]]) -> list[bool]:
    """Send requests concurrently; return for each whether it was applied."""
    together = threading.Barrier(len(requests))

    def send(request: Callable[[], Sent]) -> bool:
        together.wait()
        return request().applied

    with ThreadPoolExecutor(len(requests)) as pool:
        return [*pool.map(send, requests)]


def catalog_promises(
    open_catalog: Callable[[str], Catalog], *, at_once: bool = True
) -> type[CatalogPromises]:
    """Return the test class for a kind of catalog.

    Args:
        open_catalog: opens a catalog by name.
        at_once: False for a catalog whose documentation allows only one thread.
    """
    members: dict[str, object] = {"open_catalog": staticmethod(open_catalog)}
    if not at_once:
        members["test_two_commits_at_once"] = None
    return type("Promises", (CatalogPromises,), members)
