"""What a user of a server must be granted: nothing more works, nothing less is printed."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.snapshot.comparison import Clone
from catalog.clickhouse.snapshot.proof import prove
from catalog.clickhouse.table_description import list_parts
from catalog.sources import SourcePlace, open_source, server_of
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tableformat.errors import RefusedError
from tableformat.names import TableName
from tableformat.source import FrozenPart
from tests.services.clickhouse_front import ClickHouseFront
from tests.services.clickhouse_http.faults import error
from tests.support.real_export import RealExport

TABLE = TableName("db", "events")
OF_REPLICAS = ("system.replicas", "system.replication_queue", "system.zookeeper")
MADE = (
    "CREATE DATABASE db",
    (
        "CREATE TABLE db.events (p UInt8, k UInt64, s String TTL toDateTime(0) + k) ENGINE ="
        " MergeTree PARTITION BY p ORDER BY k"
    ),
    "SYSTEM STOP TTL MERGES db.events",
    "INSERT INTO db.events SELECT number % 2, 4e9 + number, toString(number) FROM numbers(100)",
    "CREATE USER exporter",
)
NO_CHECK_GRANT = error(62, "SYNTAX_ERROR", "Syntax error: failed at position 7 (GRANT)")


class Exporter:
    """A user who knows what `check` prints, and an administrator who does it."""

    def __init__(self, front: ClickHouseFront, root: Path) -> None:
        self.front, self._root = front, root
        self.uri = f"{front.url.replace('//', '//exporter@')}?read-timeout=60"
        settings = server_of(SourcePlace(front.url, allow_insecure=True))
        assert settings is not None
        self._administrator = ServerConnection(ServerClient(settings, settings.hosts[0]))
        self.exports = self.exporting()

    def close(self) -> None:
        """End the connections of the administrator."""
        self._administrator.close()

    def exporting(self, *, ignore_row_policies: bool = False) -> RealExport:
        place = SourcePlace(self.uri, allow_insecure=True, ignore_row_policies=ignore_row_policies)
        return RealExport(self._administrator, self._root, place)

    def check(self, *options: str) -> dict[str, Any]:
        code, output = self.run("check", "--json", *options)
        found: dict[str, Any] = json.loads(output.splitlines()[0])
        assert code == (0 if found["works"] else 3)
        return found

    def run(self, command: str, *options: str) -> tuple[int, str]:
        """Run a command on the table as the user; return the exit code and the output."""
        out, err = io.StringIO(), io.StringIO()
        places = ["--source", self.uri, "--allow-insecure", "--warehouse", str(self._root / "w")]
        code = invoke([command, str(TABLE), *places, *options], out, err)
        # Notes, such as the warning that http is not encrypted, are for people.
        notes = [line for line in err.getvalue().splitlines() if not line.startswith("·")]
        return code, out.getvalue() + "".join(f"{line}\n" for line in notes)

    def has_replicas(self) -> None:
        """Name the server twice from now on, as if it were two replicas."""
        port = self.front.url.rpartition(":")[2]
        self.uri = self.uri.replace(port, f"{port},localhost:{port}")
        self.exports = self.exporting()

    def missing(self) -> list[str]:
        return [grant["statement"] for grant in self.check()["grants"]]

    def given_all(self) -> None:
        """Run what `check` prints."""
        self.front.commands(*self.missing())
        assert self.missing() == []

    def staged(self) -> tuple[tuple[object, ...], ...]:
        """Return what is left in the staging database, asked past the server's faults."""
        return self.front.rows(
            "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
        )

    def refusal(self) -> str:
        with pytest.raises(RefusedError, match=r"Cannot .* as the user 'exporter': ") as raised:
            self.exports.run(TABLE)
        return raised.value.message


@pytest.fixture
def exporter(
    newest_server: ClickHouseFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Exporter]:
    """Make a table, and a user who may nothing; whose exports start no Spark."""
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "check", lambda _: None)
    newest_server.commands(*MADE)
    made = Exporter(newest_server, tmp_path)
    yield made
    made.close()


def test_following_check_from_nothing_leads_to_an_export(exporter: Exporter) -> None:
    """An administrator copies what is printed, until it says that it would work."""
    rounds = 0
    while not (found := exporter.check())["works"]:
        exporter.front.commands(*(grant["statement"] for grant in found["grants"]))
        rounds += 1

    assert rounds <= 2
    found = exporter.exports.statuses(TABLE)
    assert {status for status, _ in found.values()} == {"committed"}
    assert exporter.exports.in_lake(TABLE) == exporter.exports.in_source(TABLE)
    assert exporter.staged() == ()


