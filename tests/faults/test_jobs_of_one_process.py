"""Two jobs in two threads of one process, as two Spark sessions have: one works, the other waits.

Owner and liveness are those that `open_ports` gives to a job. A thread is paused at an effect, not
by time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions.cancel import forget_exports
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.engine.session import SparkSettings
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts, Silent
from tests.places.found import place_at
from tests.support.scenarios import (
    CLOCK,
    FORCED,
    AtStep,
    Partitions,
    assert_exported_once,
    parts_of,
    ports_of,
    row_of,
    run,
    statuses,
)

Resume = Callable[[], list[Outcome]]
_SECONDS: Final = 60
"""A bound for a thread that hangs."""
_WHILE_ONE_WORKS: Final = (
    Step.SNAPSHOT_SOURCE,
    Step.CLAIM,
    Step.WRITE_FILES,
    Step.SEND,
    Step.SETTLE,
)


def job(directory: Path, source: Partitions, at: AtStep | None = None) -> JobPorts:
    """Return the ports of another job of this process."""
    lake = open_catalog("lake", warehouse=directory / "of_ports")
    opened = open_ports(
        Places(SourcePlace("chdb:unused"), lake), SparkWhenNeeded(SparkSettings()), Silent()
    )
    opened.ledger.close()
    ports = ports_of(directory, source, effects=at)
    return replace(ports, owner=opened.owner, is_alive=opened.is_alive)


@contextlib.contextmanager
def paused(directory: Path, source: Partitions, step: Step) -> Iterator[Resume]:
    """Export in a thread that pauses before a step; resuming returns the outcomes."""
    reached, resumed = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        assert resumed.wait(_SECONDS)

    ports = job(directory, source, AtStep(step, pause))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run, directory, source, ports=ports, request=FORCED)

        def ended() -> list[Outcome]:
            resumed.set()
            return running.result(_SECONDS)

        try:
            assert reached.wait(_SECONDS)
            yield ended
        finally:
            resumed.set()


@pytest.mark.parametrize("step", _WHILE_ONE_WORKS)
def test_a_second_job_of_a_process_leaves_partitions_to_the_first(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: two sessions of one application write the same partition twice."""
    source = Partitions()
    with paused(tmp_path, source, step) as resume:
        snapshots = source.snapshots
        second = run(tmp_path, source, ports=job(tmp_path, source))
        assert source.snapshots == snapshots
        first = resume()

    assert (statuses(first), statuses(second)) == (["committed"] * 2, ["in_progress"] * 2)
    assert_exported_once(tmp_path, source)


def test_a_second_job_of_a_process_finds_what_the_first_has_exported(tmp_path: Path) -> None:
    """Harm prevented: leases of a job that has ended keep the next one of its process waiting."""
    source = Partitions()

    first, second = (run(tmp_path, source, ports=job(tmp_path, source)) for _ in range(2))

    assert (statuses(first), statuses(second)) == (["committed"] * 2, ["already_exported"] * 2)


def test_a_partition_is_not_forgotten_while_its_process_exports_it(tmp_path: Path) -> None:
    """Harm prevented: another session releases the lease under which rows are being written."""
    source = Partitions()
    run(tmp_path, source)
    source.by_id["p1"] = parts_of("p1", 7, 6)
    with paused(tmp_path, source, Step.WRITE_FILES) as resume:
        row = row_of(tmp_path, "p1")
        with contextlib.closing(place_at(tmp_path).ledger(CLOCK.__next__)) as ledger:
            held = ledger.holder(row.key.hash)
            with pytest.raises(RefusedError, match="has worked on it"):
                list(forget_exports(ledger, "p1", source.table.name, None))
            assert ledger.holder(row.key.hash) == held
        assert statuses(resume()) == ["replaced"] * 2
