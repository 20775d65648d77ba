"""Defines the receipt: a task's record of one finished data file.

The task returns the receipt, and also stores it in the table's location (docs/spec/files.md). The
stored form is one JSON object; readers refuse a `format_version` that they do not know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tableformat.errors import LedgerError
from tableformat.names import members

__all__ = ["RECEIPT_FORMAT", "ColumnStatistics", "PartRange", "Receipt"]

RECEIPT_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class PartRange:
    """A part, or its rows with `start <= _part_offset < stop`.

    `name` is the part's name in the snapshot, `source_name` its name in the source. `rows` includes
    rows that a lightweight delete hides. `path` is the part's directory.
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
    """The statistics of one leaf column, by field id.

    `lower` and `upper` are Iceberg's binary single-value form in hex. An unknown count or bound is
    None. `size` is in bytes; the manifest entry of a copied file may lack it.
    """

    field_id: int
    size: int | None
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: str | None = None
    upper: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """One finished file, with exactly the rows of one slice; a run resumes by whole files.

    * `partition`: the Iceberg partition values in the order of the spec's fields, each as the text
      of its JSON single-value form, None for null.
    * `rows_expected`: the rows of the slice by plan, None if a range has lightweight deletes.
    * `seconds`: the wall time of the task until this file was finished.
    * `peak_memory`: the worker's peak resident memory in bytes.
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
        return json.dumps(self, default=members, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Parse the stored form.

        Raises:
            LedgerError: the text is not a receipt, or of a newer format.
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
                f"Cannot read a receipt: {error}. The object is damaged; its file is not used."
            )
            raise LedgerError(message) from error
