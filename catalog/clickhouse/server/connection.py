"""Implements `catalog.clickhouse.connection.Connection` for a server, by FORMAT JSONCompact.

Every version has that format, and its document has an end and the number of its rows. It replaces
bytes that are not UTF-8 by U+FFFD. If a response has that character, the query is sent again as
JSONCompactEachRow, which returns bytes unchanged; only the oldest version lacks it.

Of the settings that make a statement mean the same for every user (`PLAIN_SETTINGS`) only those are
sent that the server has with another value, so a user who may not change settings can still read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from catalog.clickhouse.connection import (
    ClickHouseError,
    Row,
    changed_settings,
    current_settings,
    large_query_settings,
)
from catalog.clickhouse.server.client import ServerClient, Settings, refused, untagged_error
from catalog.clickhouse.server.settings import Host
from catalog.processes import Closing
from tableformat.clickhouse_codes import READONLY, SETTING_CONSTRAINT_VIOLATION, UNKNOWN_FORMAT
from tableformat.errors import SourceError

__all__ = ["ServerConnection"]

_DECIMALS: Final = "output_format_json_quote_decimals"
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}".encode()
_BYTES_FORMAT: Final = "JSONCompactEachRow"
_SETTING_REFUSED: Final = (READONLY, SETTING_CONSTRAINT_VIOLATION)
"""The user is read-only, or a setting has bounds for the user."""


class ServerConnection(Closing):
    """A connection to one server. A context manager that closes it."""

    def __init__(self, client: ServerClient) -> None:
        """Keep a client, which `close` closes; nothing is sent yet."""
        self._client = client
        self._settings: Settings | None = None
        self._quotes_decimals = False

    @property
    def client(self) -> ServerClient:
        """The client of the server."""
        return self._client

    @property
    def host(self) -> Host:
        """The server."""
        return self._client.host

    @property
    def address(self) -> str:
        """The address for tasks, without a secret."""
        return self.host.url

    @property
    def staging_database(self) -> str:
        """The database for staging tables."""
        return self._client.settings.staging_database

    @property
    def settings(self) -> Settings:
        """The settings with which a statement means the same for every user.

        Raises:
            SourceError: the server cannot be read.
        """
        if self._settings is None:
            current = current_settings(lambda sql: self._query(sql, ()), f"at {self.host.url}")
            self._settings = changed_settings(current)
            self._quotes_decimals = _DECIMALS in current
        return self._settings

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query, which has no FORMAT clause.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: the response is missing or incomplete.
        """
        return self._query(sql, self.settings)

    def command(self, sql: str) -> None:
        """Run a statement without a result; it is sent once and never retried.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the response is missing or incomplete; the statement may have been
                executed.
        """
        body = self._sent(sql, self.settings)
        text = untagged_error(body)
        if text is not None:
            raise refused(self._client.settings, self.host, text, None)

    def close(self) -> None:
        """Close the connections; closing again does nothing."""
        self._client.close()

    def _query(self, sql: str, settings: Settings) -> tuple[Row, ...]:
        body = self._sent(f"{sql}\nFORMAT JSONCompact", settings, repeat=True)
        document = self._document(body)
        numbers = self._decimals(document["meta"])
        if _REPLACED in body:
            return self._as_bytes(sql, settings, len(document["meta"]), numbers)
        as_text = _as_text(body.decode())["data"] if numbers else ()
        return _rows(document["data"], as_text, numbers)

    def _decimals(self, meta: Iterable[Mapping[str, str]]) -> frozenset[int]:
        """Return the positions of decimals that the server writes as numbers."""
        if self._quotes_decimals:
            return frozenset()
        return frozenset(at for at, column in enumerate(meta) if "Decimal" in column["type"])

    def _sent(self, sql: str, settings: Settings, *, repeat: bool = False) -> bytes:
        try:
            return self._client.query(sql, settings=settings, repeat=repeat)
        except ClickHouseError as error:
            settings = (*settings, *large_query_settings(sql))
            forbidden = [one for one in settings if one[0] in error.reason]
            if error.code not in _SETTING_REFUSED or not forbidden:
                raise
            # A read-only user may change no setting, and ClickHouse names only the first.
            wanted = settings if error.code == READONLY else forbidden
            named = ", ".join(f"{name} = '{value}'" for name, value in wanted)
            message = (
                f"Cannot read from ClickHouse at {self.host.url} as "
                f"{self._client.settings.credentials.shown}: {error.reason}. Let the user change "
                f"settings (readonly = 0 or 2), or set {named} in the user's profile."
            )
            raise SourceError(message, code=error.code) from error

    def _document(self, body: bytes) -> Mapping[str, Any]:
        """Parse a document of JSONCompact, and check that it is complete."""
        try:
            read = json.loads(body.decode())
            meta, data, count = read["meta"], read["data"], read["rows"]
            whole = len(data) == count and all(len(row) == len(meta) for row in data)
        except (ValueError, TypeError, KeyError) as error:
            raise self._broken(body, "is no JSON document") from error
        if "exception" in read:
            raise refused(self._client.settings, self.host, str(read["exception"]), None)
        if not whole:
            raise self._broken(body, f"states {count} rows and has {len(data)}")
        document: Mapping[str, Any] = read
        return document

    def _as_bytes(
        self, sql: str, settings: Settings, columns: int, numbers: frozenset[int]
    ) -> tuple[Row, ...]:
        """Send the query again in the format that returns bytes unchanged."""
        try:
            body = self._sent(f"{sql}\nFORMAT {_BYTES_FORMAT}", settings, repeat=True)
        except SourceError as error:
            if error.code != UNKNOWN_FORMAT:
                raise
            message = (
                f"Cannot read from ClickHouse at {self.host.url}: a text in a response is not "
                "UTF-8, or has the character U+FFFD, and this version returns such a text damaged. "
                "Use a newer version, or the frozen parts."
            )
            raise SourceError(message) from error
        # Surrogates keep bytes that are not UTF-8, as in every connection.
        lines = body.decode("utf-8", "surrogateescape").split("\n")
        if lines.pop():
            raise self._broken(body, "ends within a line")
        try:
            rows = [list(json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise self._broken(body, "has a line that is no JSON") from error
        if any(len(row) != columns for row in rows):
            raise self._broken(body, "has a row of another length")
        return _rows(rows, [_as_text(line) for line in lines] if numbers else (), numbers)

    def _broken(self, body: bytes, how: str) -> SourceError:
        text = untagged_error(body)
        if text is not None:
            return refused(self._client.settings, self.host, text, None)
        what = f"of {len(body)} bytes {how}" if body else "is empty, but rows were requested"
        return SourceError(
            f"Cannot read from ClickHouse at {self.host.url}: its response {what}. Check proxies "
            "in between, and run again."
        )


def _rows(
    read: Sequence[Sequence[object]], as_text: Sequence[Sequence[object]], numbers: Collection[int]
) -> tuple[Row, ...]:
    """Return rows in which some columns keep their text, because a float would lose digits.

    Args:
        read: the rows, with numbers as Python parses them.
        as_text: the same rows, with numbers as text; empty if no column needs them.
        numbers: the positions of these columns.
    """
    if not numbers:
        return tuple(tuple(row) for row in read)
    return tuple(
        tuple(text[at] if at in numbers else value for at, value in enumerate(row))
        for row, text in zip(read, as_text, strict=True)
    )


def _as_text(document: str) -> Any:
    return json.loads(document, parse_float=str, parse_int=str)
