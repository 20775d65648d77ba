"""A standalone cluster: one master and two workers over a shared directory, one core each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.spark_cluster import CLUSTER_CONF, HOSTS, Cluster, ask, executors
from tests.support.interfaces import BIG_ROWS, Ended, Interfaces, wait_while_it_runs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.nightly]

EXPORT = """CALL lake.system.export_partitions('analytics.{}', 'ch.db.big',
    max_bytes_per_file => 500000, max_retries => {})"""
# So that one of two executors cannot do it all before the other has begun.
SLOWLY = EXPORT.replace("max_retries", "max_bandwidth => 1500000, max_retries")
CONF = {
    **CLUSTER_CONF,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a master and one worker."""
    root = tmp_path_factory.mktemp("cluster")
    (root / "events").mkdir()
    made = Cluster(Interfaces(root))
    places = {"spark.eventLog.dir": f"file://{root}/events", "spark.ui.port": f"{made.ui_port}"}
    Interfaces.made(root, CONF | places)
    try:
        made.start_master()
        made.worker("first", HOSTS[0])
        yield made
    finally:
        made.end()


def begin(cluster: Cluster, statement: str) -> Any:
    """Begin a statement in spark-sql."""
    return cluster.interfaces.start(["spark-sql", "--master", cluster.master, "-e", statement])


def at_work(cluster: Cluster) -> set[str]:
    """Return the hosts that have done a task of the application whose web interface is there."""
    try:
        found = ask(f"{cluster.application}/executors")
    except (OSError, ValueError):
        # It is not there yet, or says in words that it is starting.
        return set()
    done = (one["hostPort"] for one in found if one["id"] != "driver" and one["completedTasks"])
    return {place.partition(":")[0] for place in done}


def events(root: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind of the last application."""
    log = max((root / "events").iterdir(), key=lambda path: path.stat().st_mtime)
    found = (json.loads(line) for line in log.read_text().splitlines())
    return [event for event in found if event["Event"] == f"SparkListener{kind}"]


def test_a_killed_executor_costs_no_row_and_doubles_none(
    cluster: Cluster,
) -> None:
    interfaces = cluster.interfaces
    second = cluster.worker("second", HOSTS[1])
    driver = begin(cluster, SLOWLY.format("big", 3))

    wait_while_it_runs(
        driver,
        lambda: at_work(cluster) == set(HOSTS),
        "both executors had finished a task",
    )
    killed = executors(HOSTS[1], interfaces.root)
    for process in killed:
        os.kill(process, signal.SIGKILL)
    ended = Ended.of(driver)
    second.kill()

    assert ended.code == 0, ended.err
    assert f"all\tcommitted\t{BIG_ROWS}\t" in ended.out
    assert interfaces.numbers("analytics.big", "id") == list(range(BIG_ROWS))
    good = [
        e for e in events(interfaces.root, "TaskEnd") if e["Task End Reason"]["Reason"] == "Success"
    ]
    assert {event["Task Info"]["Host"] for event in good} == set(HOSTS)
    assert len(killed) == 1
    assert events(interfaces.root, "ExecutorRemoved") != []


@pytest.mark.soak
def test_a_host_that_does_not_have_the_source_is_named(cluster: Cluster) -> None:
    """Harm prevented: a page of Java from somewhere in a cluster, or rows that are missing."""
    interfaces = cluster.interfaces
    # A disk of its own has nothing where the others have the source.
    hides = interfaces.root / "hides"
    hides.write_text(f'#!/bin/sh\nmount -t tmpfs none {interfaces.root}/clickhouse\nexec "$@"\n')
    hides.chmod(0o755)
    # The namespace of its own takes from it that it ends with the tests.
    apart = f"unshare --user --map-root-user --mount {hides} setpriv --pdeathsig KILL"
    third = cluster.worker("third", HOSTS[1], before=apart)

    ended = Ended.of(begin(cluster, EXPORT.format("apart", 0)))
    third.kill()

    assert ended.code == 1
    (line,) = [line for line in ended.err.splitlines() if line.startswith("Cannot ")]
    assert f"Cannot read {interfaces.root}/clickhouse/" in line
    assert "no such directory. Run the executors where the source's disk is mounted" in line
    assert line.endswith("SQLSTATE: 58000")
    assert interfaces.numbers("analytics.apart", "id") == []
