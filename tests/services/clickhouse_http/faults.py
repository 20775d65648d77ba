"""What a server or a proxy may do to a request instead of serving it truthfully: values, no deeds.

`client.py` performs them. `Fault` waits for one request; `BrokenStream` is how every response ends
whose query fails when part of it has been sent.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

__all__ = [
    "DISK_FULL",
    "DROP",
    "EMPTY",
    "LOST",
    "PROXY_PAGE",
    "QUOTA_EXCEEDED",
    "READ_ONLY_REPLICA",
    "SILENCE",
    "TOO_MANY_QUERIES",
    "UNAVAILABLE",
    "BrokenStream",
    "Fault",
    "Kind",
    "cut",
    "death",
    "error",
    "flipped",
    "short",
    "tail",
    "wrong_length",
]


class BrokenStream(StrEnum):
    """How a server says that a query failed when the status has been sent already."""

    BLOCK = "block"
    """As from 25.11 on: a block with the response's tag, then the end without the last chunk."""
    APPENDED = "appended"
    """As 18.16: the text behind the rows, then a clean end."""
    CUT = "cut"
    """No text at all: the connection ends."""


class Kind(StrEnum):
    """What happens to the request. The first three happen instead of asking ClickHouse."""

    RESPONSE = "another answer"
    SILENCE = "no answer"
    DROP = "the connection ends before an answer"
    LOST = "ClickHouse has done it, and the connection ends before an answer"
    DEATH = "the server dies in the body"
    CUT = "the connection ends in the body"
    SHORT = "a short body and a clean end"
    TAIL = "a text behind the body and a clean end"
    FLIP = "another byte"
    LENGTH = "a wrong Content-Length"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, for the first request whose statement holds `containing`.

    `at` counts the bytes of the body, before compression, that arrive as they are; for `LENGTH` it
    is what is added to the true length. `text` is the body of `RESPONSE` and what `TAIL` appends.
    """

    kind: Kind
    at: int = 0
    text: str = ""
    status: int = HTTPStatus.OK
    content_type: str = "text/plain; charset=UTF-8"
    code: int | None = None
    containing: str = ""

    @property
    def is_served_at_once(self) -> bool:
        """Whether ClickHouse is not asked at all."""
        return self.kind in {Kind.RESPONSE, Kind.SILENCE, Kind.DROP}

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(read: dict[str, Any]) -> Fault:
        """Return the fault that `to_json` wrote."""
        return Fault(**(read | {"kind": Kind(read["kind"])}))


PROXY_PAGE: Final = Fault(
    Kind.RESPONSE,
    status=HTTPStatus.BAD_GATEWAY,
    content_type="text/html",
    text="<html><head><title>502 Bad Gateway</title></head>\n<body><center>"
    "<h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>\n",
)
UNAVAILABLE: Final = Fault(
    Kind.RESPONSE, status=HTTPStatus.SERVICE_UNAVAILABLE, text="Service Unavailable\n"
)
EMPTY: Final = Fault(Kind.RESPONSE)
SILENCE: Final = Fault(Kind.SILENCE)
DROP: Final = Fault(Kind.DROP)
LOST: Final = Fault(Kind.LOST)


def cut(at: int) -> Fault:
    """End the connection behind `at` bytes of the body."""
    return Fault(Kind.CUT, at)


def death(at: int) -> Fault:
    """Kill the server behind `at` bytes of the body; 0: when the statement has been performed."""
    return Fault(Kind.DEATH, at)


def short(at: int) -> Fault:
    """End the response cleanly behind `at` bytes of the body, as a proxy that lost its server."""
    return Fault(Kind.SHORT, at)


def tail(text: str, at: int) -> Fault:
    """Append a text behind `at` bytes of the body, with status 200 and a clean end."""
    return Fault(Kind.TAIL, at, text)


def flipped(at: int) -> Fault:
    """Change the byte behind `at` bytes of the body."""
    return Fault(Kind.FLIP, at)


def wrong_length(by: int) -> Fault:
    """Announce `by` bytes more than come; fewer when it is negative."""
    return Fault(Kind.LENGTH, by)


def error(code: int, name: str, text: str, status: int = 500) -> Fault:
    """Respond with an error of ClickHouse, for those that the engine cannot be brought to."""
    message = f"Code: {code}. DB::Exception: {text}. ({name}) (version 26.9.2.1 (official build))\n"
    return Fault(Kind.RESPONSE, text=message, status=status, code=code)


QUOTA_EXCEEDED: Final = error(
    201,
    "QUOTA_EXCEEDED",
    "Quota for user `exporter` for 3600s has been exceeded: queries = 101/100. Interval will end"
    " at 2030-01-01 00:00:00. Name of quota template: `hourly`",
)
TOO_MANY_QUERIES: Final = error(
    202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous queries. Maximum: 100"
)
READ_ONLY_REPLICA: Final = error(
    242, "TABLE_IS_READ_ONLY", "Table is in readonly mode (replica path: /tables/1/t/replicas/r1)"
)
DISK_FULL: Final = error(
    243, "NOT_ENOUGH_SPACE", "Cannot reserve 1.00 MiB, not enough space on disk default"
)
