"""Why a reader's result differs from ClickHouse's, in a user's words, with the way round.

Each recorded result that differs belongs to exactly one of these, and each of these to at least one
result: a difference that nobody has explained makes the tests fail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["FAULTS", "REMARKS", "Fault", "explaining"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One surprise.

    Attributes:
        reader: its name.
        pattern: of `table: what was asked`, as they are recorded.
        what: one does.
        result: one gets.
        way_round: what one does instead.
    """

    reader: str
    pattern: str
    what: str
    result: str
    way_round: str

    def explains(self, reader: str, table: str, asked: str) -> bool:
        """Whether a recorded difference is this."""
        return reader == self.reader and bool(re.search(self.pattern, f"{table}: {asked}"))


_NAN: Final = r"everything: (null_float|float(32|64)) > "
_ABOVE: Final = "a filter `>` on a column with NaN"
_ZEROS: Final = r"everything: float\d+ = '-?0\.0'"

FAULTS: Final = (
    Fault("PyIceberg", r"everything: float32 .*inf'",
          "a filter of a `float` column against infinity", "rows are missing",
          "scan without the filter, or cast"),
    Fault("DuckDB", _NAN,
          "`WHERE f > 5` on a column with NaN, which DuckDB orders above all numbers",
          "rows with NaN come where a file is read, and are left out where its bounds rule it out: "
          "bounds and Parquet statistics leave NaN out, as the Iceberg specification says",
          "say what you mean: `AND NOT isnan(f)`, or `OR isnan(f)`"),
    Fault("DuckDB", r"times: .*(month|day)_datetime64",
          "a filter with `=` or `IN` on a timestamp column partitioned by `month` or `day`, for "
          "times before 1970", "rows are missing: it truncates toward zero",
          "filter on another column, or choose `year` or `hour`"),
    Fault("ClickHouse", r"times: .*(year|month|day|hour)_(date|datetime)",
          "a filter on a time or date column partitioned by `year`, `month`, `day` or `hour`, for "
          "times before 1970; `day` also from 2150 on", "rows are missing",
          "`SETTINGS use_iceberg_partition_pruning = 0`"),
    Fault("ClickHouse", r"(grown: (list|map|struct)|everything: (null_struct|variant))$",
          "NULL in a list, map or struct column",
          "`[]`, `{}`, a tuple of defaults: ClickHouse has no nullable arrays",
          "test with the column that tells"),
    Fault("Spark", _NAN, _ABOVE, "rows with NaN come, where a file is read: Spark orders NaN above "
          "all numbers", "`AND NOT isnan(f)`"),
    Fault("Polars", _NAN, _ABOVE, "rows with NaN come: Polars orders NaN above all numbers",
          "`& col.is_not_nan()`"),
    Fault("Daft", _NAN, _ABOVE, "rows with NaN come, where a file is read", "`& ~col.is_nan()`"),
    Fault("Daft", _ZEROS, "`= 0.0` on a column with -0.0, and the reverse",
          "the other zero is left out", "ask for both"),
    Fault("Daft", r"everything: float32 = '-?inf'",
          "a filter of a `float` column against infinity", "rows are missing",
          "filter what was read"),
    Fault("Daft", r"everything: .*fixed", "a filter on a `fixed` column", "an error",
          "filter what was read"),
    Fault("Daft", r"everything: .*uuid", "a filter with `=` or `IN` on a `uuid` column",
          "**rows are missing**", "cast the column to binary"),
    Fault("Daft", r"nested_uuid:", "a table with a UUID inside a list, map or struct",
          "an error, whatever column is read", "another reader"),
    Fault("Daft", r"texts: truncate_string = ",
          "a filter with `=` on a column partitioned by `truncate`, for texts beyond ASCII",
          "rows are missing", "partition by another transform"),
    Fault("Daft", r"times: .*hour_datetime64",
          "a filter with `=` or `IN` on a timestamp column partitioned by `hour`, for the last "
          "hour before 1970", "rows are missing", "partition by `day`"),
    Fault("Daft", r"grown: .*micros", "a filter on a timestamp column that was added later",
          "an error: files without the column have one of type Null", "filter what was read"),
    Fault("DataFusion", _NAN, _ABOVE,
          "rows with NaN come: DataFusion orders NaN above all numbers", "`AND NOT isnan(f)`"),
    Fault("DataFusion", _ZEROS, "`= 0.0` on a column with -0.0, and the reverse",
          "the other zero is left out", "ask for both"),
)  # fmt: skip

REMARKS: Final = (
    ("PyIceberg", "filter values outside the years 1 to 9999", "not possible",
     "scan without the filter"),
    ("Spark", "`= -0.0` on a column that has a dictionary in the file",
     "files that hold only 0.0 are left out, although -0.0 = 0.0 in Spark", "`= 0.0`"),
    ("Spark", "a session that has cached the table", "the old snapshot", "`REFRESH TABLE`"),
    ("Spark", "`collect()` of a map", "a dictionary, in an order of its own", "`map_entries`"),
    ("DataFusion", "a filter, through the table provider of PyIceberg's core",
     "every file of the table is read", "another reader for large tables"),
    ("Trino", "a table in local files", "an error: it has a scheme of its own for them, `local://`",
     "a lake in an object store"),
)  # fmt: skip
"""What is no wrong result, or is not asked: (reader, what, result, way round)."""


def explaining(reader: str, table: str, asked: str) -> list[Fault]:
    """Return what explains a recorded difference."""
    return [fault for fault in FAULTS if fault.explains(reader, table, asked)]
