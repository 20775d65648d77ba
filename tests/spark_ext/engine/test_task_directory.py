"""What tasks leave for each other is removed; a storage that fails then fails no statement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog.storages.local import LocalStorage
from catalog.storages.schemes import Storages
from spark_ext.engine.jobs import task_directory
from tableformat.errors import DestinationError


@dataclass(frozen=True)
class Context:
    """The context of a session whose tasks run here, or elsewhere."""

    master: str


def test_local_tasks_have_a_directory_of_this_host(tmp_path: Path) -> None:
    local: Any = Context("local[2]")

    with task_directory(local, "left", str(tmp_path), Storages()) as made:
        Path(made.location, "one").touch()

    assert made.at_hand
    assert not Path(made.location).exists()
    assert list(tmp_path.iterdir()) == []


def test_those_of_a_cluster_have_one_below_the_table(tmp_path: Path) -> None:
    far: Any = Context("yarn")

    with task_directory(far, "left", str(tmp_path), Storages()) as made:
        LocalStorage().put(f"{made.location}/one", b"x")

    assert not made.at_hand
    assert made.location.startswith(f"{tmp_path}/metadata/mergeberg/views/")
    assert LocalStorage().list(str(tmp_path)) == ()


def test_a_directory_that_cannot_be_removed_is_reported_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Harm prevented: a statement that has landed says that it failed, and is run again."""

    def fails(*_: object) -> None:
        message = "Cannot delete it: the storage is away. Try again."
        raise DestinationError(message)

    far: Any = Context("yarn")
    monkeypatch.setattr(LocalStorage, "delete", fails)

    with task_directory(far, "left", str(tmp_path), Storages()) as made:
        LocalStorage().put(f"{made.location}/one", b"x")

    assert "the storage is away. Try again. `mergeberg gc` removes it" in caplog.text
