"""Which exports are kept back by other tables of the source table's name (docs/spec/ledger.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.effects import Direct
from tableformat.errors import UsageError
from tableformat.export.content import content_of
from tableformat.export.job import ExportRequest
from tableformat.export.main_state import Holding, Kind
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.export.table_identity import SourceTables, same_name_exports
from tableformat.ledger import Claim, Key, Landed, Record, Row, State
from tableformat.mergetree.table import Part
from tableformat.names import LakeName, TableName
from tests.support.fakes import TABLE, part
from tests.support.scenarios import Partitions, parts_of

LAKE = "the lake table"
MINE = TABLE
IN_MAIN = frozenset({Kind.LEFT, Kind.CHANGED, Kind.MIXED, Kind.STRANGE})
"""Without files that carry the key its rows may be there only where nobody can tell."""


def row_of(source: str, partition_id: str, state: State, *, name: str, destination: str) -> Row:
    claim = Claim(1, "1", "", 0)
    return Row(Key(source, partition_id, destination), name, "lake.n.t", state, claim, 0, 0)


ROWS = st.builds(
    row_of,
    st.sampled_from([MINE.identity, "uuid:a", "uuid:b", "uuid:c"]),
    st.sampled_from(["1", "2"]),
    st.sampled_from([State.RUNNING, State.COMPLETED, State.FAILED]),
    name=st.sampled_from([str(MINE.name), "db.another"]),
    destination=st.sampled_from([LAKE, "another"]),
)


@given(
    rows=st.lists(ROWS, max_size=8, unique_by=lambda row: row.key),
    kinds=st.dictionaries(st.sampled_from(["uuid:a", "uuid:b", "uuid:c"]), st.sampled_from(Kind)),
    shards=st.integers(1, 3),
    alongside=st.booleans(),
)
def test_a_first_export_waits_where_tables_of_its_name_outnumber_its_shards(
    rows: list[Row], kinds: dict[str, Kind], shards: int, *, alongside: bool
) -> None:
    """Only by tables of its name, of its partition and lake table, whose rows may be there."""

    def held(row: Row) -> Holding:
        return Holding(kinds.get(row.key.source, Kind.NOTHING), "It is so.")

    may_be_there = {
        row.key.source
        for row in rows
        if row.key.source != MINE.identity
        and (row.key.partition_id, row.key.destination) == ("1", LAKE)
        and row.source_table == str(MINE.name)
        and (kinds.get(row.key.source) in IN_MAIN or row.state is State.RUNNING)
    }
    found = same_name_exports(MINE, LAKE, lambda: rows)

    message = found.refusal(
        None, "1", ExportOptions(overwrite_file_if_exists=alongside, shards=shards), held
    )

    assert bool(message) == (len(may_be_there) >= shards and not alongside)
    assert not message or all(source in message for source in may_be_there)


def moved(source: Partitions, server: str = "") -> str:
    """Return why a first export is refused after one of 12 rows of db.another, on server s1."""
    landed = Landed(1, "1", "exported", 1, 1, 12, 1)
    made = row_of("uuid:a", "1", State.COMPLETED, name="db.another", destination=LAKE)
    row = replace(made, done=Record(landed, (), 1, 1, 180), server="s1")
    mine = replace(MINE, server=server)
    content = content_of(mine, (part("all_1_2_1", 12),))

    return same_name_exports(mine, LAKE, lambda: [row]).refusal(
        None,
        "1",
        ExportOptions(),
        lambda _: Holding(Kind.LEFT, "It is so."),
        content=content,
        tables=SourceTables(Direct(), source),
    )


def another(identity: str, **by_id: list[Part]) -> Partitions:
    """Return a source with the table db.another of an identity."""
    table = replace(TABLE, name=TableName("db", "another"), identity=identity)
    return Partitions(table=table, by_id={name[1:]: parts for name, parts in by_id.items()})


def test_a_partition_that_its_table_lost_may_have_been_moved() -> None:
    """Harm prevented: rows twice, and exports refused for a table of another place."""
    lost = "they may have been moved here"

    assert lost in moved(another("uuid:a"))
    assert moved(another("uuid:a", p1=parts_of("1", 12))) == ""
    # The table of the name is another one: created again, or on another server.
    assert moved(another("uuid:b")) == ""
    # It is gone from the server that both were on.
    assert lost in moved(Partitions(), "s1")
    assert moved(Partitions(), "s2") == moved(Partitions()) == ""


def test_exports_under_the_own_identity_are_not_those_of_another_table() -> None:
    row = row_of("uuid:a", "1", State.RUNNING, name=str(MINE.name), destination=LAKE)

    assert same_name_exports(MINE, LAKE, lambda: [row]).rows == {"1": (row,)}
    assert same_name_exports(replace(MINE, known_as="uuid:a"), LAKE, lambda: [row]).rows == {}


def test_shards_are_not_all_one_table_that_was_exported() -> None:
    """Harm prevented: the rows of each shard take the place of another's."""
    to, name = LakeName("lake", ("n",), "t"), TableName("db", "t")
    request = ExportRequest(name, to, AllPartitions(), ExportOptions(same_as="uuid:a"), {})

    assert request.of_table(name, 1).options.shards == 1
    with pytest.raises(UsageError, match="each has an identity of its own"):
        request.of_table(name, 2)
