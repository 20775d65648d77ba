"""A receipt: what one task says about one finished file.

It is returned and also stored beside the table. Text form: one JSON object, `format_version` first;
readers refuse a newer one by name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from tableformat.errors import LedgerError

__all__ = ["RECEIPT_FORMAT", "ColumnStatistics", "PartRange", "Receipt"]

RECEIPT_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class PartRange:
    """A part, or the rows `start <= _part_offset < stop` of it.

    `name` is the frozen name, `source_name` the name in the source; `rows` counts
    lightweight-deleted rows too; `path` is the part's directory.
    """

    name: str
    source_name: str
    path: str
    rows: int
    hash_of_all_files: str
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one leaf column by field id; bounds are Iceberg's single-value bytes, in hex.

    A count or bound that is not known is None.
    """

    field_id: int
    size: int
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: str | None = None
    upper: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """One finished file: exactly the rows of one slice, so that the file is the unit of resume.

    `partition` holds the Iceberg partition values as the text of their JSON single-value form (None
    for null), in the order of the spec's fields; `rows_expected` is what the plan promised (None
    when lightweight deletes inside a range leave it open); `seconds` is wall time of the task until
    this file was finished, `peak_memory` the worker's peak resident bytes.
    """

    key: str
    transaction_id: str
    epoch: int
    slice_number: int
    attempt: str
    ranges: tuple[PartRange, ...]
    file_path: str
    file_bytes: int
    sha256: str
    rows: int
    rows_expected: int | None
    partition: tuple[str | None, ...]
    spec_id: int
    sort_order_id: int | None
    split_offsets: tuple[int, ...]
    columns: tuple[ColumnStatistics, ...]
    seconds: float
    peak_memory: int
    format_version: int = RECEIPT_FORMAT

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Read the stored form.

        Raises:
            LedgerError: it is not a receipt, or of a newer format.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw["format_version"]
            if version != RECEIPT_FORMAT:
                message = (
                    f"Cannot read a receipt of format {version}: this release reads "
                    f"{RECEIPT_FORMAT}. Use the release that wrote it, or a newer one."
                )
                raise LedgerError(message)
            raw["ranges"] = tuple(PartRange(**r) for r in raw["ranges"])
            raw["columns"] = tuple(ColumnStatistics(**c) for c in raw["columns"])
            for name in ("partition", "split_offsets"):
                raw[name] = tuple(raw[name])
            return cls(**raw)
        except (ValueError, KeyError, TypeError) as error:
            message = (
                f"Cannot read a receipt: {error}. The object is damaged; the file it spoke of is "
                "not used."
            )
            raise LedgerError(message) from error
