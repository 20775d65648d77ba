"""Where an object is: bucket and name of a location, which is taken literally."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from tableformat.errors import UsageError

__all__ = ["Place"]

_LOCATION: Final = re.compile(r"(?P<head>[a-z0-9]+://)(?P<bucket>[^/]+)/(?P<key>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """An object, or with a key that ends with a slash what lies below a directory."""

    head: str
    bucket: str
    key: str

    @classmethod
    def of(cls, location: str) -> Self:
        """Read a location.

        Raises:
            UsageError: it has no bucket or no key.
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            scheme = location.partition(":")[0]
            message = f"Cannot use {location}: it names no object. Write {scheme}://BUCKET/KEY."
            raise UsageError(message)
        return cls(found["head"], found["bucket"], found["key"])

    @classmethod
    def below(cls, location: str) -> Self:
        """Read the location of a directory; a whole bucket is one, too.

        Raises:
            UsageError: it has no bucket.
        """
        return cls.of(f"{location.rstrip('/')}/")

    def location(self, key: str) -> str:
        """Return the location of another key of the bucket."""
        return f"{self.head}{self.bucket}/{key}"
