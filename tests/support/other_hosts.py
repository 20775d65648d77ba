"""Executors that share nothing with the driver but the lake's storage, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog.storages.schemes import ReachedStorages
from spark_ext.operations import rewrite as changing_in_tasks
from spark_ext.operations import rewrite as files_in_tasks
from tests.support.session_without_spark import NoSpark

__all__ = ["Hosts", "OfCluster", "hosts_for"]


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
