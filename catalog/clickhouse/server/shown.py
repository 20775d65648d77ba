"""A source's text as it may be shown, whatever it is: it may hold a password."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_secret"]

_HARMLESS: Final = re.compile(r"(connect-timeout|read-timeout|compress)=[0-9.]{1,10}")


def without_secret(text: str) -> str:
    """Return a text without the password of the address that it is, or ends with.

    Also of an address that cannot be read, or of another kind: `clickhouse://user:password@host`.
    What it has no place for in a server's address is left out, too.
    """
    begin, mark, rest = text.partition("://")
    if not mark:
        return text
    before, at, place = rest.rpartition("@")
    user = before.partition(":")[0]
    if begin.lower().endswith(("http", "https")):
        place, question, options = place.partition("?")
        harmless = [one for one in options.split("&") if _HARMLESS.fullmatch(one)]
        place += question + "&".join(harmless) if harmless else ""
    return f"{begin}{mark}{user}{at}{place}"
