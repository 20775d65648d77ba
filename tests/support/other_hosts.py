"""Executors that share nothing with the driver but the lake's storage, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog.storages.schemes import ReachedStorages, Storages
from spark_ext.actions import verify
from spark_ext.actions.verify import DigestsInTasks
from spark_ext.engine import jobs as files_in_tasks
from spark_ext.engine.tasks import DigestWork
from spark_ext.operations import rewrite as changing_in_tasks
from tests.support.session_without_spark import NoSpark

__all__ = [
    "DigestingHosts",
    "Hosts",
    "OfCluster",
    "digesting_hosts",
    "digests_in_tasks",
    "hosts_for",
]


@dataclass
class OfCluster(NoSpark):
    """A session whose executors are elsewhere."""

    master: str = "spark://somewhere:7077"

    def broadcast(self, value: ReachedStorages) -> Held:
        return Held(value)


@dataclass(frozen=True)
class Held:
    """A broadcast."""

    value: ReachedStorages


@dataclass
class Hosts:
    """Does what tasks do with what arrives there; `asked` are what did it, by class.

    `between` are the files that one host left for another when the second kind of job began.
    """

    lake: Path
    asked: list[str]
    between: list[Path]

    def __call__(
        self,
        spark: SparkSession,  # noqa: ARG002
        what: str,  # noqa: ARG002
        items: tuple[Any, ...],
        cost: Callable[[Any], int],
        work: Any,
        look: Callable[[], None] = lambda: None,
    ) -> tuple[Any, ...]:
        self.asked.append(type(work).__name__)
        self.between = self.left()
        look()
        assert all(cost(one) > 0 for one in items)
        arrived = pickle.loads(pickle.dumps((work, items)))  # noqa: S301  our own
        return tuple(arrived[0](arrived[1]))

    def left(self) -> list[Path]:
        return [path for path in self.lake.rglob("views/**/*") if path.is_file()]


def hosts_for(lake: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Let two files be enough for tasks, and others run them."""
    found = Hosts(lake, [], [])
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 2)
    for module in (changing_in_tasks, files_in_tasks):
        monkeypatch.setattr(module, "in_tasks", found)
    return found


@dataclass
class DigestingHosts:
    """Run two tasks of each job that digests files, with what arrives there; or fail as `fails`.

    `jobs` are the numbers of files; `closed` is how many jobs were cancelled.
    """

    jobs: list[int] = field(default_factory=list)
    works: list[DigestWork] = field(default_factory=list)
    closed: int = 0
    fails: Exception | None = None

    def __call__(
        self, _spark: Any, _what: str, items: Any, cost: Callable[[Any], int], work: Any, _then: str
    ) -> Generator[None, None, tuple[Any, ...]]:
        self.jobs.append(len(items))
        self.works.append(work)
        work, items = pickle.loads(pickle.dumps((work, items)))  # noqa: S301  our own
        try:
            yield
        except GeneratorExit:
            self.closed += 1
            raise
        if self.fails is not None:
            raise self.fails
        assert all(cost(one) > 0 for one in items)
        found: list[Any] = [None] * len(items)
        found[::2] = work(items[::2])
        yield
        found[1::2] = work(items[1::2])
        return tuple(found)


def digesting_hosts(monkeypatch: pytest.MonkeyPatch) -> DigestingHosts:
    """Let others run what tasks would run to digest files."""
    found = DigestingHosts()
    monkeypatch.setattr(verify, "running_tasks", found)
    return found


def digests_in_tasks(on_rows: Callable[[int], None] = lambda _: None) -> DigestsInTasks:
    """Return what digests all files in tasks."""
    spark = OfCluster({}, master="local[2]").session
    return DigestsInTasks(Storages(), lambda _: spark, on_rows)
