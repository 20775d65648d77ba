r"""When an answer of a server is complete, and what it says when it is an error.

ClickHouse sends the status before it has the rows, so an error can come after HTTP 200. How, from
18.16 to 26.9 (what stands in <> is replaced, everything else is literal):

1. Nothing was sent yet: status 4xx or 5xx, the text in the body, its number there and, but for old
   servers, in the header X-ClickHouse-Exception-Code. With wait_end_of_query it is always so.
2. Headers were sent early: status 200, that header all the same, the text in the body.
3. From 25.11: the header X-ClickHouse-Exception-Tag of every answer holds a random tag; an error
   ends the body with `\r\n__exception__\r\n<tag>\r\n<text>\n<length> <tag>\r\n__exception__\r\n`
   and the last chunk of HTTP is missing.
4. From 24.11 to 25.10: `\r\n__exception__\r\n<text>`, and the last chunk of HTTP is missing.
5. Before: the text alone, appended to the rows, and HTTP ends as if all were well.

The rule. An answer without a length and without chunks is refused, one that ends before its length,
its last chunk or the end of its compression is an error: that covers 3 and 4, whatever the text is,
and every proxy that cuts. A tag of the answer's own header is never data: an error, too. A text as
in 5 can be data as well (a column may hold it), so it is never judged here: it is *kept*, and
whoever reads the format says whether the format ended where the answer did, with all rows that
were planned. Only when it did not is the kept text the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.server.settings import Host, ServerSettings
from tableformat.clickhouse_codes import (
    ACCESS_DENIED,
    AUTHENTICATION_FAILED,
    REQUIRED_PASSWORD,
    UNKNOWN_FUNCTION,
    UNKNOWN_IDENTIFIER,
    UNKNOWN_TABLE,
    UNKNOWN_USER,
    WRONG_PASSWORD,
)
from tableformat.errors import SourceError, SourceGoneError

__all__ = [
    "HELD_BYTES",
    "LOGIN_REFUSED",
    "NOT_SHOWN",
    "error_of_answer",
    "may_be_complete",
    "refused",
    "tagged_error",
    "untagged_error",
    "wrong_length",
]

HELD_BYTES: Final = 65_536
"""The end of a body in which an error is looked for: texts are up to 16 KiB, or a little more."""
NOT_SHOWN: Final = (ACCESS_DENIED, UNKNOWN_TABLE, UNKNOWN_IDENTIFIER, UNKNOWN_FUNCTION)
"""Codes of a question about the server that its user may not ask, or that came with newer ones."""
LOGIN_REFUSED: Final = (
    UNKNOWN_USER,
    WRONG_PASSWORD,
    REQUIRED_PASSWORD,
    AUTHENTICATION_FAILED,
)
"""Codes by which a server takes no query of this user at all."""
_OK: Final = 200
_SHUTS_DOWN: Final = re.compile(r"Server shutdown is called|[Ss]erver is shutting down")
_CODE: Final = "X-ClickHouse-Exception-Code"
_MARK: Final = b"__exception__\r\n"
# Keeper's errors have a class of their own.
_TEXT: Final = re.compile(
    rb"Code: \d+(?:, e\.displayText\(\) =|\.) (?:DB|Coordination)::Exception: "
)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SHOWN: Final = 200
_PLACE: Final = re.compile(r"(?P<scheme>[a-z]+://)(?:[^/?#]*@)?(?P<host>[^/?#@]+)")


def refused(settings: ServerSettings, host: Host, text: str, code: int | None) -> SourceError:
    """Return what ClickHouse says in an error's text, with the number that a header gives."""
    said = settings.credentials.masked(text)
    if code is not None and "Code: " not in said:
        said = f"Code: {code}. DB::Exception: {said}"
    error = ClickHouseError(said, place=f"ClickHouse at {host.url}")
    if error.code in LOGIN_REFUSED:
        message = (
            f"Cannot log in to ClickHouse at {host.url} as {settings.credentials.shown}: "
            f"{error.reason}. Check {settings.credentials.to_check}."
        )
        return SourceError(message, code=error.code)
    if _SHUTS_DOWN.search(error.reason):
        return SourceGoneError(error.message, code=error.code)
    return error


def may_be_complete(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether a head is that of an answer of ClickHouse that may be complete."""
    return _is_ours(headers) and status == _OK and not headers.get(_CODE)


def error_of_answer(
    settings: ServerSettings, host: Host, status: int, headers: Mapping[str, str], body: bytes
) -> SourceError:
    """Return the error that an answer is, by its head and its body, or the beginning of it."""
    code = headers.get(_CODE, "")
    text = body.decode("utf-8", "replace")
    if _TEXT.search(body) or (code and _is_ours(headers)):
        return refused(settings, host, text, int(code) if code.isdigit() else None)
    location = headers.get("Location")
    if location is not None:
        # Only where to: the rest of a place elsewhere may be anything.
        place = _PLACE.match(location)
        where = f" to {place['scheme']}{place['host']}" if place else ""
        message = (
            f"Cannot read from ClickHouse at {host.url}: it redirects{where} (HTTP {status}). Name "
            "the server itself in --source."
        )
        return SourceError(message)
    kind = headers.get("Content-Type", "no type").partition(";")[0]
    said = " ".join(re.sub(r"<[^>]*>", " ", settings.credentials.masked(text)).split())[:_SHOWN]
    what = "an answer without ClickHouse's headers" if status == _OK else "an error of its own"
    message = (
        f"Cannot read from ClickHouse at {host.url}: something else answered, HTTP {status}, "
        f"{kind}, {what}{f': {said!r}' if said else ''}. Check host and port, and proxies on the "
        "way."
    )
    return SourceError(message)


def _is_ours(headers: Mapping[str, str]) -> bool:
    return any(name.lower().startswith("x-clickhouse-") for name in headers)


def wrong_length(headers: Mapping[str, str]) -> bool:
    """Tell whether an answer's head gives no way to see its end."""
    chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    return not chunked and not headers.get("Content-Length", "").isdigit()


def tagged_error(held: bytes, tag: str) -> str | None:
    """Return the text of an error with the answer's own tag (row 3), from the end of the body."""
    if not tag:
        return None
    own = tag.encode()
    begin = held.rfind(_MARK + own + b"\r\n")
    end = re.search(rb"\n?\d+ " + re.escape(own) + rb"\r\n" + _MARK + rb"\Z", held)
    if begin < 0 and end is None:
        return None
    start = begin + len(_MARK) + len(own) + 2 if begin >= 0 else 0
    return held[start : end.start() if end else len(held)].decode("utf-8", "replace").strip()


def untagged_error(held: bytes) -> str | None:
    """Return the text of an error (rows 3 to 5) that the end of a body may be."""
    for found in reversed(tuple(_TEXT.finditer(held))):
        text = held[found.start() :]
        if not _BINARY.search(text):
            return text.decode("utf-8", "replace").strip()
    return None
