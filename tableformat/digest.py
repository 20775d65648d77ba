"""Defines the digest of rows, which is independent of their order and of their files.

A digest has the number of rows, and for each column the NULLs, the least and greatest value and a
checksum. A checksum over whole rows detects values that are exchanged between rows.
docs/spec/digest.md defines all figures byte by byte; `mergetree/digest_sql.py` computes them.

This module adds the digests of several files, lists the differences of two digests, and renders
and parses the stored form: one JSON object; readers refuse a `format_version` that they do not
know.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from tableformat.errors import DestinationError, InternalError

__all__ = [
    "DIGEST_FORMAT",
    "Bound",
    "ColumnDigest",
    "Difference",
    "Digest",
    "KeptDigest",
    "joined",
    "shown",
]

DIGEST_FORMAT: Final = 1
_MODULUS: Final = 1 << 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Bound = int | float | bytes
"""A least or greatest value: numbers, days and microseconds as integers, text as bytes."""


@dataclass(frozen=True, slots=True)
class ColumnDigest:
    """The figures of one column.

    `type` is the canonical type as ClickHouse writes it. `nulls` counts the NULLs in the column, at
    any depth. `least` and `greatest` are None if there is no value, and for arrays, tuples and
    maps; of texts they are the first 64 bytes. `checksum` is below 2 ** 64.
    """

    name: str
    type: str
    nulls: int
    least: Bound | None
    greatest: Bound | None
    checksum: int

    def __add__(self, other: ColumnDigest) -> ColumnDigest:
        """Return the figures of all values of both."""
        return replace(
            self,
            nulls=self.nulls + other.nulls,
            least=_chosen(min, self.least, other.least),
            greatest=_chosen(max, self.greatest, other.greatest),
            checksum=(self.checksum + other.checksum) % _MODULUS,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that differs, of a column or of the rows (`column` is '')."""

    column: str
    figure: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the difference as a message shows it."""
        where = f"column {self.column}: {self.figure}" if self.column else self.figure
        return f"{where} {self.expected} in the source, {self.found} in the lake"


@dataclass(frozen=True, slots=True)
class Digest:
    """The figures of rows; `columns` are in the order of their names, as in the hash of a row."""

    rows: int
    checksum: int
    columns: tuple[ColumnDigest, ...]

    def __add__(self, other: Digest) -> Digest:
        """Return the digest of the rows of both.

        Raises:
            InternalError: the two have different columns.
        """
        if [(c.name, c.type) for c in self.columns] != [(c.name, c.type) for c in other.columns]:
            message = (
                "Two digests of other columns were put together; this is a bug, please report it."
            )
            raise InternalError(message)
        return Digest(
            self.rows + other.rows,
            (self.checksum + other.checksum) % _MODULUS,
            tuple(a + b for a, b in zip(self.columns, other.columns, strict=True)),
        )

    def differences(self, found: Digest) -> tuple[Difference, ...]:
        """Return every figure in which `found` differs from this digest, none if they are equal."""
        rows = [("rows", f"{self.rows:,}", f"{found.rows:,}")]
        theirs = {c.name: c for c in found.columns}
        ours = {c.name: c for c in self.columns}
        different = [Difference("", *r) for r in rows if r[1] != r[2]]
        for column in self.columns:
            if column.name in theirs:
                different.extend(_column_differences(column, theirs[column.name]))
            else:
                different.append(Difference(column.name, "it", "is", "is not"))
        different.extend(
            Difference(c.name, "it", "is not", "is") for c in found.columns if c.name not in ours
        )
        if not different and self.checksum != found.checksum:
            # Each column has the same values, so some of them are in other rows.
            both = (_hex(self.checksum), _hex(found.checksum))
            different.append(Difference("", "values are exchanged between rows: checksum", *both))
        return tuple(different)

    def without(self, names: frozenset[str], *, checksum: int) -> Digest:
        """Return the digest without these columns; `checksum` is that of the shorter rows."""
        columns = tuple(c for c in self.columns if c.name not in names)
        return Digest(self.rows, checksum, columns)


def joined(rows: int, checksum: int, batches: Sequence[Digest]) -> Digest:
    """Return one digest from batches of columns of the same rows.

    Raises:
        InternalError: a batch has another number of rows.
    """
    if any(one.rows != rows for one in batches):
        message = (
            f"Digests of the columns of {rows} rows are of {[one.rows for one in batches]} rows; "
            "this is a bug, please report it."
        )
        raise InternalError(message)
    return Digest(rows, checksum, tuple(column for one in batches for column in one.columns))


@dataclass(frozen=True, slots=True)
class KeptDigest:
    """The digest of a partition snapshot, as it is stored with the export's receipts.

    `taken` is milliseconds since 1970.
    """

    table: str
    partition_id: str
    transaction_id: str
    taken: int
    digest: Digest

    @property
    def time(self) -> str:
        """When the digest was computed, as a message shows it."""
        return f"{_EPOCH + timedelta(milliseconds=self.taken):%Y-%m-%d %H:%M:%S} UTC"

    def to_json(self) -> str:
        """Return the stored form."""
        head = asdict(self)
        digest = head.pop("digest")
        columns = [
            {
                **asdict(c),
                "least": _stored(c.least),
                "greatest": _stored(c.greatest),
                "checksum": _hex(c.checksum),
            }
            for c in self.digest.columns
        ]
        body = {"rows": digest["rows"], "checksum": _hex(self.digest.checksum), "columns": columns}
        return json.dumps({"format_version": DIGEST_FORMAT, **head, **body}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> KeptDigest:
        """Parse the stored form.

        Raises:
            DestinationError: the text is not a digest, or of a newer format.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw.pop("format_version")
            if version != DIGEST_FORMAT:
                message = (
                    f"Cannot read a digest of format {version}: this release reads "
                    f"{DIGEST_FORMAT}. Use the release that wrote it, or a newer one."
                )
                raise DestinationError(message)
            columns = tuple(_column(c) for c in raw.pop("columns"))
            digest = Digest(raw.pop("rows"), int(raw.pop("checksum"), 16), columns)
            return cls(**raw, digest=digest)
        except (ValueError, KeyError, TypeError) as error:
            message = (
                f"Cannot read a digest: {error}. The object is damaged; remove it to compare "
                "without it."
            )
            raise DestinationError(message) from error


