"""A tree of Hive directories in a real object store, by TLS, reached as the environment says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.hive import open_tree
from tableformat.committer import Commit, Layout
from tableformat.export.outcome import Status
from tableformat.export.ports import Lake
from tableformat.names import HiveName
from tests.enumeration.scenarios import World
from tests.services.minio import MinIO
from tests.support.scenarios import ALL, Partitions, parts_of


def empty(layout: Layout) -> Commit:
    return Commit((), layout, "ledger")


class InBucket(World):
    """A world whose destination is a tree in a bucket."""

    bucket = ""

    @property
    def to(self) -> HiveName:
        return HiveName.at(f"s3://{self.bucket}/a tree")

    def lake(self) -> Lake:
        return open_tree(self.to)


@pytest.fixture
def world(minio_server: MinIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InBucket:
    monkeypatch.setenv("AWS_ENDPOINT_URL", minio_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio_server.secret_key)
    monkeypatch.setenv("AWS_REGION", minio_server.region)
    monkeypatch.setenv("SSL_CERT_FILE", str(minio_server.ca_file))
    made = InBucket(
        tmp_path, Partitions(by_id={"p1": parts_of("p1", 7, 5), "p2": parts_of("p2", 3)})
    )
    made.bucket = minio_server.make_bucket()
    return made


def test_partitions_are_exported_once_and_a_lost_commit_file_is_put_again(
    world: InBucket,
) -> None:
    request = replace(ALL, to=world.to)

    first = world.run(request)
    tree = open_tree(world.to)
    made = {c.partition_id: c for c in tree.commit_files()}
    tree.storage.delete(tree.paths.commit(made["p1"].name))
    again = world.run(request)

    assert first.error is None
    assert {o.status for o in first.outcomes} == {Status.COMMITTED}
    assert {p: c.rows for p, c in made.items()} == {"p1": 12, "p2": 3}
    assert {o.status for o in again.outcomes} == {Status.ALREADY_EXPORTED}
    assert {c.partition_id: c for c in tree.commit_files()} == made
    for commit in made.values():
        for file in commit.files:
            tree.files.check(commit, file, content=True)


def test_of_two_commits_at_once_one_is_made(world: InBucket) -> None:
    """Harm prevented: an object store on which put-if-absent overwrites."""
    request = replace(ALL, to=world.to)
    world.run(request)
    one, other = (open_tree(world.to).table(world.to) for _ in range(2))
    assert one is not None
    assert other is not None
    states = [table.load() for table in (one, other)]
    commit = empty(states[0].layout)

    sent = [
        table.send(state, table.stage(state, commit), commit, ())
        for table, state in zip((one, other), states, strict=True)
    ]

    assert [s.applied for s in sent] == [True, False]
    assert other.load().last_sequence_number == states[0].last_sequence_number + 1
