"""Statements on files of an earlier partition spec whose column the owner has dropped since."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from tableformat.committer import DETACHED_BRANCH
from tableformat.errors import UnsupportedError
from tableformat.operations.freeze import Freeze, Unfreeze
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions
from tableformat.operations.take_out import DropDetached
from tests.support.lake_statements import (
    ForeignPartitions,
    attach,
    detach,
    drop,
    in_files,
    partition,
    rows_of_tag,
    running,
)
from tests.support.scenarios import ledger_rows, pyiceberg, rows_in_main

OWN = 15
P1 = partition("p1")
OF_OTHERS = ForeignPartitions(rest="p1")


def divide(directory: Path, name: str = "q") -> None:
    """Divide by a new column, add rows with its value, with NULL and with both, and drop it."""
    table = pyiceberg(directory)
    with table.update_schema() as change:
        change.add_column(name, LongType())
    with table.update_spec() as update:
        update.add_identity(name)
    for values in ([5], [None], [6, None]):
        numbers = pa.array(range(len(values)), pa.int64())
        schema = pa.schema([pa.field("n", pa.int64(), nullable=False), (name, pa.int64())])
        table.append(pa.table([numbers, pa.array(values, pa.int64())], schema=schema))
    with table.update_spec() as update:
        update.remove_field(name)
    with table.update_schema() as change:
        change.delete_column(name)
    assert rows_in_main(directory) == OWN + 4


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    in_files(tmp_path)
    divide(tmp_path)
    return tmp_path


def here(directory: Path) -> Running:
    return running(directory, rows=OF_OTHERS)


def alone(directory: Path, statement: DropDetached | Freeze | Unfreeze) -> object:
    one = here(directory)
    return statement.run(one.ports, one.partitions)


def manifests(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.rglob("*.avro"))]


def assert_readable(directory: Path) -> None:
    """Check that no manifest has a union with two equal branches, which Java's Avro refuses."""
    assert [one for one in manifests(directory) if b'["null", "null"]' in one] == []
    table = pyiceberg(directory)
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            assert manifest.fetch_manifest_entry(table.io, discard_deleted=False)


def rows_on(directory: Path, branch: str) -> int:
    """Return the rows of a branch, as a reader counts them who opens every file."""
    table = pyiceberg(directory)
    snapshot = table.metadata.refs[branch].snapshot_id
    return int(table.scan(snapshot_id=snapshot).to_arrow().num_rows)


def test_they_leave_and_come_back(divided: Path) -> None:
    """Harm prevented: a manifest that no reader can read, after "attached"."""
    assert here(divided).run(detach("p1")).rows == 12 + 4
    assert (rows_in_main(divided), rows_on(divided, DETACHED_BRANCH)) == (3, 16)

    assert here(divided).run(attach("p1")).rows == 12 + 4

    assert rows_in_main(divided) == OWN + 4
    assert rows_on(divided, "main") == OWN + 4
    assert_readable(divided)


def test_they_are_dropped(divided: Path) -> None:
    assert here(divided).run(drop("p1")).rows == 12 + 4

    assert rows_on(divided, "main") == 3
    assert_readable(divided)


def test_they_are_dropped_where_they_are_detached(divided: Path) -> None:
    here(divided).run(detach("p1"))
    here(divided).run(detach("p2"))

    alone(divided, DropDetached(P1))

    assert rows_on(divided, DETACHED_BRANCH) == 3
    assert_readable(divided)


def test_they_are_frozen_and_unfrozen(divided: Path) -> None:
    alone(divided, Freeze(P1, "one"))
    alone(divided, Freeze(AllPartitions(), "all"))
    alone(divided, Unfreeze(P1, "all"))

    assert (rows_of_tag(divided, "one"), rows_of_tag(divided, "all")) == (16, 3)
    assert_readable(divided)


def test_another_column_may_have_the_name_by_now(tmp_path: Path) -> None:
    """Harm prevented: two columns of one name in the schema of a manifest."""
    in_files(tmp_path)
    divide(tmp_path)
    with pyiceberg(tmp_path).update_schema() as change:
        change.add_column("dropped_2", LongType())

    here(tmp_path).run(detach("p1"))
    here(tmp_path).run(attach("p1"))

    assert rows_on(tmp_path, "main") == OWN + 4
    assert_readable(tmp_path)


def lose_schemas(directory: Path) -> None:
    """Remove all schemas but the current one, as expiry with clean-expired-metadata does."""
    metadata = Path(pyiceberg(directory).metadata_location.removeprefix("file://"))
    found = json.loads(metadata.read_text())
    now = found["current-schema-id"]
    found["schemas"] = [one for one in found["schemas"] if one["schema-id"] == now]
    for snapshot in found["snapshots"]:
        snapshot["schema-id"] = now
    metadata.write_text(json.dumps(found))


@pytest.mark.parametrize(
    "act",
    [
        lambda at: here(at).run(drop("p1")),
        lambda at: here(at).run(detach("p1")),
        lambda at: here(at).run(attach("p1")),
        lambda at: here(at).forecast(drop("p1")),
        lambda at: alone(at, DropDetached(P1)),
        lambda at: alone(at, Freeze(partition("p2"), "one")),
    ],
    ids=["drop", "detach", "attach", "dry drop", "drop detached", "freeze"],
)
def test_without_any_schema_they_are_refused_unclaimed(
    divided: Path, act: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    """Harm prevented: a claim that nobody can end, or a manifest that nobody can read."""
    if request.node.callspec.id in ("attach", "drop detached"):
        here(divided).run(detach("p1"))
    lose_schemas(divided)
    rows, before = ledger_rows(divided), manifests(divided)

    with pytest.raises(UnsupportedError, match="field q is of a column that was drop") as refused:
        act(divided)

    assert refused.value.code == 48
    assert (ledger_rows(divided), manifests(divided)) == (rows, before)


def test_without_any_schema_other_files_still_change(divided: Path) -> None:
    lose_schemas(divided)

    assert here(divided).run(drop("p2")).rows == 3

    assert rows_in_main(divided) == 12 + 4
    assert_readable(divided)
