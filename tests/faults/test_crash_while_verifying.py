"""An export that is verified dies at one of its steps: no row twice, and the proof is not lost.

docs/operating/verify.md: a digest is kept before the commit that it speaks of.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tableformat.digest import Digest
from tableformat.effects import Effects, Step
from tableformat.errors import DestinationError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ById, ExportOptions
from tableformat.names import LakeName, PartitionId, TableName
from tests.support.fakes import FakeDigests, FakeSource, job_ports
from tests.support.scenarios import rows_in_main

T = TypeVar("T")
REQUEST = ExportRequest(
    TableName("db", "t"),
    LakeName("lake", ("n",), "t"),
    ById(PartitionId("all")),
    ExportOptions(),
    {},
)
ROWS = 12


class Dies(BaseException):
    """The process ends here."""


class DiesAround:
    """Dies before or after one step, once the digest is kept, and at everything afterwards."""

    def __init__(self, step: Step, *, after: bool) -> None:
        self._step, self._after, self._dead = step, after, False
        self._armed = False

    def __call__(self, step: Step, act: Callable[[], T]) -> T:
        # The first snapshot of a table is staged and sent by the same steps.
        self._armed = self._armed or step is Step.KEEP_DIGEST
        here = self._armed and step is self._step
        if self._dead or (here and not self._after):
            self._dead = True
            raise Dies
        result = act()
        if here:
            self._dead = True
            raise Dies
        return result


def run(directory: Path, digests: FakeDigests, effects: Effects | None = None) -> Outcome:
    clock = itertools.count(1_000_000).__next__
    ports = job_ports(directory, FakeSource(), effects=effects, clock=clock, digests=digests)
    with contextlib.closing(ports.ledger):
        (outcome,) = export(REQUEST, ports, slots=1)
    return outcome


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "step", [Step.KEEP_DIGEST, Step.STAGE, Step.SEND, Step.SETTLE, Step.VERIFY]
)
def test_a_crash_leaves_one_export_and_the_digest_of_what_landed(
    tmp_path: Path, step: Step, *, after: bool
) -> None:
    """Harm prevented: rows twice; or an export that nobody can prove because the process died."""
    digests = FakeDigests()
    with pytest.raises(Dies):
        run(tmp_path, digests, DiesAround(step, after=after))

    outcome = run(tmp_path, digests)

    assert outcome.status in (Status.COMMITTED, Status.ALREADY_EXPORTED)
    assert rows_in_main(tmp_path) == ROWS
    landed = [k for k in digests.stored.values() if k.transaction_id == outcome.transaction_id]
    assert [k.digest for k in landed] == [Digest(ROWS, 0, ())]


def test_the_digest_is_kept_before_the_request_that_makes_the_rows_visible(tmp_path: Path) -> None:
    digests = FakeDigests()
    with pytest.raises(Dies):
        run(tmp_path, digests, DiesAround(Step.STAGE, after=False))

    assert len(digests.stored) == 1
    assert rows_in_main(tmp_path) == 0


def test_a_lake_that_differs_is_reported_and_stays(tmp_path: Path) -> None:
    outcome = run(tmp_path, FakeDigests(rows=ROWS - 1))

    assert (outcome.status, outcome.verified) == (Status.DIFFERS, False)
    assert "rows 12 in the source, 11 in the lake" in outcome.message
    assert rows_in_main(tmp_path) == ROWS


def test_a_digest_that_cannot_be_kept_stops_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: an export whose proof was asked for, and is not there."""

    def full(*_: object) -> None:
        message = "Cannot write: no space left. Free some."
        raise DestinationError(message)

    monkeypatch.setattr(FakeDigests, "keep", full)
    outcome = run(tmp_path, FakeDigests())

    assert outcome.status is Status.FAILED
    assert rows_in_main(tmp_path) == 0
