"""A far place is put back as it was, and shows all that a process may have done there.

Without this the crash enumeration over services could pass because each case begins elsewhere, or
because nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.ledger import Owner
from tests.enumeration.oracle import look
from tests.enumeration.scenarios import SCENARIOS, Prepared, World
from tests.places.services import FarServices
from tests.services.minio import MinIO
from tests.services.zookeeper import ZooKeeper
from tests.support.dying import Dies, KilledAt

pytestmark = pytest.mark.nightly

REPLACEMENT = next(s for s in SCENARIOS if s.name == "replacement after the TTL")


@pytest.fixture
def prepared(
    zookeeper_server: ZooKeeper, minio_server: MinIO, tmp_path: Path
) -> Iterator[Prepared]:
    """Return a far world in which two partitions were exported."""
    with FarServices(zookeeper_server, minio_server).settled(tmp_path):
        made = Prepared(REPLACEMENT, tmp_path)
        yield made
        made.world()


def put_an_object(world: World) -> None:
    location = f"{world.place.warehouse}/n/t/data/x.parquet"
    world.place.storage(location).put(location, b"x")


def replace_an_object(world: World) -> None:
    location = world.table().load().metadata_location
    world.place.storage(location).put(location, b"x")


def take_a_lease(world: World) -> None:
    ledger = world.place.ledger(world.clock)
    ledger.take_lease("a key", Owner("host", 1, "now"), 30.0)
    world.place.dies(ledger)


def claim(world: World) -> None:
    ledger = world.place.ledger(world.clock)
    row = next(ledger.rows())
    ledger.write(row)
    ledger.close()


def make_a_namespace(world: World) -> None:
    world.place.lake().catalog.create_namespace("another")


@pytest.mark.parametrize(
    "act", [put_an_object, replace_an_object, take_a_lease, claim, make_a_namespace]
)
def test_what_anybody_does_is_seen_from_outside_and_undone(
    prepared: Prepared, act: Callable[[World], None]
) -> None:
    """Harm prevented: two crashes are taken for one; a case begins with what another one left."""
    world = prepared.world()
    before = world.outside()

    act(world)

    assert world.outside() != before
    assert prepared.world().outside() == before


def test_a_world_that_is_put_back_goes_on_as_if_nothing_had_been(prepared: Prepared) -> None:
    """Harm prevented: rows of the ledger have other versions than their readers got."""
    first = prepared.world()
    first.run(REPLACEMENT.request)
    seen = look(first)

    again = prepared.world()
    again.run(REPLACEMENT.request)

    assert look(again).figures == seen.figures == {"p1": (14, 2), "p2": (9, 2)}
    assert [len(row.landed) for row in look(again).rows] == [len(row.landed) for row in seen.rows]


def test_a_killed_process_leaves_leases_until_the_world_is_put_back(prepared: Prepared) -> None:
    """Harm prevented: a crash that gives leases back, as a process that ends in order."""
    world = prepared.world()

    with pytest.raises(Dies):
        world.run(REPLACEMENT.request, effects=KilledAt(Step.CLAIM))

    assert len(look(world).leases) == 2
    assert look(prepared.world()).leases == ()
