"""The text of an address as it may be shown, whatever it is: it may hold a password."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["has_options_before_host", "without_secret"]

_HARMLESS: Final = re.compile(r"(connect-timeout|read-timeout|compress)=[0-9.]{1,10}")
_SECRET: Final = re.compile(r"[^=]*(pass|pwd|secret|token|key|credential)[^=]*=", re.IGNORECASE)
_OPTIONS: Final = re.compile(r"\?.*=", re.DOTALL)
_BEHIND: Final = re.compile(r"[:/?#@]")


def without_secret(text: str) -> str:
    """Return a text without the password of the address that it is, or ends with.

    Also of an address that cannot be read, or of another kind: `clickhouse://user:password@host`.
    What it has no place for in a server's address is left out, too, and so are options of another
    kind of address whose names are those of secrets.
    """
    begin, mark, rest = text.partition("://")
    if not mark:
        return text
    before, at, place = rest.rpartition("@")
    if has_options_before_host(before):
        return f"{begin}{mark}{_BEHIND.split(before, maxsplit=1)[0]}"
    user = before.partition(":")[0]
    place, question, options = place.partition("?")
    is_shown = _HARMLESS.fullmatch if begin.lower().endswith(("http", "https")) else _is_harmless
    shown = [one for one in options.split("&") if is_shown(one)]
    return f"{begin}{mark}{user}{at}{place}" + (question + "&".join(shown) if shown else "")


def has_options_before_host(before: str) -> bool:
    """Tell of what stands before the last @ of an address whether a host and options are in it.

    Then the @ stands in the value of an option, which may be a secret, and what follows is no host.
    """
    return _OPTIONS.search(before) is not None


def _is_harmless(option: str) -> bool:
    return _SECRET.match(option) is None
