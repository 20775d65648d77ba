"""`check`, `partitions`, `parts`, `verify` and `archive` of a Distributed table, shard by shard."""

from __future__ import annotations

from collections.abc import Callable

from tests.old_clickhouse import OldPair
from tests.shards import Shards


def test_what_is_listed_says_of_which_shard_it_is(shards: Callable[[str], Shards]) -> None:
    table = shards("listed")

    code, partitions = table.records("partitions")
    _, parts = table.records("parts", "--partition-id", "1")
    _, checks = table.records("check")

    assert code == 0
    assert [(p["shard"], p["partition_id"], p["rows"]) for p in partitions] == [
        (1, "0", 50),
        (1, "1", 50),
        (2, "0", 50),
        (2, "1", 50),
    ]
    assert [(p["shard"], p["rows"]) for p in parts] == [(1, 50), (2, 50)]
    assert [(c["shard"], c["works"], len(c["partitions"])) for c in checks] == [
        (1, True, 2),
        (2, True, 2),
    ]
    code, said = table.run("check")
    assert code == 0
    assert "shard 1: db.listed at 127.0.0.1:" in said
    assert said.count("It would work.") == 2


def test_every_shard_is_compared_with_the_lake(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    """A difference on one shard is not hidden by the other, nor by one that is down."""
    table = shards("compared")
    assert table.export()[0] == 0

    code, found = table.records("verify", "--all")
    assert code == 0
    assert [(c["shard"], c["partition_id"], c["verdict"], c["rows"]) for c in found] == [
        (1, "0", "equal", 50),
        (1, "1", "equal", 50),
        (2, "0", "equal", 50),
        (2, "1", "equal", 50),
    ]
    old_servers.query(2, "INSERT INTO db.compared VALUES (1, 1000, 'late')")
    old_servers.query(2, "INSERT INTO db.compared VALUES (7, 7, 'elsewhere')")
    code, found = table.records("verify", "--partition-id", "1")
    assert code == 3
    assert [c["verdict"] for c in found] == ["equal", "not_comparable"]
    code, said = table.run("verify", "--partition-id", "7")
    assert code == 3
    assert "shard 1: Cannot verify partition 7 of db.compared: it has no active parts" in said
    assert "partition 7: not exported" in said
    code, said = table.run("verify", "--partition-id", "8")
    assert code == 3
    assert "Cannot verify partition 8 of db.compared: it has no active parts" in said


def test_a_shard_that_is_down_is_said_and_the_others_are_done(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    table = shards("half_down")
    assert table.export()[0] == 0
    old_servers.kill(2)

    for command, words, doing in (
        ("partitions", (), "read from"),
        ("parts", (), "read from"),
        ("check", (), "check"),
        ("verify", ("--all",), "verify"),
        ("export", ("--all", "--where", "rows > 1"), "export from"),
    ):
        code, said = table.run(command, *words)

        assert code == 4, said
        assert f"Cannot {doing} 1 of 2 shards: shard 2: Cannot reach ClickHouse at" in said
        assert "Connection refused" in said
        assert "shard 1: db.half_down at 127.0.0.1:" in said
        assert "next: mergeberg" in said.lower()
    code, found = table.records("verify", "--all")
    assert (code, [c["verdict"] for c in found]) == (4, ["equal", "equal"])


def test_archive_asks_for_leave_and_keeps_what_it_cannot_compare(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    """The oldest version does not show what it detached: exported and compared, it stays."""
    table = shards("kept")

    code, said = table.run("archive", "--all", "--drop")
    assert code == 3
    assert "Give --allow-alter; the user needs GRANT ALTER DELETE, INSERT" in said
    code, found = table.records("archive", "--all", "--drop", "--allow-alter")
    assert code == 3
    assert [(a["shard"], a["source"]) for a in found] == [(1, "kept")] * 2 + [(2, "kept")] * 2
    assert {"does not show detached parts" in a["message"] for a in found} == {True}
    assert [old_servers.query(n, "SELECT count() FROM db.kept") for n in (1, 2)] == ["100", "100"]
    assert len(table.in_lake()) == 200
