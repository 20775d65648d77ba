"""Strategies for ClickHouse's statements, as values of `spark_ext.sql.statements`.

`statements` are all that can be read; `known_statements` only those that ClickHouse has as well: no
EXPORT, and at most two parts in a table's name.
"""

from __future__ import annotations

from hypothesis import strategies as st

from spark_ext.sql.clauses import Deduplicate, Ending, Outfile, Setting, Target
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import (
    Alter,
    Attach,
    AttachFrom,
    ChangeRows,
    ClearColumn,
    ClearIndex,
    Command,
    Delete,
    Detach,
    Drop,
    DropDetached,
    Export,
    Fetch,
    Forget,
    Freeze,
    KillMode,
    KillQuery,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    Optimize,
    ReplaceFrom,
    Statement,
    Unfreeze,
    Update,
)
from tableformat.mergetree.expression import Call, Expression, Literal
from tableformat.mergetree.partition_literal import All, ById, ByValue, PartitionLiteral
from tableformat.names import PartitionId, PartName
from tests.strategies.expressions import calculations, constants, expressions, literals
from tests.strategies.types import names, nasty_text

ids = st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True).map(PartitionId)
words = st.one_of(
    names,
    st.sampled_from(["on", "cluster", "PARTITION", "part", "to", "table", "from", "settings"]),
)
dotted = st.lists(words, min_size=1, max_size=4).map(lambda parts: DottedName(tuple(parts)))
known_tables = st.lists(words, min_size=1, max_size=2).map(lambda parts: DottedName(tuple(parts)))
numbers = st.integers(0, 10**9)
parts = st.builds(PartName, ids, numbers, numbers, st.integers(0, 99), st.none() | numbers)
backups = nasty_text.filter(bool)
assignments = st.lists(st.tuples(words, expressions), min_size=1, max_size=3).map(tuple)

# What ClickHouse reads as a partition: a constant, an array of constants, or a tuple of anything.
_numbers = st.integers(-(2**63), 2**64 - 1).map(Literal)
known_values: st.SearchStrategy[Expression] = st.one_of(
    literals.filter(lambda literal: not isinstance(literal.value, int)) | _numbers,
    st.lists(_numbers, max_size=3).map(lambda members: Call("array", tuple(members))),
    st.lists(calculations, max_size=3).map(lambda members: Call("tuple", tuple(members))),
)


def partitions(of: st.SearchStrategy[Expression]) -> st.SearchStrategy[PartitionLiteral]:
    """Build partitions by id, and by these values, as they are read from a statement."""
    return st.one_of(ids.map(ById), of.map(_as_read).map(ByValue))


def _as_read(value: Expression) -> Expression:
    """Return a value as ClickHouse takes it: most bare calls are the member of a tuple."""
    is_bare = isinstance(value, Call) and value.function not in {"tuple", "array", "CAST"}
    return Call("tuple", (value,)) if is_bare else value


def known_commands(
    tables: st.SearchStrategy[DottedName], one: st.SearchStrategy[PartitionLiteral]
) -> st.SearchStrategy[Command]:
    """Build the commands that ClickHouse has as well, about these partitions and tables."""
    target: st.SearchStrategy[Target] = one | parts
    every = one | st.just(All())
    maybe = st.none() | one
    return st.one_of(
        *(st.builds(kind, target | st.just(All())) for kind in (Detach, Attach, Drop)),
        st.builds(DropDetached, target | st.just(All())),
        st.builds(AttachFrom, every, tables),
        st.builds(ReplaceFrom, one, tables),
        st.builds(MoveToTable, one, tables),
        st.builds(MoveToDisk, target, nasty_text),
        st.builds(MoveToVolume, target, nasty_text),
        st.builds(Forget, one),
        st.builds(Freeze, maybe, st.none() | backups),
        st.builds(Unfreeze, backups, maybe),
        st.builds(Fetch, target, nasty_text),
        st.builds(ClearColumn, dotted, maybe, st.booleans()),
        st.builds(ClearIndex, dotted, maybe, st.booleans()),
        st.builds(Update, assignments, expressions, maybe),
        st.builds(Delete, expressions, maybe),
    )


def exports(
    tables: st.SearchStrategy[DottedName], one: st.SearchStrategy[PartitionLiteral]
) -> st.SearchStrategy[Export]:
    """Build EXPORT of these partitions into these tables."""
    return st.builds(Export, one | parts | st.just(All()), tables)


# ClickHouse shows a name with a dot as it stands, in quotes or not.
setting_names = words | st.lists(words, min_size=2, max_size=3).map(".".join)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False),
    nasty_text,
)
settings = st.lists(st.builds(Setting, setting_names, values), max_size=3).map(tuple)


@st.composite
def outfiles(draw: st.DrawFn) -> Outfile:
    truncate, append = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    compression = draw(st.none() | nasty_text)
    level = draw(st.none() | st.integers(-22, 22)) if compression is not None else None
    return Outfile(draw(nasty_text), truncate, append, draw(st.booleans()), compression, level)


endings = st.builds(Ending, st.none() | outfiles(), st.none() | words, settings)
clusters = st.none() | nasty_text.filter(bool)


columns = st.lists(words, min_size=1, max_size=3).map(tuple)
deduplications = st.one_of(
    st.just(Deduplicate()),
    st.builds(Deduplicate, columns),
    st.builds(Deduplicate, star=st.just(value=True), without=columns | st.just(())),
)
kills = st.builds(
    KillQuery,
    st.lists(nasty_text, min_size=1, max_size=3).map(tuple),
    st.sampled_from(KillMode),
    clusters,
    endings,
)


def statements_of(
    tables: st.SearchStrategy[DottedName],
    one: st.SearchStrategy[PartitionLiteral],
    commands: st.SearchStrategy[Command],
) -> st.SearchStrategy[Statement]:
    """Build statements of every kind about these tables and partitions; ALTER of these commands."""
    some = st.lists(commands, min_size=1, max_size=3).map(tuple)
    change = st.one_of(
        st.builds(Update, assignments, expressions, one), st.builds(Delete, expressions, one)
    )
    maybe, flag = st.none() | one, st.booleans()
    deduplicate = st.none() | deduplications
    return st.one_of(
        st.builds(Alter, tables, some, clusters, endings, flag),
        st.builds(ChangeRows, tables, change, clusters, settings),
        st.builds(Optimize, tables, maybe, flag, deduplicate, clusters, endings),
        kills,
    )


_any = partitions(constants)
_known = partitions(known_values)
known_exports = exports(known_tables, _known)
statements = statements_of(dotted, _any, exports(dotted, _any) | known_commands(dotted, _any))
known_statements = statements_of(known_tables, _known, known_commands(known_tables, _known))