def test_each_right_taken_away_is_named_before_anything_is_made(exporter: Exporter) -> None:
    """As the statement that gives it, by `check` and by `export`."""
    rights = [
        (privilege, grant["on"])
        for grant in exporter.check()["grants"]
        for privilege in grant["privileges"]
        if grant["on"] not in OF_REPLICAS
    ]
    exporter.given_all()

    assert len(rights) == 20
    given_back: tuple[str, ...] = ()
    for privilege, on in rights:
        exporter.front.commands(*given_back, f"REVOKE {privilege} ON {on} FROM exporter")
        expected = f"GRANT {privilege} ON {on} TO exporter;"
        assert exporter.missing() == [expected]
        assert exporter.refusal().endswith(f"a right is missing. Run {expected}")
        given_back = (expected,)

    assert exporter.staged() == ()
    exporter.front.commands(*given_back)
    assert exporter.missing() == []


def test_what_only_replicated_tables_need_is_not_needed_by_others(exporter: Exporter) -> None:
    exporter.given_all()
    exporter.front.commands(*(f"REVOKE SELECT ON {on} FROM exporter" for on in OF_REPLICAS))
    assert exporter.check()["works"]
    assert {status for status, _ in exporter.exports.statuses(TABLE).values()} == {"committed"}


def test_a_server_without_check_grant_is_asked_what_it_shows(exporter: Exporter) -> None:
    """Wildcards and what was taken away again are read as ClickHouse means them."""
    exporter.given_all()
    exporter.front.fail_next(NO_CHECK_GRANT, times=1000, containing="CHECK GRANT")

    found = exporter.check()
    assert (found["grants"], found["works"]) == ([], True)
    assert found["server"]["rights"] == "OK, checked with SHOW GRANTS"

    exporter.front.commands(
        "GRANT ALTER, SELECT ON *.* TO exporter",
        "REVOKE SELECT ON db.events FROM exporter",
        "REVOKE ALTER DELETE, CHECK ON mergeberg_staging.* FROM exporter",
    )
    expected = [
        "GRANT SELECT ON db.events TO exporter;",
        "GRANT ALTER DELETE, CHECK ON mergeberg_staging.* TO exporter;",
    ]
    assert exporter.missing() == expected
    assert all(f"a right is missing. Run {one}" in exporter.refusal() for one in expected)


def test_an_administrator_may_make_the_staging_database(exporter: Exporter) -> None:
    """Then no right to make databases is asked for, and none is needed."""
    exporter.front.commands(
        "CREATE DATABASE mergeberg_staging",
        # A user that has no right on it cannot see that it is there.
        "GRANT SELECT ON mergeberg_staging.* TO exporter",
    )
    exporter.given_all()

    assert "CREATE DATABASE" not in str(exporter.front.access.users["exporter"].grants)
    assert {s for s, _ in exporter.exports.statuses(TABLE).values()} == {"committed"}


def test_select_on_columns_is_not_enough_for_a_clone(exporter: Exporter) -> None:
    exporter.given_all()
    exporter.front.commands(
        "REVOKE SELECT ON db.events FROM exporter",
        "GRANT SELECT(p, k, s) ON db.events TO exporter",
    )

    (grant,) = exporter.check()["grants"]
    assert grant["statement"] == "GRANT SELECT ON db.events TO exporter;"
    assert "columns alone is not enough" in grant["privileges"]["SELECT"]
    assert exporter.refusal().endswith("Run GRANT SELECT ON db.events TO exporter;")


def test_where_no_right_can_be_asked_the_first_failure_names_it(exporter: Exporter) -> None:
    """Neither CHECK GRANT nor SHOW GRANTS: what ClickHouse says becomes the statement to run."""
    exporter.given_all()
    for asked in ("CHECK GRANT", "SHOW GRANTS"):
        exporter.front.fail_next(NO_CHECK_GRANT, times=1000, containing=asked)
    taken = (
        ("SELECT", "db.events"),
        ("CREATE DATABASE", "mergeberg_staging.*"),
        ("CREATE TABLE", "mergeberg_staging.*"),
        # ClickHouse names both, whichever of them is missing.
        ("INSERT, ALTER DELETE", "mergeberg_staging.*"),
        ("CHECK", "mergeberg_staging.*"),
    )
    for privilege, on in taken:
        exporter.front.command(f"REVOKE {privilege} ON {on} FROM exporter")
        rights = exporter.check()["server"]["rights"]
        assert rights.startswith("cannot be checked (this version has no GRANT)")
        code, output = exporter.run("export", "--all", "--to", "lake.n.t", "--max-retries", "0")

        assert code == (3 if on == "db.events" else 4)
        assert f"Run GRANT {privilege} ON {on} TO exporter;" in output
        assert exporter.staged() == ()
        exporter.front.command(f"GRANT {privilege} ON {on} TO exporter")


