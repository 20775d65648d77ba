"""A slice that a real object store refuses for good is tried once, and so is one that it outlasts.

What may pass is tried again (tests/tableformat/export/test_retrying.py); here nothing may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.network import TimeOuts
from catalog.storages.schemes import Storages
from spark_ext.engine.tasks import installed_versions
from tableformat.errors import LastingError
from tableformat.export.ports import Written
from tableformat.export.slices import Slice, SliceTask, WritePlan
from tableformat.export.writers import Retrying
from tests.services.minio import Account, MinIO
from tests.support.child_writer import ChildWriter
from tests.support.frozen_parts import PLAN, insert, make_source
from tests.support.s3_places import properties_of
from tests.support.scenarios import TO, Partitions, ports_of

WRITER = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject")
BRIEF = TimeOuts(connect=1, read=2, retry_for=1)


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> tuple[Slice, ...]:
    disk = tmp_path_factory.mktemp("source") / "disk"
    source = make_source(disk, insert(0, 100, 2), insert(1, 100, 2))
    found = (source.slices(part=part)[0] for part in range(2))
    return tuple(replace(slice_, number=n) for n, slice_ in enumerate(found))


@dataclass
class Lake:
    """Where slices are written, and how often that was tried."""

    store: MinIO
    directory: Path
    bucket: str
    tries: list[int] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def written(
        self, slices: tuple[Slice, ...], account: Account | None = None, *, data: str = ""
    ) -> Written:
        """Write slices with three retries; `data` is another bucket for the files."""
        storages = Storages(properties_of(self.store, account), BRIEF)
        ports = ports_of(self.directory, Partitions())
        ports = replace(ports, storage=storages, pause=lambda _: None)
        plan = replace(
            PLAN,
            data_location=f"s3://{data or self.bucket}/wh/data",
            receipts_location=f"s3://{self.bucket}/wh/metadata/mergeberg",
            versions=installed_versions(),
        )
        retrying = Retrying(ChildWriter(self._begun, storages=storages), ports, TO, 3)
        writing = retrying.write(
            plan, (SliceTask(slices),), on_rows=lambda _: None, should_stop=lambda: False
        )
        while True:
            try:
                next(writing)
            except StopIteration as end:
                found: Written = end.value
                ports.ledger.close()
                return found

    def _begun(self, _plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        self.tries += (slice_.number for task in tasks for slice_ in task.slices)
        self.before()

    def assert_refused(self, written: Written, message: str) -> None:
        """Check that each slice was tried once, and says why it has no file."""
        assert self.tries == [0, 1]
        assert written.receipts == ()
        assert [f.slice_number for f in written.failures] == [0, 1]
        for failure in written.failures:
            assert isinstance(failure.error, LastingError)
            assert message in str(failure.error)


@pytest.fixture
def lake(minio_server: MinIO, tmp_path: Path) -> Lake:
    return Lake(minio_server, tmp_path, minio_server.make_bucket())


def test_a_right_that_is_not_there_is_asked_for_once(lake: Lake, slices: tuple[Slice, ...]) -> None:
    """Harm prevented: each file is read and encoded four times for the same refusal."""
    account = lake.store.account(*WRITER, bucket=lake.bucket, below="wh/metadata/")

    written = lake.written(slices, account)

    lake.assert_refused(written, "AccessDenied: Access Denied. Grant s3:ListBucket")


def test_a_bucket_that_is_not_there_is_asked_for_once(
    lake: Lake, slices: tuple[Slice, ...]
) -> None:
    written = lake.written(slices, data="not-there")

    lake.assert_refused(written, "Create the bucket")


def test_a_wrong_key_is_shown_once(lake: Lake, slices: tuple[Slice, ...]) -> None:
    written = lake.written(slices, Account(lake.store.root.access_key, "another secret of one"))

    lake.assert_refused(written, "The key is wrong: set s3.access-key-id")


def test_an_outage_that_was_waited_for_is_not_waited_for_again(
    lake: Lake, slices: tuple[Slice, ...]
) -> None:
    """Harm prevented: a store that is away for good holds each file for four times --retry-for."""
    lake.before = lake.store.kill

    written = lake.written(slices)

    lake.assert_refused(written, "did not recover within 1 s (--retry-for)")


def test_without_any_of_these_the_slices_are_written_at_once(
    lake: Lake, slices: tuple[Slice, ...]
) -> None:
    """Harm prevented: the refusals above are those of a place where nothing can be written."""
    written = lake.written(slices, lake.store.account(*WRITER, bucket=lake.bucket, below="wh/"))

    assert written.failures == ()
    assert [r.rows for r in written.receipts] == [100, 100]
    assert lake.tries == [0, 1]
