"""Strategies for key expressions, as values of `tableformat.mergetree.expression`."""

from __future__ import annotations

from hypothesis import strategies as st

from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal, SortKey
from tests.strategies.types import names, nasty_text

column_names = st.one_of(
    names,
    st.lists(names, min_size=2, max_size=3).map(".".join),
    st.sampled_from(["TTL", "SETTINGS", "PARTITION", "ORDER", "BY", "and", "interval", "date"]),
)
columns = column_names.map(ColumnName)
literals = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    nasty_text,
).map(Literal)

_BINARY = (
    *("plus", "minus", "multiply", "divide", "modulo", "intDiv", "equals", "notEquals", "less"),
    *("lessOrEquals", "greater", "greaterOrEquals", "in", "notIn", "like", "arrayElement"),
    *("tupleElement", "concat"),
)
_FUNCTIONS = st.one_of(
    st.sampled_from(["toYYYYMM", "toDate", "now", "tuple", "array", "and", "or", "concat", "if"]),
    st.from_regex(r"[a-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
        lambda name: name.upper() not in ("CAST", "NOT", "LAMBDA")
    ),
)


def _calls(of: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    some = st.lists(of, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Call, st.sampled_from(_BINARY), st.tuples(of, of)),
        st.builds(Call, st.sampled_from(["negate", "not", "isNull"]), st.tuples(of)),
        st.builds(Call, st.sampled_from(["if", "multiIf"]), st.tuples(of, of, of)),
        st.builds(Call, _FUNCTIONS, some),
        st.builds(Call, st.just("CAST"), st.tuples(of, nasty_text.map(Literal))),
        st.builds(Call, st.sampled_from(["arrayMap", "f"]), st.tuples(_lambdas(of), of)),
    )


def _lambdas(of: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Build lambdas; those of no argument are ClickHouse's, too."""
    plain = names.filter(lambda name: "." not in name).map(ColumnName)
    arguments = st.lists(plain, max_size=2, unique=True).map(tuple)
    return st.builds(
        lambda given, body: Call("lambda", (Call("tuple", given), body)), arguments, of
    )


# Every expression that has a text form, over columns and constants.
expressions: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(columns, literals), _calls, max_leaves=12
)


def _of_constants(of: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    some = st.lists(of, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Call, st.sampled_from(["tuple", "array", "toDate", "f", "multiIf"]), some),
        st.builds(Call, st.sampled_from(_BINARY), st.tuples(of, of)),
        st.builds(Call, st.sampled_from(["negate", "not"]), st.tuples(of)),
        st.builds(Call, st.just("if"), st.tuples(of, of, of)),
        st.builds(Call, st.just("arrayMap"), st.tuples(_lambdas(of), of)),
    )


# Expressions without a column, with operators and functions.
calculations: st.SearchStrategy[Expression] = st.recursive(literals, _of_constants, max_leaves=6)
# What may stand for the value of a partition key: an operator only inside of brackets.
constants: st.SearchStrategy[Expression] = st.one_of(
    literals,
    st.lists(literals, max_size=3).map(lambda members: Call("array", tuple(members))),
    st.builds(
        Call,
        st.sampled_from(["tuple", "toDate", "f"]),
        st.lists(calculations, max_size=3).map(tuple),
    ),
)
sort_keys = st.lists(st.builds(SortKey, expressions, st.booleans()), max_size=4).map(tuple)