def shown(bound: Bound | None, of: str) -> str:
    """Return a least or greatest value as a message shows it; `of` is the canonical type."""
    if bound is None:
        return "none"
    if isinstance(bound, bytes):
        return repr(bound.decode()) if of == "String" and _is_text(bound) else f"0x{bound.hex()}"
    if isinstance(bound, float):
        return repr(bound)
    if of.startswith("Decimal("):
        scale = int(of.rstrip(")").rpartition(" ")[2])
        # From its digits: decimal arithmetic would round to the precision of the context.
        return f"{Decimal((int(bound < 0), _digits(bound), -scale)):f}"
    if of == "Bool":
        return "true" if bound else "false"
    return _calendar(bound, of) if of.startswith("Date") else str(bound)


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


def _calendar(bound: int, of: str) -> str:
    """Return a day or an instant, as a number if it is outside Python's calendar."""
    try:
        if of == "Date32":
            return date.fromordinal(_EPOCH.toordinal() + bound).isoformat()
        at = _EPOCH + timedelta(microseconds=bound)
    except (OverflowError, ValueError):
        return f"{bound} {'days' if of == 'Date32' else 'microseconds'} since 1970"
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _column_differences(expected: ColumnDigest, found: ColumnDigest) -> list[Difference]:
    of = expected.type
    if of != found.type:
        return [Difference(expected.name, "type", of, found.type)]
    figures = [
        Difference(expected.name, "NULLs", f"{expected.nulls:,}", f"{found.nulls:,}"),
        Difference(expected.name, "least", shown(expected.least, of), shown(found.least, of)),
        Difference(
            expected.name, "greatest", shown(expected.greatest, of), shown(found.greatest, of)
        ),
        Difference(expected.name, "checksum", _hex(expected.checksum), _hex(found.checksum)),
    ]
    pairs = (
        (expected.nulls, found.nulls),
        (expected.least, found.least),
        (expected.greatest, found.greatest),
        (expected.checksum, found.checksum),
    )
    return [figure for figure, (one, other) in zip(figures, pairs, strict=True) if one != other]


def _chosen(choose: Any, one: Bound | None, other: Bound | None) -> Bound | None:
    there = [bound for bound in (one, other) if bound is not None]
    chosen: Bound | None = choose(there) if there else None
    return chosen


def _column(raw: dict[str, Any]) -> ColumnDigest:
    bounds = {name: _restored(raw[name], raw["type"]) for name in ("least", "greatest")}
    return ColumnDigest(**{**raw, **bounds, "checksum": int(raw["checksum"], 16)})


def _stored(bound: Bound | None) -> str | None:
    if bound is None:
        return None
    return bound.hex() if isinstance(bound, bytes) else repr(bound)


def _restored(text: str | None, of: str) -> Bound | None:
    if text is None:
        return None
    if of == "Float64":
        return float(text)
    return bytes.fromhex(text) if of == "String" or of.startswith("FixedString") else int(text)


def _is_text(value: bytes) -> bool:
    return value.decode("utf-8", "replace").encode() == value and value.decode().isprintable()


def _hex(checksum: int) -> str:
    return f"{checksum:016x}"