Prepared = Callable[[str], None]


@pytest.mark.parametrize("are_seen", [True, False], ids=["seen", "hidden"])
@pytest.mark.parametrize("kind", ["PERMISSIVE", "RESTRICTIVE"])
def test_rows_that_a_policy_hides_from_the_user_are_not_exported(
    exporter: Exporter,
    kind: str,
    are_seen: bool,  # noqa: FBT001
) -> None:
    """A clone has no policies, so every row would be in the lake."""
    exporter.given_all()
    if are_seen:
        exporter.front.command("GRANT SHOW ROW POLICIES ON *.* TO exporter")
    exporter.front.command(
        f"CREATE ROW POLICY half ON db.events AS {kind} FOR SELECT USING k % 4 < 2 TO exporter"
    )

    found = exporter.check()
    assert not found["works"]
    assert all("--ignore-row-policies" in reason for reason in found["reasons"])
    if are_seen:
        assert "row policies hide rows from it (half ON db.events)" in exporter.refusal()
    else:
        refused = exporter.exports.statuses(TABLE)
        assert {status for status, _ in refused.values()} == {"refused"}
        assert "the user 'exporter' sees 25 of its 50 rows" in refused["0"][1]
    assert exporter.staged() == ()


def test_a_policy_that_hides_one_partition_costs_that_one_alone(exporter: Exporter) -> None:
    exporter.given_all()
    exporter.front.command("CREATE ROW POLICY odd ON db.events FOR SELECT USING p = 1 TO exporter")

    found = exporter.exports.statuses(TABLE)

    assert [found["0"][0], found["1"][0]] == ["refused", "committed"]
    assert "sees 0 of its 50 rows" in found["0"][1]
    assert exporter.staged() == ()


def test_a_policy_for_another_user_refuses_nothing(exporter: Exporter) -> None:
    exporter.given_all()
    exporter.front.commands(
        "CREATE USER analyst",
        "CREATE ROW POLICY some ON db.events FOR SELECT USING p = 1 TO analyst",
        "GRANT SHOW ROW POLICIES ON *.* TO exporter",
    )

    found = exporter.check()
    assert found["works"]
    assert found["server"]["row_policies"] == (
        "for other users only: some ON db.events; no row is hidden"
    )
    assert {s for s, _ in exporter.exports.statuses(TABLE).values()} == {"committed"}


def test_hidden_rows_are_exported_when_the_user_says_so(exporter: Exporter) -> None:
    exporter.given_all()
    exporter.front.command("CREATE ROW POLICY odd ON db.events FOR SELECT USING p = 1 TO exporter")
    exports = exporter.exporting(ignore_row_policies=True)

    assert exporter.check("--ignore-row-policies")["works"]
    assert {s for s, _ in exports.statuses(TABLE).values()} == {"committed"}
    assert len(exports.in_lake(TABLE)) == 100


@pytest.mark.parametrize("condition", ["k % 4 < 2", "k % 10 NOT IN (4, 5)"])
def test_a_policy_on_the_snapshot_refuses_parts_with_deleted_rows(
    exporter: Exporter, condition: str
) -> None:
    """Harm prevented: rows that a policy hides in the staging database are taken for deleted."""
    exporter.given_all()
    exporter.front.commands(
        "GRANT CHECK ON db.events TO exporter",
        "DELETE FROM db.events WHERE k % 10 IN (2, 3)",
        f"CREATE ROW POLICY some ON db.events FOR SELECT USING {condition} TO exporter",
    )
    settings = server_of(SourcePlace(exporter.uri, allow_insecure=True))
    assert settings is not None
    client = ServerClient(settings, settings.hosts[0])
    with contextlib.closing(ServerConnection(client)) as connection:
        capabilities = probe_capabilities(connection)
        parts = tuple(
            FrozenPart(part, part.name, part.rows, part.disk)
            for part in list_parts(connection, capabilities, TABLE)
        )
        ids = {part.part.partition_id for part in parts}
        of = {one: tuple(p for p in parts if p.part.partition_id == one) for one in ids}
        proved = prove(connection, capabilities, Clone(TABLE, TABLE, of), ())

    assert all(one.part.has_lightweight_delete for one in parts)
    assert (proved.partitions, {*proved.refused}) == ((), ids)
    assert all("hides rows from the exporter" in e.message for e in proved.refused.values())


