"""Whose parts these are: one table has one identity, from its server and from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.frozen.definition import Definition, FrozenSettings, identity_of, uuid_of
from tableformat.errors import RefusedError
from tableformat.mergetree.table import Engine
from tableformat.names import TableName

_UUID = "65439ec1-e3f9-4a45-b3f8-9faefb74e1bc"
_OTHER = "0a1b2c3d-0000-4000-8000-000000000000"
_TABLE = TableName("db", "t")
_SETTINGS = FrozenSettings(Path("/s"), Path("/t.sql"))


def defined(uuid: str = "", engine: str = "MergeTree", arguments: str = "") -> Definition:
    return Definition("db", "t", uuid, "", Engine(engine, arguments))


@pytest.mark.parametrize(
    ("in_statement", "directory"),
    [(_UUID, "/copy"), ("", f"/shadow/1/store/654/{_UUID}"), (_UUID, f"/x/store/654/{_UUID}")],
)
def test_the_uuid_is_that_of_the_statement_or_the_path(in_statement: str, directory: str) -> None:
    uuid = uuid_of(_SETTINGS, defined(in_statement), Path(directory))

    assert identity_of(_SETTINGS, defined(), _TABLE, uuid) == f"uuid:{_UUID}"


def test_parts_and_statement_of_two_tables_are_refused() -> None:
    with pytest.raises(
        RefusedError, match=f"with the UUID {_UUID}, but the statement in /t.sql is"
    ):
        uuid_of(_SETTINGS, defined(_OTHER), Path(f"/shadow/1/store/654/{_UUID}"))


@pytest.mark.parametrize(
    ("arguments", "identity"),
    [
        ("'/clickhouse/tables/01/t', 'r1'", "keeper:/clickhouse/tables/01/t"),
        ("'/clickhouse/tables/01/t/', '{replica}'", "keeper:/clickhouse/tables/01/t"),
        ("'clickhouse/t', 'r1', k", "keeper:/clickhouse/t"),
        ("'/tables/{database}/{table}', '{replica}'", "keeper:/tables/db/t"),
        ("'/tables/{uuid}', '{replica}'", f"keeper:/tables/{_UUID}"),
        ("'/it\\'s', 'r'", "keeper:/it's"),
    ],
)
def test_a_replicated_table_is_its_keeper_path(arguments: str, identity: str) -> None:
    """As `system.replicas` shows it, so that a replica's export and this one have the same key."""
    replicated = defined(engine="ReplicatedSummingMergeTree", arguments=arguments)

    assert identity_of(_SETTINGS, replicated, _TABLE, _UUID) == identity


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            "'/tables/{shard}/{table}', '{replica}'",
            r"its Keeper path '/tables/{shard}/t' has macro",
        ),
        ("'/tables/{uuid}', '{replica}'", r"its Keeper path '/tables/{uuid}' has macros"),
        ("", "it does not contain its Keeper path"),
    ],
)
def test_a_keeper_path_that_only_a_server_knows_must_be_given(arguments: str, why: str) -> None:
    replicated = defined(engine="ReplicatedMergeTree", arguments=arguments)

    with pytest.raises(RefusedError, match=rf"{why}.*Add &identity=keeper:PATH"):
        identity_of(_SETTINGS, replicated, _TABLE, "")


def test_a_table_that_nothing_names_has_to_be_named() -> None:
    """A made-up name would export its rows a second time from another directory."""
    with pytest.raises(RefusedError, match=r"has no UUID, nor has the path\. Add &identity=uuid:"):
        identity_of(_SETTINGS, defined(), _TABLE, "")


def test_the_users_identity_comes_first() -> None:
    settings = FrozenSettings(Path("/s"), Path("/t.sql"), identity="keeper:/tables/01/t")

    assert identity_of(settings, defined(), _TABLE, _UUID) == "keeper:/tables/01/t"
