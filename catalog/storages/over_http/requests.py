"""One request after the other to a store, each tried again while the store is away."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, Protocol, TypeVar

from catalog.storages.over_http.failures import FAILURES, Store, is_transient, said_of
from catalog.storages.over_http.objects import ObjectClient
from catalog.storages.repeating import Failed, repeated
from catalog.this_machine import is_in_clear

__all__ = ["Access", "Requests"]

T = TypeVar("T")
_LOGGER: Final = logging.getLogger(__name__)


class Access(Protocol):
    """What is known of a store before it is asked: a value, equal for equal connections."""

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        ...

    @property
    def retry_for(self) -> float:
        """Seconds for which a request goes on that meets an outage."""
        ...

    @property
    def is_lent(self) -> bool:
        """Whether credentials may be of a catalog that lends others later."""
        ...

    def masked(self, text: str) -> str:
        """Return a text without the secrets that may stand in it."""
        ...

    def __hash__(self) -> int:
        """Return the same for equal ones."""
        ...


@dataclass(frozen=True, slots=True)
class Requests:
    """Asks as `access` says, by what `opened` makes of it.

    Once `stopped` is set, nothing is tried again.
    """

    access: Access
    store: Store
    opened: Callable[[Any], ObjectClient]
    stopped: Event = field(default_factory=Event, compare=False)

    @property
    def client(self) -> ObjectClient:
        """One for each access, shared by the threads of a process."""
        return _client(self.opened, self.access, os.getpid())

    def ask(self, what: str, location: str, request: Callable[[ObjectClient], T]) -> T:
        """Return what a request of the client returns; it may be sent more than once.

        Args:
            what: what is tried, as it follows "Cannot".
            location: of the object, for messages.
            request: asks the client.

        Raises:
            DestinationError: it is refused, or the server stays away for too long.
        """

        def failed(error: Exception) -> Failed:
            said, waited = self.access.masked(said_of(error)), self.access.retry_for
            raised = self.store.failure(
                what, location, said, error, waited=waited, lent=self.access.is_lent
            )
            return Failed(said, is_transient(error), raised)

        return repeated(
            lambda: request(self.client),
            doing=f"{what} {location}",
            failures=FAILURES,
            failed=failed,
            retry_for=self.access.retry_for,
            stopped=self.stopped,
        )


# The process is part of the key: a connection must not be shared with a fork.
@functools.lru_cache(maxsize=16)
def _client(
    opened: Callable[[Any], ObjectClient],
    access: Access,
    process: int,  # noqa: ARG001  see above
) -> ObjectClient:
    if is_in_clear(access.endpoint):
        _tell_of_http(access.endpoint)
    return opened(access)


@functools.cache
def _tell_of_http(endpoint: str) -> None:
    """Warn of what was allowed, once in a process, whoever named it: the catalog, a table ..."""
    _LOGGER.warning(
        "%s is not encrypted: everybody on the way reads and can change the rows.", endpoint
    )
