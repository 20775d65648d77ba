"""The log of a tree: the state of its entries, and missing or foreign entries."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from tableformat.committer import Commit, KeyCommit, LakeTableState, Staged
from tableformat.errors import DestinationError
from tableformat.hive.documents import TreeIdentity, new_identity
from tableformat.hive.log import LogEntry, entry_of, state_after
from tableformat.table_properties import MARK_PREFIX

SCHEMA = Schema(NestedField(1, "n", LongType(), required=True))
IDENTITY = new_identity(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, {"a": "b"})
EMPTY = IDENTITY.state("file:///tree")


def appended(
    state: LakeTableState,
    key: str,
    number: int,
    remove_marks: tuple[str, ...] = (),
    earlier: tuple[str, ...] = (),
) -> LogEntry:
    """Return the entry of a commit of one key on a state."""
    staged = Staged(1000 + number, state.main, state.last_sequence_number + 1, ())
    keys = (KeyCommit(key, number, str(number), "content", (), partition_id="all"),)
    commit = Commit(keys, state.layout, "ledger", number=number)
    return entry_of(state, staged, commit, remove_marks, made=5, earlier=lambda _: earlier)


def log(*keys: str) -> tuple[LogEntry, ...]:
    """Return a log of one commit for each key."""
    entries: list[LogEntry] = []
    for number, key in enumerate(keys, start=1):
        state = state_after(EMPTY, entries)
        entries.append(appended(state, key, number))
    return tuple(entries)


@given(keys=st.lists(st.sampled_from("abc"), max_size=6))
def test_entries_are_read_as_written_and_the_last_mark_of_a_key_counts(keys: list[str]) -> None:
    entries = log(*keys)
    read = tuple(LogEntry.from_bytes(e.to_bytes(), "x") for e in entries)

    state = state_after(EMPTY, read)

    assert read == entries
    assert (state.last_sequence_number, len(state.snapshots)) == (len(keys), len(keys))
    assert state.history_is_complete
    assert all(state.is_ancestor(e.snapshot_id) for e in entries)
    assert {k: m.epoch for k, m in state.marks.items()} == {
        k: number for number, k in enumerate(keys, start=1)
    }
    assert state.highest_epoch == len(keys)
    assert state.properties["a"] == "b"


def test_a_replacing_entry_says_so_in_a_format_that_earlier_releases_refuse() -> None:
    (first,) = log("a")
    second = appended(state_after(EMPTY, (first,)), "a", 2, earlier=("1",))

    state = state_after(EMPTY, (first, second))

    assert LogEntry.from_bytes(second.to_bytes(), "x") == second
    assert [json.loads(e.to_bytes())["format_version"] for e in (first, second)] == [1, 2]
    assert "replaces" not in json.loads(first.to_bytes())["exports"][0]["commit"]
    assert second.exports[0].commit.replaces == ("1",)
    assert state.replaced == {"1"}
    assert [s.operation for s in state.snapshots.values()] == ["append", "delete"]


def test_a_removed_mark_does_not_exist() -> None:
    first = log("a")
    entry = appended(state_after(EMPTY, first), "b", 2, ("a",))

    state = state_after(EMPTY, (*first, entry))

    assert entry.removed_properties == (f"{MARK_PREFIX}a",)
    assert list(state.marks) == ["b"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda e: e[1:], "entry 1 is missing"),
        (lambda e: (e[0], e[2]), "entry 2 is missing"),
        (
            lambda e: (e[0], replace(e[1], parent=7), e[2]),
            "entry 2 follows on snapshot 7, and before it is 1001",
        ),
        (lambda e: (replace(e[0], tree="another"), *e[1:]), "entry 1 is of another tree, another"),
    ],
    ids=["without the first", "with a gap", "after another one", "of another tree"],
)
def test_a_log_that_lacks_something_is_refused(wrong: object, why: str) -> None:
    """Harm prevented: an entry that is lost, whose partition is then exported a second time."""
    assert callable(wrong)
    with pytest.raises(DestinationError, match=f"Cannot read the log of file:///tree: {why}"):
        state_after(EMPTY, wrong(log("a", "b", "c")))


def test_the_checksum_detects_a_changed_entry() -> None:
    data = log("a")[0].to_bytes().replace(b'"key": "a"', b'"key": "b"')

    with pytest.raises(DestinationError, match="does not match its checksum"):
        LogEntry.from_bytes(data, "x")


def test_an_identity_is_read_as_written_and_a_changed_one_is_refused() -> None:
    data = IDENTITY.to_bytes()
    read = TreeIdentity.from_bytes(data, "x")

    assert read.uuid == IDENTITY.uuid
    assert read.state("file:///tree").layout == EMPTY.layout
    assert read.to_bytes() == data
    with pytest.raises(DestinationError, match="checksum"):
        TreeIdentity.from_bytes(data.replace(b'"name": "n"', b'"name": "m"'), "x")
