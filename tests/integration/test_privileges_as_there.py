"""What a statement asks for is what ClickHouse asks, but where the page says otherwise."""

from __future__ import annotations

import re

from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.sources import SourcePlace, server_of
from tableformat.access import Act, Of, Privilege, Scope, required_for
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.errors import TableFormatError
from tests.services.clickhouse_front import ClickHouseFront

TABLE, OTHER = Scope(("db", "t")), Scope(("db", "u"))
NAMED = {Of.TABLE: TABLE, Of.FROM: OTHER, Of.TO: OTHER}
STATEMENTS = {
    Act.ATTACH: "ALTER TABLE db.t ATTACH PARTITION 9",
    Act.ATTACH_FROM: "ALTER TABLE db.t ATTACH PARTITION 9 FROM db.u",
    Act.REPLACE_FROM: "ALTER TABLE db.t REPLACE PARTITION 9 FROM db.u",
    Act.MOVE_TO_TABLE: "ALTER TABLE db.t MOVE PARTITION 9 TO TABLE db.u",
    Act.MOVE_TO_DISK: "ALTER TABLE db.t MOVE PARTITION 9 TO DISK 'default'",
    Act.DETACH: "ALTER TABLE db.t DETACH PARTITION 9",
    Act.DROP: "ALTER TABLE db.t DROP PARTITION 9",
    Act.DROP_DETACHED: (
        "ALTER TABLE db.t DROP DETACHED PARTITION 9 SETTINGS allow_drop_detached = 1"
    ),
    Act.FORGET: "ALTER TABLE db.t FORGET PARTITION 9",
    Act.FREEZE: "ALTER TABLE db.t FREEZE PARTITION 9",
    Act.FETCH: "ALTER TABLE db.t FETCH PARTITION 9 FROM '/clickhouse/u'",
    Act.CLEAR_COLUMN: "ALTER TABLE db.t CLEAR COLUMN c IN PARTITION 9",
    Act.CLEAR_INDEX: "ALTER TABLE db.t CLEAR INDEX i IN PARTITION 9",
    Act.UPDATE: "ALTER TABLE db.t UPDATE c = 1 WHERE 0",
    Act.DELETE: "ALTER TABLE db.t DELETE WHERE 0",
    Act.OPTIMIZE: "OPTIMIZE TABLE db.t",
}
OTHERWISE = {
    Act.ATTACH: {"INSERT ON db.t"},
    Act.ATTACH_FROM: {"SELECT ON db.u", "INSERT ON db.t", "ALTER DELETE ON db.t"},
    # What earlier versions ask for stays asked for: the rows leave, and are read elsewhere.
    Act.MOVE_TO_TABLE: {"ALTER MOVE PARTITION ON db.t", "INSERT ON db.u"},
    Act.FETCH: {"ALTER FETCH PARTITION ON db.t"},
}
"""Where the requirements ask for others, and where what is read needs SELECT here."""
MISSING = re.compile(r"necessary to have the grant ([A-Z, ]+) ON (\w+\.\w+)")
MOST_RIGHTS = 5


def test_clickhouse_asks_for_the_same(newest_server: ClickHouseFront) -> None:
    """Each statement has a user of its own, who is given what ClickHouse says that he lacks."""
    users = {act: f"user{number}" for number, act in enumerate(STATEMENTS)}
    newest_server.commands(
        "CREATE DATABASE db",
        *(
            f"CREATE TABLE db.{name} (p UInt8, c UInt8, INDEX i c TYPE minmax) ENGINE = MergeTree"
            " PARTITION BY p ORDER BY p"
            for name in "tu"
        ),
        *(f"CREATE USER {user}" for user in users.values()),
    )
    asked: dict[Act, set[str]] = {act: set() for act in STATEMENTS}

    for _ in range(MOST_RIGHTS):
        lacks = {act: lacking(newest_server, users[act], STATEMENTS[act]) for act in STATEMENTS}
        for act, rights in lacks.items():
            asked[act] |= rights
        newest_server.commands(
            *(f"GRANT {one} TO {users[act]}" for act, rights in lacks.items() for one in rights)
        )
        if not any(lacks.values()):
            break

    ours = {act: {str(need) for need in required_for(act, NAMED)} for act in STATEMENTS}
    assert asked == ours | OTHERWISE
    assert ours[Act.ATTACH] == {f"{Privilege.CREATE} ON db.t"}


def lacking(server: ClickHouseFront, user: str, statement: str) -> set[str]:
    """Return rights that a user lacks for a statement; ClickHouse does not tell all at once."""
    settings = server_of(SourcePlace(server.url.replace("//", f"//{user}@"), allow_insecure=True))
    assert settings is not None
    try:
        ServerConnection(ServerClient(settings, settings.hosts[0])).command(statement)
    except TableFormatError as error:
        denied = error
    else:
        return set()
    found = MISSING.search(denied.message)
    assert (found is not None) == (denied.code == ACCESS_DENIED), denied.message
    return {f"{one} ON {found[2]}" for one in found[1].split(", ")} if found else set()