def test_rows_deleted_lightly_are_not_taken_for_hidden(exporter: Exporter) -> None:
    exporter.given_all()
    exporter.front.command("DELETE FROM db.events WHERE k % 10 = 3")

    assert exporter.check()["works"]
    assert {s for s, _ in exporter.exports.statuses(TABLE).values()} == {"committed"}
    assert len(exporter.exports.in_lake(TABLE)) == 90


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("readonly = 1", "it has readonly = 1, and a snapshot creates a staging table"),
        ("readonly = 2", "it has readonly = 2, and a snapshot creates a staging table"),
        ("allow_ddl = 0", "it has allow_ddl = 0, and a snapshot creates a staging table"),
    ],
)
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_user_that_may_change_nothing_is_refused(
    exporter: Exporter, profile: str, expected: str, hosts: int
) -> None:
    """Before anything is asked that such a user may not even ask, also of several replicas."""
    exporter.given_all()
    exporter.front.command(f"ALTER USER exporter SETTINGS {profile}")
    if hosts > 1:
        exporter.has_replicas()

    found = exporter.check()
    (reason,) = found["reasons"]
    assert expected in reason
    assert found["server"]["rights"] == "not checked, because the profile forbids every export"
    assert expected in exporter.refusal()
    code, output = exporter.run("export", "--all", "--to", "lake.n.t")
    assert (code, output.count("\n")) == (3, 2)
    assert exporter.staged() == ()


def test_invisible_staging_tables_are_not_reported_as_none(exporter: Exporter) -> None:
    """To a user without any right on their database it looks empty."""
    exporter.given_all()
    exporter.front.commands(
        "CREATE DATABASE mergeberg_staging",
        "CREATE TABLE mergeberg_staging.`5bce98f7_6434_1n0_87dcbf99_1` (k Int64) ENGINE = Memory",
    )
    place = SourcePlace(exporter.uri, allow_insecure=True)
    with open_source(place) as source:
        assert len(source.leftovers()) == 1
    assert exporter.check()["server"]["staging_tables"] == 1

    exporter.front.command("REVOKE ALL ON mergeberg_staging.* FROM exporter")

    expected = r"may not see them. Run GRANT DROP TABLE ON mergeberg_staging\.\* TO exporter;"
    with open_source(place) as source, pytest.raises(RefusedError, match=expected):
        source.leftovers()
    assert exporter.check()["server"]["staging_tables"] is None


def test_a_cluster_that_nobody_may_ask_for_or_that_is_not_there(exporter: Exporter) -> None:
    """Harm prevented: a sharded table is taken for one without shards."""
    code, output = exporter.run("check", "--cluster", "main")
    assert code == 4
    assert "Run GRANT SELECT ON system.clusters TO exporter;" in output

    exporter.front.command("GRANT SELECT ON system.clusters TO exporter")

    code, output = exporter.run("check", "--cluster", "main")
    assert code == 3
    assert "Cannot find the cluster 'main': the server knows none. Leave --cluster out" in output


def test_each_command_of_several_replicas_lists_every_missing_right(
    exporter: Exporter,
) -> None:
    """Also where the user may not see how far the replicas are behind."""
    exporter.has_replicas()

    code, output = exporter.run("export", "--all", "--to", "lake.n.t")

    assert code == 3
    assert all(f"Run {statement}" in output for statement in exporter.missing())
    code, output = exporter.run("check")
    assert (code, output.count("GRANT SELECT ON system.replicas TO exporter;")) == (3, 1)
    assert "staging        not known yet, in mergeberg_staging" in output


@pytest.mark.parametrize(
    ("code", "name", "text", "advice"),
    [
        (201, "QUOTA_EXCEEDED", "Quota for user `exporter` for 3600s has been exceeded", "quota"),
        (202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous", "max_concurrent_queries"),
    ],
)
def test_a_limit_of_the_user_is_one_line_with_what_to_raise(
    exporter: Exporter, code: int, name: str, text: str, advice: str
) -> None:
    exporter.given_all()
    exporter.front.fail_next(error(code, name, text), times=50, containing="system.tables")

    exit_code, output = exporter.run("export", "--all", "--to", "lake.n.t")

    assert (exit_code, output.count("\n")) == (4, 2)
    assert text in output
    assert advice in output
    assert exporter.staged() == ()
