"""The definitions of a table are distinguished whatever their names, texts and brackets hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.connection import definitions, ttl_columns
from tableformat.mergetree.missing_columns import column_list
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple
from tableformat.names import quote_identifier, quote_string

ANYTHING = st.text(st.sampled_from("ab ,()'`\"\\\n\tTL\0é"), max_size=12)
NAMES = st.text(st.sampled_from("ab ,()'`\"\\\n\tTLé"), min_size=1, max_size=8)
CLAUSES = st.one_of(
    st.just(""),
    st.builds(lambda text: f" DEFAULT concat(upper({quote_string(text)}), 'TTL')", ANYTHING),
    st.builds(lambda text: f" COMMENT {quote_string(text)} CODEC(Delta(4), ZSTD(1))", ANYTHING),
    st.just(" DEFAULT `TTL` + (1 + 2)"),
)
COLUMNS = st.lists(st.tuples(NAMES, CLAUSES, st.booleans()), min_size=1, max_size=5)


@given(COLUMNS)
def test_definitions_and_their_ttls_are_found(columns: list[tuple[str, str, bool]]) -> None:
    texts = [
        f"{quote_identifier(name)} Enum8('x,)' = 1, 'TTL' = 2){clause}"
        + (" TTL d + toIntervalDay(1)" if expires else "")
        for name, clause, expires in columns
    ]
    query = (
        f"CREATE TABLE `a(b`.t ({', '.join(texts)}, INDEX i (a, f(b, 1)) TYPE minmax)"
        " ENGINE = MergeTree ORDER BY (a, b) TTL d COMMENT '('"
    )

    assert definitions(query) == (*texts, "INDEX i (a, f(b, 1)) TYPE minmax")
    assert ttl_columns(query) == tuple(name for name, _, expires in columns if expires)


@given(COLUMNS)
def test_the_columns_of_a_layout_are_read_back_one_by_one(
    columns: list[tuple[str, str, bool]],
) -> None:
    """The text stands in the DDL of every task; a column lost there would be lost in the lake."""
    made = tuple(
        Column(name, Simple("String"), "String", "DEFAULT", quote_string(name))
        for name, _, _ in columns
    )

    found = definitions(f"CREATE TABLE t ({column_list(made)}) ENGINE = MergeTree")

    assert found == tuple(
        f"{quote_identifier(c.name)} String DEFAULT {c.default_expression}" for c in made
    )
