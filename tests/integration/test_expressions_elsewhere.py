"""Expressions that only the source can evaluate, or nobody any more: stored columns need none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.names import TableName
from tests.services.clickhouse_front import ClickHouseFront
from tests.support.frozen_folders import freeze
from tests.support.real_export import Exports, RealExport

_FORGET = "SETTINGS check_table_dependencies = 0, check_referential_table_dependencies = 0"
_NAMES = "k UInt64, v String) PRIMARY KEY k"
_LAYOUT = "LAYOUT(FLAT()) LIFETIME(0)"
_FROM_DICTIONARY = "dictGet('db.names', 'v', k)"
_EVERYWHERE = (
    f"a String ALIAS {_FROM_DICTIONARY}, m String MATERIALIZED {_FROM_DICTIONARY},"
    f" s String DEFAULT {_FROM_DICTIONARY} TTL t + INTERVAL 900 YEAR,"
    " t DateTime DEFAULT '2024-01-01 00:00:00'"
)


def dictionary(exports: RealExport) -> None:
    """Make a dictionary that has the numbers of `k` as texts."""
    source = "CLICKHOUSE(DB 'db' TABLE 'named')"
    for statement in (
        "CREATE TABLE IF NOT EXISTS db.named (k UInt64, v String) ENGINE = MergeTree ORDER BY k",
        "INSERT INTO db.named SELECT number, concat('n', toString(number)) FROM numbers(10)",
        f"CREATE DICTIONARY IF NOT EXISTS db.names ({_NAMES} SOURCE({source}) {_LAYOUT}",
    ):
        exports.clickhouse.command(statement)


def filled(exports: RealExport, more: str = "", clauses: str = "") -> TableName:
    name = exports.clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY p ORDER BY k {clauses}", f"p UInt8, k UInt64{more}"
    )
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (p, k) SELECT number % 2, number FROM numbers(6)"
    )
    return name


def words(exports: RealExport, name: TableName, **options: object) -> dict[str, str]:
    found = exports.run(name, **options)  # type: ignore[arg-type]
    return {o.partition_id: f"{o.status.value} {o.message}".strip() for o in found}


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    "clauses", ["", "SETTINGS min_bytes_for_wide_part = 0, min_rows_for_wide_part = 0"]
)
def test_a_dictionary_is_not_needed_for_what_parts_have(
    exports: RealExport, clauses: str, *, gone: bool
) -> None:
    """Harm prevented: a table cannot be exported although every value is in its parts."""
    dictionary(exports)
    name = filled(exports, f", {_EVERYWHERE}", clauses)
    if gone:
        exports.clickhouse.command(f"DROP DICTIONARY db.names {_FORGET}")

    assert words(exports, name, verify=True) == {"0": "committed", "1": "committed"}

    assert exports.in_lake(name, "k, m, s") == [(k, f"n{k}", f"n{k}") for k in range(6)]
    assert words(exports, name)["0"].startswith("already_exported")


def test_a_function_that_is_deprecated_is_not_needed_for_what_parts_have(
    exports: RealExport,
) -> None:
    setting = "SET allow_deprecated_error_prone_window_functions ="
    exports.clickhouse.command(f"{setting} 1")
    name = filled(
        exports, ", n UInt64 ALIAS neighbor(k, 1), m Int64 MATERIALIZED runningDifference(k)"
    )
    exports.clickhouse.command(f"{setting} 0")

    assert words(exports, name) == {"0": "committed", "1": "committed"}
    assert len(exports.in_lake(name, "k, m")) == 6


def test_an_alias_that_an_index_or_a_projection_takes_stays(exports: RealExport) -> None:
    """Harm prevented: a staging table that ClickHouse takes for one of another structure."""
    more = (
        ", a UInt64 ALIAS k + 1, b String ALIAS toString(k), s String DEFAULT 'x',"
        " INDEX i k + 2 TYPE minmax GRANULARITY 1, PROJECTION j (SELECT p, sum(a) GROUP BY p)"
    )
    name = filled(exports, more)

    assert words(exports, name, verify=True) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name, "k, s") == [(k, "x") for k in range(6)]


def test_what_tasks_cannot_compute_is_refused_with_the_way_out(exports: RealExport) -> None:
    """Harm prevented: a value that is computed from another dictionary, or from none."""
    dictionary(exports)
    name = filled(exports)
    exports.clickhouse.command(
        f"ALTER TABLE {name.sql} ADD COLUMN s String DEFAULT {_FROM_DICTIONARY}"
    )

    refused = words(exports, name)

    assert refused["0"] == (
        f"refused Cannot export partition 0 of {name}: its part 0_1_1_0 lacks the column s, and s "
        f"DEFAULT {_FROM_DICTIONARY} takes the function dictGet, which tasks that read the files "
        f"of the part do not have. Write the values into the parts: ALTER TABLE {name.sql} "
        "MATERIALIZE COLUMN `s` IN PARTITION ID '0' SETTINGS mutations_sync = 2."
    )
    for one in refused:
        exports.clickhouse.command(
            f"ALTER TABLE {name.sql} MATERIALIZE COLUMN s IN PARTITION ID '{one}'"
            " SETTINGS mutations_sync = 2"
        )
    assert words(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name, "k, s") == [(k, f"n{k}") for k in range(6)]


def test_a_server_computes_what_its_parts_lack(
    newest_server: ClickHouseFront, exports_from: Exports
) -> None:
    exports = exports_from(newest_server.url)
    dictionary(exports)
    name = filled(exports, f", a String ALIAS {_FROM_DICTIONARY}")
    exports.clickhouse.command(
        f"ALTER TABLE {name.sql} ADD COLUMN s String DEFAULT {_FROM_DICTIONARY}"
    )

    assert words(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name, "k, s") == [(k, f"n{k}") for k in range(6)]


def test_frozen_parts_need_no_dictionary_for_what_they_have(
    exports: RealExport, tmp_path: Path
) -> None:
    dictionary(exports)
    name = filled(exports, f", {_EVERYWHERE}")
    folders = freeze(exports.clickhouse, name, tmp_path)

    found = words(exports, name, source=folders.source())

    assert found == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name, "k, m, s") == [(k, f"n{k}", f"n{k}") for k in range(6)]
