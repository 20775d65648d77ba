"""Lists the options of an export for all interfaces: CALL, Python, SQL settings and command line.

CALL and Python use an option's name, statements use ClickHouse's setting, and the command line uses
a flag. Names, defaults, bounds and comments are changed here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Final

from tableformat.export.cleanup import ABANDONED_TTL
from tableformat.export.job import MOST_PARTITIONS
from tableformat.export.request import MAX_SLICES
from tableformat.export.writers import MAX_RETRIES
from tableformat.ledger import MANIFEST_TTL

__all__ = ["EXPORT_OPTIONS", "ExportOption", "OptionType"]


class OptionType(Enum):
    """The type of an option's value; the value is its name in Spark's DDL."""

    FLAG = "BOOLEAN"
    NUMBER = "INT"
    BYTES = "BIGINT"
    TEXT = "STRING"
    PAIRS = "MAP<STRING, STRING>"


@dataclass(frozen=True, slots=True)
class ExportOption:
    """One option of an export.

    * `default`: None if the session, the file format or the lake table has the default.
    * `setting`: ClickHouse's name, '' for none. `in_setting`: the default of the setting if it
      differs.
    * `least`, `most`: the bounds of a number.
    * `flag_name`: the name on the command line if it differs, '' if the command line has no such
      option.
    """

    name: str
    type: OptionType
    comment: str
    _: KW_ONLY
    default: bool | int | None = None
    setting: str = ""
    in_setting: int | str | None = None
    least: int = 0
    most: int | None = None
    flag_name: str | None = None

    @property
    def flag(self) -> str:
        """The option of the command line, '' for none."""
        name = self.name.replace("_", "-") if self.flag_name is None else self.flag_name
        return f"--{name}" if name else ""


_FLAG, _NUMBER, _BYTES, _TEXT, _PAIRS = OptionType
_PART: Final = "export_merge_tree_part"
_PARTITION: Final = "export_merge_tree_partition"
_ALL: Final = (
    ExportOption(
        "commit_every",
        _NUMBER,
        "most partitions of a snapshot",
        default=MOST_PARTITIONS,
        least=1,
        most=MOST_PARTITIONS,
    ),
    ExportOption(
        "force",
        _FLAG,
        "export again, and replace, also with fewer rows",
        default=False,
        setting=f"{_PARTITION}_force_export",
    ),
    ExportOption(
        "manifest_ttl",
        _NUMBER,
        "seconds until it may be exported again; 0 never",
        default=MANIFEST_TTL,
        setting=f"{_PARTITION}_manifest_ttl",
    ),
    ExportOption(
        "abandoned_ttl",
        _NUMBER,
        "seconds after which an interrupted export is given up; 0 never",
        default=ABANDONED_TTL,
        setting=f"{_PARTITION}_abandoned_ttl",
    ),
    ExportOption(
        "allow_empty",
        _FLAG,
        "with force: also when no rows are left",
        default=False,
        setting="allow_replace_partition_from_empty_source",
    ),
    ExportOption(
        "overwrite_file_if_exists",
        _FLAG,
        "continue although there are files of other writers",
        default=False,
        setting=f"{_PART}_overwrite_file_if_exists",
    ),
    ExportOption(
        "replace_partition",
        _FLAG,
        "with force: also replace files of others",
        default=False,
        setting=f"{_PARTITION}_replace_partition",
    ),
    ExportOption(
        "same_table", _FLAG, "the same table after its Keeper was restored", default=False
    ),
    ExportOption("same_as", _TEXT, "the identity that it was exported under before"),
    ExportOption("verify", _FLAG, "compare with the source after the commit", default=False),
    ExportOption(
        "check_rows",
        _FLAG,
        "compare the rows where only parts are known to differ, and write none that are equal",
        default=False,
        setting=f"{_PARTITION}_check_rows",
    ),
    ExportOption(
        "strict",
        _FLAG,
        "refuse other kinds of values, columns, and orders",
        default=False,
        setting=f"{_PARTITION}_strict",
    ),
    ExportOption(
        "evolve_schema",
        _FLAG,
        "add columns that the lake table lacks, widen its types",
        default=False,
    ),
    ExportOption(
        "backfill",
        _FLAG,
        "also partitions that lack values of columns which the source got later",
        default=False,
    ),
    ExportOption("convert", _PAIRS, "column to conversion"),
    ExportOption("partition_spec", _TEXT, "of a new table; NULL to derive it"),
    ExportOption(
        "hive_columns",
        _PAIRS,
        "of hive.`uri`: directory to the member of the partition key that it is of",
        setting=f"{_PARTITION}_hive_columns",
        in_setting="",
        flag_name="hive-column",
    ),
    ExportOption(
        "max_bytes_per_file",
        _BYTES,
        "bytes of a data file; NULL for 512 MiB",
        setting=f"{_PART}_max_bytes_per_file",
        in_setting=0,
        least=1,
        flag_name="target-file-size",
    ),
    ExportOption(
        "max_retries",
        _NUMBER,
        "how often a file is tried again",
        default=MAX_RETRIES,
        setting=f"{_PARTITION}_max_retries",
    ),
    ExportOption(
        "max_bandwidth",
        _BYTES,
        "bytes per second of all tasks, 0 for no limit; NULL for the session's setting",
        setting="max_exports_bandwidth_for_server",
        in_setting=0,
    ),
    ExportOption(
        "max_slices",
        _NUMBER,
        "files that are written at a time; NULL for the session's setting",
        setting="background_move_pool_size",
        in_setting=MAX_SLICES,
        least=1,
    ),
    ExportOption(
        "parallel_formatting",
        _FLAG,
        "false: one file at a time, read before it is written; NULL for the session's setting",
        setting="output_format_parallel_formatting",
        in_setting=1,
        flag_name="no-parallel-formatting",
    ),
    ExportOption("cluster", _TEXT, "the source is a table of every shard of this cluster"),
    ExportOption(
        "wait",
        _FLAG,
        "false: return when it has begun, with transaction ids",
        default=True,
        setting=f"{_PARTITION}_wait",
        flag_name="",
    ),
    ExportOption("dry_run", _FLAG, "only report what would be done", default=False),
)
EXPORT_OPTIONS: Final[Mapping[str, ExportOption]] = {one.name: one for one in _ALL}
"""The options by name, in the order of every interface."""
