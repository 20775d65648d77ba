"""Whatever the profile of a user sets, a value is exported the same, and digested the same.

Every setting that this ClickHouse knows is tried with other values, not a list of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from catalog.clickhouse.capabilities import READING_SETTINGS
from tableformat.mergetree.digest_sql import digest_sql, source_columns
from tableformat.mergetree.types import parse_type
from tableformat.mergetree.wire_types import wire_expression
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string
from tests.strategies.mapping import column_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

VALUES: Final = {
    "Date": "'2024-01-02'",
    "Date32": "'1935-01-02'",
    "DateTime('Asia/Tokyo')": "'2024-01-02 03:04:05'",
    "DateTime64(3)": "'2024-01-02 03:04:05.100'",
    "DateTime64(9, 'UTC')": "'2024-01-02 03:04:05.000000000'",
    "Time64(6)": "'12:34:56.100000'",
    "String": "'a/\\\\\"b'",
    "FixedString(4)": "'ab'",
    "LowCardinality(String)": "'a'",
    "UUID": "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'",
    "Decimal(50, 5)": "'1.5'",
    "UInt128": "'12345678901234567890123'",
    "Float32": "0.1",
    "BFloat16": "1.5",
    "Bool": "true",
    "IPv4": "'1.2.3.4'",
    "IPv6": "'::1'",
    "Enum8('a' = 1, 'b' = 2)": "'a'",
    "Nullable(Int8)": "NULL",
    "Array(Nullable(DateTime64(6, 'UTC')))": "['2024-01-02 03:04:05.000000']",
    "Map(String, Array(UInt8))": "map('k', [1])",
    "Tuple(a Int8, b String)": "(1, 'x')",
    "Point": "(1, 2)",
    "JSON": """'{"b":true,"d":1.5,"o":[{"x":1}],"s":"x/y","t":"2024-01-02 03:04:05"}'""",
    "Variant(DateTime64(3), Decimal(18, 3))": "CAST('2024-01-02 03:04:05.100' AS DateTime64(3))",
    "Dynamic": "CAST(nan AS Float64)",
}
CONVERSIONS: Final = {
    "DateTime64(9, 'UTC')": "string",
    "Dynamic": "json",
    "Time64(6)": "string",
    "Variant(DateTime64(3), Decimal(18, 3))": "json",
}
ALLOWED: Final = (
    "allow_suspicious_low_cardinality_types",
    "allow_suspicious_variant_types",
    "enable_time_time64_type",
)
"""Settings without which the table cannot be made."""
LEFT_OUT: Final = frozenset(
    {
        "allow_ddl",  # cannot be set back
        "allow_python_table_function",  # may not be set in a session
        "database",  # an unknown one refuses every statement, also the one that sets it back
        "dialect",  # as `database`
        "implicit_transaction",  # as `database`
        "readonly",  # cannot be set back
        "send_logs_level",  # prints
    }
)
LIMITS: Final = re.compile("(max|min)_(?!.*output)|.*(timeout|_ms$|seconds|bytes|threads|delay)")
"""They end a query with an error or change its course, which most of them do slowly."""

SHARES: Final = 4
"""Each test tries a share of the settings."""


def others(clickhouse: EmbeddedClickHouse, name: str, of: str, value: str) -> Iterator[str]:
    """Yield values of a setting, as SQL, other than its own."""
    if of == "Bool":
        yield str(1 - int(value in ("1", "true")))
    elif re.search("Int|Float|Double|Seconds|Milliseconds|MaxThreads", of):
        yield from (each for each in ("0", "1", "3") if each != value)
    elif of in ("String", "Map", "Char", "URI"):
        yield from ("'x'", "'0'")
    else:
        try:
            clickhouse.run(f"SET {name} = 'no such value'")
        except RuntimeError as error:  # It lists the values.
            known = re.findall(r"'(\w+)'", str(error))
            yield from (quote_string(each) for each in dict.fromkeys(known) if each != value)


@pytest.mark.nightly
@pytest.mark.parametrize("share", range(SHARES))
def test_no_setting_of_a_profile_changes_what_is_exported(share: int) -> None:
    """Harm prevented: times without zeros, texts without their end, or no row at all."""
    columns = [column_of(of, parse_type(of)) for of in VALUES]
    wire = ", ".join(
        wire_expression(quote_identifier(of), parse_type(of), conversion=CONVERSIONS.get(of, ""))
        + f" AS w{at}"
        for at, of in enumerate(VALUES)
    )
    values = ", ".join(
        f"CAST({value} AS {of}) AS {quote_identifier(of)}" for of, value in VALUES.items()
    )
    changed, tried = [], 0
    with EmbeddedClickHouse() as clickhouse:
        clickhouse.run(*(f"SET {name} = 1" for name in ALLOWED))
        clickhouse.run(f"CREATE TABLE t ENGINE = Memory AS SELECT {values}")
        known = {
            name: (of, value)
            for name, of, value in clickhouse.rows("SELECT name, type, value FROM system.settings")
        }
        fixed = {name: value for name, value in READING_SETTINGS if name in known}
        ending = ", ".join(f"{name} = {quote_string(value)}" for name, value in fixed.items())
        digest = digest_sql(
            source_columns(columns, CONVERSIONS), f"t AS {SOURCE_ALIAS}", group="0", tallies=True
        )
        queries = [f"SELECT {wire} FROM t AS {SOURCE_ALIAS}", digest]
        expected = [clickhouse.arrow(f"{query} SETTINGS {ending}") for query in queries]
        for name, (of, value) in sorted(known.items())[share::SHARES]:
            if name in LEFT_OUT or name in ALLOWED or LIMITS.match(name):
                continue
            for other in others(clickhouse, name, of, value):
                try:
                    clickhouse.run(f"SET {name} = {other}")
                except RuntimeError:
                    continue  # not a value of it
                tried += 1
                for query, before in zip(queries, expected, strict=True):
                    try:
                        now = clickhouse.arrow(f"{query} SETTINGS {ending}")
                    except RuntimeError:
                        continue  # An error is seen.
                    if not now.equals(before):
                        changed.append((name, other))
                clickhouse.run(f"SET {name} = DEFAULT")

    assert tried > 1000 // SHARES
    assert changed == []
