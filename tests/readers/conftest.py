"""The tables, made once, and each reader's results, asked for once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.readers import native_parquet, recorded
from tests.readers.engines import Engine, Reader
from tests.readers.lake import open_lake
from tests.readers.measure import Truth, truth_of
from tests.readers.native_parquet import Compared
from tests.readers.pruning import Poisoned, make_poisoned
from tests.readers.recorded import OfReader


@dataclass(frozen=True, slots=True)
class World:
    """What ClickHouse says of every table, the poisoned copies, and its own files next to ours."""

    truths: tuple[Truth, ...]
    poisoned: tuple[Poisoned, ...]
    compared: list[Compared]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    with open_lake(tmp_path_factory.mktemp("readers")) as lake:
        truths = tuple(truth_of(lake, table) for table in lake.make_all())
        return World(truths, make_poisoned(lake), native_parquet.compare(lake, truths[0].table))


@pytest.fixture(scope="session")
def measured(world: World) -> Iterator[Callable[[Engine], OfReader]]:
    """A function that asks a reader everything, the first time."""

    @cache
    def ask(engine: Engine) -> OfReader:
        with Reader(engine) as reader:
            return recorded.measure(reader, world.truths, world.poisoned)

    yield ask
    ask.cache_clear()
