"""Lists the options of an export for all interfaces: CALL, Python, SQL settings and command line.

CALL and Python use an option's name, statements use ClickHouse's setting, and the command line uses
a flag. Names, defaults, bounds, comments and helps are changed here only. The module imports
little, because the help of a command needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, StrEnum
from typing import Final

from tableformat.ledger import MANIFEST_TTL

__all__ = [
    "ABANDONED_TTL",
    "EXPORT_OPTIONS",
    "MAX_RETRIES",
    "MAX_SLICES",
    "MOST_PARTITIONS",
    "PROOF_SECONDS",
    "ExportOption",
    "LateRows",
    "OptionType",
]

ABANDONED_TTL: Final = 7 * 86_400
"""Seconds after which an interrupted export is given up, by default."""
MAX_RETRIES: Final = 3
"""ClickHouse's default of `export_merge_tree_partition_max_retries`."""
MAX_SLICES: Final = 8
"""ClickHouse's default of `background_move_pool_size`."""
MOST_PARTITIONS: Final = 100
"""The most partitions of a group: one ALTER in the source, one Spark job."""
PROOF_SECONDS: Final = 60.0
"""Seconds that a cancellation waits for the proof that nothing of an export can land."""


class LateRows(StrEnum):
    """What an export does with rows that arrive in a partition after it was archived."""

    REFUSE = "refuse"
    APPEND = "append"
    """They are exported as an increment, next to the archived rows (decision 0023)."""
    APPEND_ALL = "append-all"
    """Also if parts of the source may have archived rows, according to the user none has."""
    TABLE = "table"
    """What the lake table's property says (`iceberg.properties.appends_late_rows`)."""

    @property
    def appends(self) -> bool:
        """Whether late rows are added to the lake."""
        return self in (LateRows.APPEND, LateRows.APPEND_ALL)


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

    * `comment`: the description in CALL. `help`: the description on the command line.
    * `default`: None if the session, the file format or the lake table has the default.
    * `choices`: the values of a text that has no others.
    * `setting`: ClickHouse's name, '' for none.
    * `in_setting`, `in_command`: the default of the setting and of the command line if it differs.
    * `least`, `most`: the bounds of a number.
    * `flag_name`: the name on the command line if it differs. `metavar`: the name of its value.
    * `variable`: the environment variable that gives it, None for none.
    """

    name: str
    type: OptionType
    comment: str
    help: str
    _: KW_ONLY
    default: bool | int | None = None
    choices: tuple[str, ...] = ()
    setting: str = ""
    in_setting: int | str | None = None
    in_command: int | str | None = None
    least: int = 0
    most: int | None = None
    flag_name: str = ""
    metavar: str | None = None
    variable: str | None = None

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return f"--{self.flag_name or self.name.replace('_', '-')}"

    @property
    def is_negated(self) -> bool:
        """Whether the option of the command line sets a flag to false."""
        return self.flag.startswith("--no-")


_FLAG, _NUMBER, _BYTES, _TEXT, _PAIRS = OptionType
_PART: Final = "export_merge_tree_part"
_PARTITION: Final = "export_merge_tree_partition"
_ALL: Final = (
    ExportOption(
        "commit_every",
        _NUMBER,
        "most partitions of a snapshot",
        "With --all: at most this many partitions become visible in one snapshot. Finished "
        "partitions become visible after a minute in any case.",
        default=MOST_PARTITIONS,
        least=1,
        most=MOST_PARTITIONS,
    ),
    ExportOption(
        "force",
        _FLAG,
        "export again, and replace, also with fewer rows",
        "Export again: in one snapshot the new files replace the old ones, also if they have "
        "fewer rows.",
        default=False,
        setting=f"{_PARTITION}_force_export",
    ),
    ExportOption(
        "manifest_ttl",
        _NUMBER,
        "seconds until it may be exported again; 0 never",
        "Seconds during which another export of the partition is refused; 0 is for ever.",
        default=MANIFEST_TTL,
        setting=f"{_PARTITION}_manifest_ttl",
    ),
    ExportOption(
        "abandoned_ttl",
        _NUMBER,
        "seconds after which an interrupted export is given up; 0 never",
        "Seconds after which an interrupted export into the same table is given up at the end of "
        "this one, and its files are removed; 0 is never.",
        default=ABANDONED_TTL,
        setting=f"{_PARTITION}_abandoned_ttl",
    ),
    ExportOption(
        "allow_empty",
        _FLAG,
        "with force: also when no rows are left",
        "With --force: also when the source partition has no rows left.",
        default=False,
        setting="allow_replace_partition_from_empty_source",
    ),
    ExportOption(
        "max_replace",
        _NUMBER,
        "refuse if more exported partitions would be replaced; NULL for no limit",
        "Refuse the export, before it changes anything, if it would replace more than this many "
        "partitions that are exported already; 0 replaces none.",
        setting=f"{_PARTITION}_max_replace",
        in_setting=-1,
        metavar="N",
    ),
    ExportOption(
        "overwrite_file_if_exists",
        _FLAG,
        "continue although there are files of other writers",
        "Continue although the partition has files of other writers, or rows of other tables of "
        "this name. They are never removed (ClickHouse's "
        f"{_PART}_overwrite_file_if_exists).",
        default=False,
        setting=f"{_PART}_overwrite_file_if_exists",
    ),
    ExportOption(
        "replace_partition",
        _FLAG,
        "with force: also replace files of others",
        "With --force: remove everything in the lake partition, also files that other engines "
        "rewrote and rows of others. Only if a lake partition holds one source partition. In a "
        "tree of Hive directories: remove the exported files of the partition; a reader that lists "
        "directories sees old and new files until gc removes the old ones.",
        default=False,
        setting=f"{_PARTITION}_replace_partition",
    ),
    ExportOption(
        "late_rows",
        _TEXT,
        "rows after an archive: refuse, append, append-all (some may be archived); NULL: table",
        "What happens to rows that arrive in a partition after it was archived: refuse; append, "
        "which adds them next to the archived rows; append-all, also if some may be archived; "
        "table, what its property mergeberg.late-rows says, without which they are refused.",
        in_setting=LateRows.TABLE.value,
        in_command=LateRows.TABLE.value,
        choices=tuple(one.value for one in LateRows),
        setting=f"{_PARTITION}_late_rows",
    ),
    ExportOption(
        "incremental",
        _FLAG,
        "where a partition only got new parts, write these, and keep the exported files",
        "Where a partition only got new parts since its export, write these parts, and keep the "
        "exported files. After a merge, a mutation or another change the partition is replaced as "
        "a whole.",
        default=False,
        setting=f"{_PARTITION}_incremental",
    ),
    ExportOption(
        "same_table",
        _FLAG,
        "the same table after its Keeper was restored",
        "The replicated TABLE is the exported one, although its node in Keeper has changed, "
        "because Keeper was restored. The new node is remembered.",
        default=False,
    ),
    ExportOption(
        "same_as",
        _TEXT,
        "the identity that it was exported under before",
        "TABLE was restored, moved or created again: continue with its exports under this "
        "identity, as the refusal names it.",
        metavar="IDENTITY",
    ),
    ExportOption(
        "verify",
        _FLAG,
        "compare with the source after the commit",
        "Compare every exported partition with its source after the commit, and keep the digest.",
        default=False,
    ),
    ExportOption(
        "check_rows",
        _FLAG,
        "compare the rows where only parts are known to differ, and write none that are equal",
        "Where the parts of an exported partition changed (a merge, a mutation), compare its rows "
        "with those exported first; when they are equal, nothing is written.",
        default=False,
        setting=f"{_PARTITION}_check_rows",
    ),
    ExportOption(
        "strict",
        _FLAG,
        "refuse other kinds of values, columns, and orders",
        "Refuse columns whose values would change kind, and a table that has other columns, "
        "or the same in another order.",
        default=False,
        setting=f"{_PARTITION}_strict",
    ),
    ExportOption(
        "evolve_schema",
        _FLAG,
        "add columns that the lake table lacks, widen its types",
        "Add columns that the destination lacks, as optional ones, widen its types where "
        "values need that, and record the present source in it.",
        default=False,
    ),
    ExportOption(
        "backfill",
        _FLAG,
        "also partitions that lack values of columns which the source got later",
        "Also export partitions that lack values of columns that the source got later.",
        default=False,
    ),
    ExportOption(
        "convert",
        _PAIRS,
        "column, or ClickHouse type, to conversion",
        "Convert a column, or every column of a ClickHouse type, e.g. UInt64=long. Repeatable.",
        metavar="COLUMN|TYPE=HOW",
    ),
    ExportOption(
        "partition_spec",
        _TEXT,
        "of a new table; NULL to derive it",
        "Use this partition spec, e.g. 'month(ts), bucket(16, id)'; it is checked on the data.",
    ),
    ExportOption(
        "hive_columns",
        _PAIRS,
        "of hive.`uri`: directory to the member of the partition key that it is of",
        "With --to hive:URI: the name of the directory of a member of the partition key that is "
        "an expression, e.g. month=toYYYYMM(d). May be given several times; a tree remembers them.",
        setting=f"{_PARTITION}_hive_columns",
        in_setting="",
        flag_name="hive-column",
        metavar="NAME=EXPRESSION",
    ),
    ExportOption(
        "max_bytes_per_file",
        _BYTES,
        "bytes of a data file; NULL for the lake table's size, or 512 MiB",
        "Expected size of a data file, e.g. 1GB; a number alone counts MiB. Default: the lake "
        "table's, or 512MiB.",
        setting=f"{_PART}_max_bytes_per_file",
        in_setting=0,
        least=1,
        flag_name="target-file-size",
        metavar="SIZE",
    ),
    ExportOption(
        "max_retries",
        _NUMBER,
        "how often a file is tried again",
        "How often a file is written again after a temporary error (ClickHouse's "
        f"{_PARTITION}_max_retries).",
        default=MAX_RETRIES,
        setting=f"{_PARTITION}_max_retries",
    ),
    ExportOption(
        "max_bandwidth",
        _BYTES,
        "bytes per second of all tasks, 0 for no limit; NULL for the session's setting",
        "Bytes per second, e.g. 50MB, that all tasks together read from the source, and that "
        "they write; 0 is no limit. A user's commands on a host share an equal limit "
        "(ClickHouse's max_exports_bandwidth_for_server).",
        setting="max_exports_bandwidth_for_server",
        in_setting=0,
        in_command="0",
        metavar="SIZE",
        variable="MERGEBERG_MAX_BANDWIDTH",
    ),
    ExportOption(
        "max_slices",
        _NUMBER,
        "files that are written at a time; NULL for the session's setting",
        "Files that are written at the same time, if Spark can write that many (ClickHouse's "
        "background_move_pool_size).",
        setting="background_move_pool_size",
        in_setting=MAX_SLICES,
        in_command=MAX_SLICES,
        least=1,
        variable="MERGEBERG_MAX_SLICES",
    ),
    ExportOption(
        "parallel_formatting",
        _FLAG,
        "false: one file at a time, read before it is written; NULL for the session's setting",
        "Write one file at a time, and read all of its rows to the disk of its host first: "
        "slower, with less memory (ClickHouse's output_format_parallel_formatting = 0).",
        setting="output_format_parallel_formatting",
        in_setting=1,
        flag_name="no-parallel-formatting",
    ),
    ExportOption(
        "cluster",
        _TEXT,
        "the source is a table of every shard of this cluster",
        "TABLE is a table of every shard of this cluster. A Distributed table needs no such "
        "option.",
    ),
    ExportOption(
        "wait",
        _FLAG,
        "false: return when it has begun, with transaction ids",
        "Return when the first files are being written, with the transactions. The export "
        "continues in a background process, whose output is in a file; `mergeberg exports list` "
        "follows it.",
        default=True,
        setting=f"{_PARTITION}_wait",
        flag_name="no-wait",
    ),
    ExportOption(
        "dry_run",
        _FLAG,
        "only report what would be done",
        "Only report what would be done.",
        default=False,
    ),
)
EXPORT_OPTIONS: Final[Mapping[str, ExportOption]] = {one.name: one for one in _ALL}
"""The options by name, in the order of every interface."""
