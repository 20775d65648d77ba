"""A table that was restored, moved or recreated has the name of one that was exported.

docs/spec/ledger.md, "Tables of one name". Only the user knows whether its rows are those or others:
nothing is added unasked.
"""

from __future__ import annotations

import pytest

from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.export.request import ById
from tableformat.messages import plain
from tableformat.names import PartitionId, TableName
from tests.support.real_export import RealExport

ZERO = ById(PartitionId("0"))


def recreated(exports: RealExport, name: TableName, rows: int = 100) -> str:
    """Drop a table and recreate it with such rows; return the identity that it had."""
    identity = exports.ledger_rows(name)[0].key.source
    definition = exports.clickhouse.rows(f"SHOW CREATE TABLE {name.sql}")[0][0]
    exports.clickhouse.command(f"DROP TABLE {name.sql} SYNC")
    exports.clickhouse.command(str(definition))
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number % 2, number, toString(number) FROM numbers({rows})"
    )
    return identity


@pytest.fixture
def name(exports: RealExport) -> TableName:
    """Return a table of two partitions that is exported."""
    name = exports.clickhouse.filled()
    assert {o.status for o in exports.run(name)} == {Status.COMMITTED}
    return name


def test_a_recreated_table_is_not_added_to_the_export_of_its_name(
    exports: RealExport, name: TableName
) -> None:
    """Harm prevented: after a restore every row is there twice."""
    before = exports.in_lake(name)
    then = recreated(exports, name)

    outcomes = exports.run(name)

    assert [(o.partition_id, o.status) for o in outcomes] == [
        ("0", Status.REFUSED),
        ("1", Status.REFUSED),
    ]
    for one in outcomes:
        assert f"rows of another table {name} may be there already: of {then} (50" in one.message
        assert f"use --same-as {then};" in plain(one.message)
    assert exports.in_lake(name) == before
    assert [row.key.source for row in exports.ledger_rows(name)] == [then, then]


def test_it_goes_on_under_the_identity_that_it_had(exports: RealExport, name: TableName) -> None:
    """More rows take the place of the exported ones, and then nothing is to be done."""
    then = recreated(exports, name, rows=120)

    replaced = exports.run(name, same_as=then, force=True)

    assert {(o.status, o.rows) for o in replaced} == {(Status.REPLACED, 60)}
    assert exports.in_lake(name) == exports.in_source(name)
    assert {o.status for o in exports.run(name, same_as=then)} == {Status.ALREADY_EXPORTED}


def test_other_rows_take_the_place_of_the_exported_ones_only_as_ever(
    exports: RealExport, name: TableName
) -> None:
    """Harm prevented: a restore that was not complete removes rows from the lake."""
    before = exports.in_lake(name)
    then = recreated(exports, name, rows=80)

    refused = exports.run(name, same_as=then)

    assert {o.status for o in refused} == {Status.REFUSED}
    assert all("differs from what was exported" in o.message for o in refused)
    assert exports.in_lake(name) == before


def test_a_mistake_in_the_identity_is_no_new_table(exports: RealExport, name: TableName) -> None:
    then = recreated(exports, name)
    before = exports.in_lake(name)

    with pytest.raises(RefusedError, match=rf"no export of a table .* Known: {then}\.$"):
        exports.run(name, same_as=f"{then[:-1]}x")

    assert exports.in_lake(name) == before


def test_other_rows_are_added_once_when_the_user_says_that_they_are_others(
    exports: RealExport, name: TableName
) -> None:
    before = exports.in_lake(name)
    recreated(exports, name)

    added = exports.run(name, alongside=True)

    assert {o.status for o in added} == {Status.COMMITTED}
    assert exports.in_lake(name) == sorted([*before, *exports.in_source(name)])
    # Given once: from now on each table has exports of its own there.
    assert {o.status for o in exports.run(name)} == {Status.ALREADY_EXPORTED}


def test_partitions_that_only_the_new_table_has_are_exported(
    exports: RealExport, name: TableName
) -> None:
    """As where the old months were moved away under another name."""
    recreated(exports, name)
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (7, 7, 'seven')")

    found = {o.partition_id: o.status for o in exports.run(name)}

    assert found == {"0": Status.REFUSED, "1": Status.REFUSED, "7": Status.COMMITTED}


def test_rows_that_somebody_took_out_of_the_lake_keep_nothing_back(
    exports: RealExport, name: TableName
) -> None:
    exports.lake(name).delete("p = 0")
    recreated(exports, name)

    found = {o.partition_id: o.status for o in exports.run(name)}

    assert found == {"0": Status.COMMITTED, "1": Status.REFUSED}


def test_a_second_table_of_the_name_is_a_shard_when_so_many_were_named(
    exports: RealExport, name: TableName
) -> None:
    """And the third is not."""
    recreated(exports, name, rows=120)

    assert {o.status for o in exports.run(name, ZERO, shards=2)} == {Status.COMMITTED}

    recreated(exports, name, rows=140)
    assert {o.status for o in exports.run(name, ZERO, shards=2)} == {Status.REFUSED}


def test_a_restored_shard_is_not_taken_for_the_other_one(
    exports: RealExport, name: TableName
) -> None:
    """Harm prevented: the rows of a shard twice, after it was restored from a backup."""
    before = exports.in_lake(name)
    copy = TableName(name.database, f"{name.name}_copy")
    exports.clickhouse.command(f"CREATE TABLE {copy.sql} AS {name.sql}")
    exports.clickhouse.command(f"ALTER TABLE {copy.sql} ATTACH PARTITION ID '0' FROM {name.sql}")
    exports.clickhouse.command(f"DROP TABLE {name.sql} SYNC")
    exports.clickhouse.command(f"RENAME TABLE {copy.sql} TO {name.sql}")

    (outcome,) = exports.run(name, ZERO, shards=2)

    assert outcome.status is Status.REFUSED
    assert f"was exported from {name} already" in outcome.message
    assert exports.in_lake(name) == before
