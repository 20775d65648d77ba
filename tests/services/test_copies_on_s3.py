"""Statements between lake tables on S3: the server makes the copies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.storages.s3.storage import S3Storage
from tableformat.export.outcome import Status
from tableformat.ledger import Ledger
from tests.places.far import FarPlace
from tests.places.services import FarServices
from tests.services.minio import MinIO
from tests.services.zookeeper import ZooKeeper
from tests.support.lake_statements import IN_FILES, LATER, attach, detach, drop, export_at, running
from tests.support.scenarios import rows_in_main
from tests.support.two_lake_tables import P1, copy, move, prepared, rows_of_p1


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every ledger that the test opens: each statement has a session of its own."""
    of_place = FarPlace.ledger
    with contextlib.ExitStack() as opened:

        def ledger(self: FarPlace, clock: Callable[[], int]) -> Ledger:
            return opened.enter_context(contextlib.closing(of_place(self, clock)))

        monkeypatch.setattr(FarPlace, "ledger", ledger)
        yield


@pytest.mark.usefixtures("sessions")
def test_tables_on_s3_are_attached_and_replaced_with_the_servers_copies(
    zookeeper_server: ZooKeeper,
    minio_server: MinIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: a terabyte that is attached is sent by way of this machine."""
    with FarServices(zookeeper_server, minio_server).settled(tmp_path):
        source = prepared(tmp_path)
        sent, create = list[str](), S3Storage.create

        def seen(self: S3Storage, location: str) -> Any:
            sent.append(location)
            return create(self, location)

        monkeypatch.setattr(S3Storage, "create", seen)

        assert move(tmp_path).status is Status.MOVED
        assert rows_of_p1(tmp_path) == (0, 12)
        assert copy(tmp_path, P1).status is Status.ATTACHED
        assert rows_of_p1(tmp_path) == (12, 12)
        running(tmp_path).run(drop("p1"))
        assert copy(tmp_path, P1, replaces=True).status is Status.REPLACED

        assert sent == []
        # That the bytes are those that were exported is looked at here, too.
        running(tmp_path).run(detach("p1"))
        assert rows_in_main(tmp_path) == 3
        assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
        assert rows_in_main(tmp_path) == 15
        assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.UNCHANGED
