"""The contract of an adapter for a remote object store, and the marks that run a test over stores.

    @over(*EVERY)
    def test_of_all(place: Place) -> None: ...

    @over_steps(*EVERY)
    def test_of_each_request_of_a_write(place: Place, step: Step) -> None: ...

The adapters are in `store_kinds.py`. A case of a server that `make test-all` compiles or installs
is marked `nightly`. Loaded by tests/conftest.py, for the fixture `place`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import pytest

from catalog.network import TimeOuts
from catalog.storages.over_http.storage import ObjectStorage
from catalog.storages.s3.storage import PART_BYTES, S3Storage

__all__ = ["LARGE", "SMALL", "Place", "Step", "flipped", "over", "over_steps", "place"]

SMALL: Final = b"small"
LARGE: Final = os.urandom(2 * PART_BYTES + 17)
"""Three parts of an upload to S3, and more than the other storages keep in memory."""
_PATIENT: Final = TimeOuts(connect=5, read=10, retry_for=20)
_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Step:
    """One of the requests that write an object; `text` is its operation, or is in its address.

    Some belong to `large` objects only. A step that `sends` has bytes of the object; after a step
    that `shows` the object is visible.
    """

    name: str
    text: str = ""
    large: bool = False
    sends: bool = False
    shows: bool = False

    @property
    def content(self) -> bytes:
        """The bytes of an object that has the step."""
        return LARGE if self.large else SMALL


class Place(ABC):
    """A storage with a bucket, a container or a directory of its own."""

    name: ClassVar[str]
    fixture: ClassVar[str]
    """Yields the server to a test."""
    nightly: ClassVar[bool] = True
    """Whether `make test-all` compiles or installs the server."""
    steps: ClassVar[tuple[Step, ...]]
    in_clear: ClassVar[tuple[str, str]]
    """A property, and its value by which the store is asked over http."""
    outlives_kill: ClassVar[bool] = True
    """Whether the server keeps all that it has stored when it is killed."""
    lists_uploads: ClassVar[bool] = False
    """Whether an upload can be listed that a killed process has begun."""
    passes_variables: ClassVar[bool] = False
    """Whether an export passes `variables` to the processes that it starts."""
    read_by_pyarrow: ClassVar[bool] = False
    """Whether PyIceberg reads a table there by PyArrow alone."""

    def __init__(self, server: Any, time_outs: TimeOuts = _PATIENT) -> None:
        self.server = server
        self.root = self.make()
        # Clients are kept by their access: a bound of its own makes this one the place's.
        own = replace(time_outs, read=time_outs.read + next(_NUMBERS) / 1_000_000)
        self.storage = self.reached(time_outs=own)
        self.met: list[str] = []
        """The requests that `lose_answer` and `flip_byte` changed."""

    @abstractmethod
    def make(self) -> str:
        """Make the bucket; return the location of a directory in it."""

    @abstractmethod
    def reached(self, **how: Any) -> S3Storage | ObjectStorage:
        """Return the storage with other parameters of its access.

        Args:
            how: `endpoint`, for example a proxy of the server; `ca_file`, the authorities that are
                trusted; `time_outs`; and those that only this store has.
        """

    @abstractmethod
    def stored(self) -> list[str]:
        """Return the names of all objects below `root`, as the server itself lists them."""

    @abstractmethod
    def lose_response(self, patch: pytest.MonkeyPatch, step: Step) -> None:
        """Lose the next response to a step, which the server has performed."""

    @abstractmethod
    def flip_byte(self, patch: pytest.MonkeyPatch, step: Step) -> None:
        """Change a byte of the object in the next request of a step that `sends`."""

    @property
    @abstractmethod
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of a catalog whose warehouse is there."""

    @property
    @abstractmethod
    def variables(self) -> dict[str, str]:
        """The environment by which a tree of directories is reached there."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets in `properties` and `variables`."""
        return ()

    @property
    def file(self) -> str:
        """The location of the file of a test."""
        return f"{self.root}/f"

    def another(self, time_outs: TimeOuts) -> Self:
        """Make another place on the server."""
        return type(self)(self.server, time_outs)

    def write(self, content: bytes) -> None:
        """Write the file."""
        sink = self.storage.create(self.file)
        sink.write(content)
        sink.commit()

    def assert_there(self, content: bytes) -> None:
        """Check that the file has these bytes, and that nothing else is there."""
        assert self.stored() == ["f"]
        listed = [(one.location, one.size) for one in self.storage.list(self.root)]
        assert listed == [(self.file, len(content))]
        assert self.storage.sha256(self.file) == hashlib.sha256(content).hexdigest()
        assert self.storage.list_unfinished(self.root) == ()

    def take_away(self) -> None:
        """Kill the server, or pause one that would forget what it has; `server.mend` ends it."""
        if self.outlives_kill:
            self.server.kill()
        else:
            self.server.pause()


@pytest.fixture
def place(kind: type[Place], request: pytest.FixtureRequest) -> Place:
    """Make a place of the kind that `over` or `over_steps` gives."""
    return kind(request.getfixturevalue(kind.fixture))


def over(*kinds: type[Place], representative: type[Place] | None = None) -> pytest.MarkDecorator:
    """Run a test over some kinds of places; one case may be marked `representative`."""
    cases = [pytest.param(kind, id=kind.name, marks=_marks(kind, representative)) for kind in kinds]
    return pytest.mark.parametrize("kind", cases)


def over_steps(
    *kinds: type[Place], where: Callable[[Step], bool] = lambda _: True
) -> pytest.MarkDecorator:
    """Run a test over the steps by which some kinds of places write, or over some of these."""
    cases = [
        pytest.param(kind, step, id=f"{kind.name}-{step.name}", marks=_marks(kind))
        for kind in kinds
        for step in kind.steps
        if where(step)
    ]
    return pytest.mark.parametrize(("kind", "step"), cases)


def _marks(
    kind: type[Place], representative: type[Place] | None = None
) -> list[pytest.MarkDecorator]:
    # The server that is not installed by `make test-all` is a Java, whose jar `make test` fetches.
    marks = [pytest.mark.nightly if kind.nightly else pytest.mark.spark]
    return [*marks, pytest.mark.representative] if kind is representative else marks


def flipped(data: bytes) -> bytes:
    """Return bytes of which the one in the middle has another bit."""
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)
