"""Where a Parquet file keeps the ids of Iceberg's fields, as Arrow shows them.

The name is Arrow's (its Parquet reader and writer, `PARQUET:field_id`). PyIceberg has it as well,
in a module whose import takes a quarter of a second, in every process of Spark's workers.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FIELD_ID_KEY"]

FIELD_ID_KEY: Final = b"PARQUET:field_id"
