"""The text that names frozen parts: `parts:DIR?ddl=FILE[&identity=TEXT][&zone=ZONE][...]`.

A character that means something here (`?`, `&`, `%`) is written as %XX in every place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from tableformat.errors import UsageError

__all__ = ["FrozenSettings", "is_parts", "parse_parts", "render_parts"]

_SCHEME: Final = "parts:"
_FORM: Final = (
    "parts:DIR?ddl=FILE, and after that &identity=uuid:UUID or &identity=keeper:PATH, &zone=ZONE, "
    "&equal-parts=keep"
)
_OPTIONS: Final = ("ddl", "identity", "zone", "equal-parts")
_IDENTITY: Final = re.compile(
    r"(?:uuid:[0-9a-f-]{36}|keeper:/.+|(?:server|host|directory|name):.+)\Z"
)
# What separates; everything else stands for itself.
_LITERAL: Final = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) not in "%?&")


@dataclass(frozen=True, slots=True)
class FrozenSettings:
    """Where part folders lie and the file with their CREATE TABLE statement.

    `identity` is that of the table, where the statement does not say it; `zone` the time zone of
    the server that wrote the parts ('' for this host's); `keep_equal_parts` says that two parts of
    the same content are two inserts of the same rows, and not one part that was copied.
    """

    directory: Path
    ddl_file: Path
    identity: str = ""
    zone: str = ""
    keep_equal_parts: bool = False


def is_parts(uri: str) -> bool:
    """Whether a source is named as frozen parts."""
    return uri.startswith(_SCHEME)


def parse_parts(uri: str) -> FrozenSettings:
    """Read `parts:DIR?ddl=FILE` and what may follow.

    Raises:
        UsageError: the directory or the file is missing, or an option cannot be read.
    """
    directory, _, tail = uri.removeprefix(_SCHEME).partition("?")
    if not is_parts(uri) or not directory:
        raise _malformed(uri, "it names no directory")
    options: dict[str, str] = {}
    for option in tail.split("&") if tail else ():
        name, _, value = option.partition("=")
        if name not in _OPTIONS or not value or name in options:
            raise _malformed(uri, f"{option!r} is no option that it takes, or is there twice")
        options[name] = unquote(value, errors="surrogateescape")
    if "ddl" not in options:
        why = "it does not say which file has the CREATE TABLE statement of the parts"
        raise _malformed(uri, why)
    identity = options.get("identity", "")
    if identity and not _IDENTITY.match(identity):
        why = f"the identity {identity!r} is none of uuid:UUID, keeper:/PATH and name:TEXT"
        raise _malformed(uri, why)
    if options.get("equal-parts", "keep") != "keep":
        raise _malformed(uri, f"equal-parts is {options['equal-parts']!r} and can only be keep")
    return FrozenSettings(
        Path(unquote(directory, errors="surrogateescape")),
        Path(options["ddl"]),
        identity,
        options.get("zone", ""),
        "equal-parts" in options,
    )


def render_parts(settings: FrozenSettings) -> str:
    """Return the text that `parse_parts` reads."""
    options = (
        ("ddl", str(settings.ddl_file)),
        ("identity", settings.identity),
        ("zone", settings.zone),
        ("equal-parts", "keep" if settings.keep_equal_parts else ""),
    )
    told = "&".join(f"{name}={_quoted(value)}" for name, value in options if value)
    return f"{_SCHEME}{_quoted(str(settings.directory))}?{told}"


def _quoted(text: str) -> str:
    return quote(text, safe=_LITERAL, errors="surrogateescape")


def _malformed(uri: str, why: str) -> UsageError:
    return UsageError(f"Cannot read the source {uri!r}: {why}. Write {_FORM}.")
