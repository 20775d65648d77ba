"""Statements that the lake's storage or catalog refuses: one line, and the table is as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tableformat.errors import TableFormatError
from tableformat.export.outcome import Outcome, Status
from tableformat.operations.freeze import Freeze
from tableformat.operations.statement import AllPartitions
from tests.places.far import FarPlace
from tests.services.faulty_http import FaultyHttp, response_of
from tests.services.minio import READ_ONLY, MinIO
from tests.support.lake_statements import (
    attach,
    detach,
    drop,
    drop_detached,
    in_files,
    partition,
    running,
    whereabouts,
)
from tests.support.s3_places import properties_of
from tests.support.scenarios import state
from tests.support.session_without_spark import NoSpark


def freeze(directory: Path) -> Outcome:
    one = running(directory)
    return Freeze(AllPartitions(), "kept").run(one.ports, one.partitions)


STATEMENTS: dict[str, Callable[[Path], Outcome]] = {
    "DROP": lambda directory: running(directory).run(drop("p1")),
    "DETACH": lambda directory: running(directory).run(detach("p1")),
    "ATTACH": lambda directory: running(directory).run(attach("p2")),
    "DROP DETACHED": lambda directory: drop_detached(directory, partition("p2")),
    "FREEZE": freeze,
}


def refusal(run: Callable[[Path], Outcome], directory: Path) -> str:
    """Return what a statement that is not done says, as an error or as what became of it."""
    try:
        outcome = run(directory)
    except TableFormatError as error:
        return error.message
    assert outcome.status in (Status.FAILED, Status.UNKNOWN), outcome
    return outcome.message


@dataclass
class Lake:
    """A table with the partition p1, and p2 detached; processes ask the store as an account."""

    store: MinIO
    directory: Path
    place: FarPlace

    def only(self, *actions: str) -> None:
        """Let later processes do only these actions."""
        account = self.store.account(*actions, bucket=self.place.bucket.bucket)
        mine = {**self.place.catalog, **properties_of(self.store, account)}
        replace(self.place, catalog=mine).name_in(self.directory)


@pytest.fixture
def lake(minio_server: MinIO, tmp_path: Path) -> Lake:
    warehouse, truth = f"s3://{minio_server.make_bucket()}/warehouse", tmp_path / "truth.db"
    held = {"type": "sql", "uri": f"sqlite:///{truth}", "warehouse": warehouse}
    times = {"connect": 5.0, "read": 10.0, "retry_for": 1.0}
    catalog, ledger = {**held, **properties_of(minio_server)}, f"sqlite:{tmp_path}/ledger.db"
    place = FarPlace(catalog, ledger, warehouse, str(truth), times)
    place.name_in(tmp_path)
    in_files(tmp_path)
    running(tmp_path).run(detach("p2"))
    return Lake(minio_server, tmp_path, place)


def test_a_store_that_may_only_be_read_refuses_each_statement_in_one_line(lake: Lake) -> None:
    """And given the right, each does what it was asked for: nothing was half done."""
    before, metadata = whereabouts(lake.directory), state(lake.directory).metadata_location

    for name, run in STATEMENTS.items():
        lake.only(*READ_ONLY)
        message = refusal(run, lake.directory)

        # What only asks the catalog cannot tell whether its last request was the first.
        assert message.removeprefix("it may have been frozen: ").startswith("Cannot "), message
        assert (
            "AccessDenied: Access Denied. Grant s3:ListBucket, s3:GetObject, s3:PutObject"
            in message
        )
        assert len(message.splitlines()) == 1, name
        assert state(lake.directory).metadata_location == metadata, name

    lake.place.name_in(lake.directory)
    assert whereabouts(lake.directory) == before
    assert STATEMENTS["ATTACH"](lake.directory).rows
    assert STATEMENTS["DROP"](lake.directory).rows


def test_a_store_that_may_not_be_read_refuses_each_statement_in_one_line(lake: Lake) -> None:
    lake.only("s3:GetBucketLocation")

    for name, run in STATEMENTS.items():
        message = refusal(run, lake.directory)

        assert message.startswith("Cannot "), name
        assert "Grant s3:ListBucket, s3:GetObject" in message, name
        assert len(message.splitlines()) == 1, name


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_a_catalog_that_denies_refuses_a_statement_in_one_line(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"error": {"message": "no such right", "type": "Denied", "code": 403}}'
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    ledger = {"spark.mergeberg.ledger": f"sqlite:{tmp_path}/ledger.db"}
    with FaultyHttp(response_of(body, status=status, ours=False)) as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__FAR__URI", server.host.url)
        monkeypatch.setenv("PYICEBERG_CATALOG__FAR__MERGEBERG.ALLOW-INSECURE", "true")
        for statement in ("DROP PARTITION 1", "ATTACH PARTITION 1", "FREEZE"):
            with pytest.raises(TableFormatError) as refused:
                NoSpark(ledger).call("execute_alter", statement=f"ALTER TABLE far.n.t {statement}")

            message = refused.value.message
            assert message.startswith("Cannot ")
            assert "the catalog 'far'" in message
            assert "no such right" in message
            assert len(message.splitlines()) == 1
