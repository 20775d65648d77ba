"""Objects that are cleaned up in a bucket are listed, and can still be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.world import World
from tests.places.far import FarPlace
from tests.places.found import place_at
from tests.places.services import FarServices
from tests.services.minio import MinIO
from tests.services.zookeeper import ZooKeeper


@pytest.fixture
def world(zookeeper_server: ZooKeeper, minio_server: MinIO, tmp_path: Path) -> Iterator[World]:
    """Return a far world whose bucket keeps what is removed."""
    services, made = FarServices(zookeeper_server, minio_server), World(tmp_path)
    with services.settled(tmp_path):
        place = place_at(tmp_path)
        assert isinstance(place, FarPlace)
        services.keep_versions(place)
        made.front.symlink_to(tmp_path)
        yield made


def test_an_object_that_is_removed_is_read_as_it_was_last(world: World) -> None:
    """Harm prevented: what expired snapshots showed is judged no more once it is cleaned up."""
    place = place_at(world.directory)
    storage, below = place.storage(place.warehouse), place.warehouse
    for name, texts in {"gone": ("old", "new"), "there": ("x",)}.items():
        for text in texts:
            storage.put(f"{below}/{name}", text.encode())

    world.removed.storage(below).delete(f"{below}/gone")

    read = world.removed.io()
    assert world.locations() == {f"{below}/there"}
    assert [name.rpartition("/")[2] for name in world.removed.names()] == ["gone"]
    assert read.new_input(f"{below}/gone").open().read() == b"new"
    assert read.new_input(f"{below}/there").open().read() == b"x"
    assert not read.new_input(f"{below}/never").exists()
