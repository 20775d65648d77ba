"""What a catalog may do to a request instead of serving it truthfully: values, no deeds.

The kinds are those that real catalogs, proxies and networks were seen to do, or may do by the REST
specification. `server.py` performs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["HONEST", "WAITING", "Asked", "Fault", "Kind", "When", "every_fault"]


class Asked(StrEnum):
    """What a request wants; a fault waits for one of these."""

    COMMIT = "commit"
    LOAD = "load"
    CREATE = "create"
    OTHER = "other"


class When(StrEnum):
    """Whether the request is applied before the client is lied to."""

    BEFORE = "not applied"
    AFTER = "applied"


class Kind(StrEnum):
    """How the client is lied to. A number is an HTTP status."""

    NONE = "the truth"
    BAD_REQUEST = "400"
    CONFLICT = "409"
    TOO_MANY = "429"
    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    GATEWAY_TIME_OUT = "504"
    PAGE = "200 and a page for people"
    DROPPED = "connection dropped"
    CUT = "headers, then the end"
    HEADERS = "headers, then silence"
    SILENCE = "silence"
    LATE = "arrives late"
    TWICE = "arrives twice"

    @property
    def status(self) -> int | None:
        """The HTTP status of the response; None where it is not one."""
        return int(self.value) if self.value.isdecimal() else None


WAITING = (Kind.HEADERS, Kind.SILENCE)
"""The client waits until its own time-out."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One false response, to the first request of its sort that comes.

    Two kinds mean more than their name says. `LATE`: the connection is dropped, and the request
    arrives when the test says so (`Held.apply`); `AFTER`, it is applied now and a copy of it
    arrives then. `TWICE`: a proxy delivers the request twice; `AFTER`, the client gets the copy's
    response, `BEFORE` that of the first, before the copy arrives.
    """

    kind: Kind
    when: When = When.BEFORE
    on: Asked = Asked.COMMIT

    @property
    def is_served_now(self) -> bool:
        """Whether the request is applied when it comes."""
        return self.when is When.AFTER or self.kind in {Kind.NONE, Kind.TWICE}

    def __str__(self) -> str:
        """Name the fault for people who read a test's name."""
        return f"{self.on}: {self.kind}, {self.when}"


HONEST = Fault(Kind.NONE)
"""Lets one commit through, so that a fault behind it meets the next one."""


def every_fault(on: Asked = Asked.COMMIT) -> tuple[Fault, ...]:
    """Return every false response to one sort of request."""
    return tuple(Fault(k, w, on) for k in Kind if k is not Kind.NONE for w in When)
