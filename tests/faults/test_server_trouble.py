"""A server that cannot be used as it is: an export says why in one line, and changes nothing.

Once the cause is gone, the same command exports everything once. How each way of not being reached
is printed word for word is in docs/reference/errors.md and its tests; here it is a whole export.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.properties.task_worker import TaskWorker
from tests.services.certificates import Authority
from tests.services.clickhouse_front import ClickHouseFront, FrontTls, clickhouse_front
from tests.services.clickhouse_http import faults
from tests.services.old_clickhouse import OldPair
from tests.services.server_process import wait_until
from tests.support.server_trouble import Trouble

TOO_MANY = faults.error(
    202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous queries. Maximum: 100"
)

PARTITIONS = "SELECT partition_id, any(partition)"


@pytest.fixture(autouse=True)
def _nobody_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "PASSWORD", "TOKEN", "CA_FILE", "CERTIFICATE", "KEY", "CONFIG"):
        monkeypatch.delenv(f"MERGEBERG_SOURCE_{name}", raising=False)


@pytest.fixture
def secure(
    worker: TaskWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Trouble, ClickHouseFront, Authority]]:
    """Run a server over https, whose authority everybody but the exports knows."""
    authority = Authority(tmp_path)
    tls = FrontTls("".join(authority.sign().texts))
    with clickhouse_front(tls=tls) as front:
        made = Trouble(front.url, front, tmp_path, worker, monkeypatch, authority=authority.file)
        yield made, front, authority


def test_a_server_that_is_down_costs_one_line(either: Trouble) -> None:
    """Harm prevented: a lake table, a ledger row or a Spark session for nothing."""
    name = either.filled("down")
    either.process.kill()

    result = either.export(name)

    either.assert_stopped(result, 4, "Connection refused", "Check that the server runs")
    assert not (either.root / "warehouse" / "n").exists()
    either.process.start()
    either.assert_exported_once(name)


def test_a_name_that_nobody_knows_costs_one_line(newest: Trouble) -> None:
    name = newest.filled("unknown_host")

    result = newest.export(name, source="http://no-such-host.invalid")

    newest.assert_stopped(result, 4, "no address is known", "Check the name in --source")
    newest.assert_exported_once(name)


def test_a_wrong_password_and_a_table_that_may_not_be_seen(
    newest: Trouble, newest_server: ClickHouseFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own message; no message has the password in it."""
    name = newest.filled("hidden")
    newest_server.command("CREATE USER exporter IDENTIFIED BY 'the-right-one'")
    newest_server.command("GRANT SELECT ON system.* TO exporter")
    monkeypatch.setenv("MERGEBERG_SOURCE_USER", "exporter")
    monkeypatch.setenv("MERGEBERG_SOURCE_PASSWORD", "the-wrong-one")

    refused = newest.export(name)
    monkeypatch.setenv("MERGEBERG_SOURCE_PASSWORD", "the-right-one")
    unseen = newest.export(name)

    newest.assert_stopped(refused, 4, "Cannot log in", "Check MERGEBERG_SOURCE_USER")
    newest.assert_stopped(unseen, 3, f"Run GRANT SELECT ON db.{name} TO exporter;")
    assert "the-wrong-one" not in refused.everything
    newest_server.command("GRANT ALL ON *.* TO exporter")
    newest.assert_exported_once(name)


def test_the_certificates_of_others_and_of_yesterday(
    secure: tuple[Trouble, ClickHouseFront, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble, front, authority = secure
    name = trouble.filled("secure")

    nobody = trouble.export(name)
    monkeypatch.setenv("MERGEBERG_SOURCE_CA_FILE", str(authority.file))
    front.kill()
    front.tls = FrontTls("".join(authority.sign(days=-1).texts))
    front.start()
    expired = trouble.export(name)

    trouble.assert_stopped(nobody, 4, "not signed by a trusted authority", "CA_FILE")
    trouble.assert_stopped(expired, 4, "its certificate has expired", "Renew it")
    front.kill()
    front.tls = FrontTls("".join(authority.sign().texts))
    front.start()
    trouble.assert_exported_once(name)


def test_a_proxy_that_responds_for_the_server(
    newest: Trouble, newest_server: ClickHouseFront
) -> None:
    name = newest.filled("proxied")
    newest_server.fail_next(faults.PROXY_PAGE)

    result = newest.export(name)

    newest.assert_stopped(result, 4, "another program responded, HTTP 502", "Check host and port")
    newest.assert_exported_once(name)


def test_a_database_and_a_table_that_are_not_there(either: Trouble) -> None:
    name = either.filled("nothing_else_is_called_so")

    table = either.export("nothing_else_is_called_os")
    either.ask(f"RENAME TABLE db.{name} TO db.moved")
    either.ask("CREATE DATABASE IF NOT EXISTS elsewhere")
    renamed = either.export(name)

    either.assert_stopped(table, 3, "has no such table. Did you mean nothing_else_is_called_so?")
    either.assert_stopped(renamed, 3, "has no such table")
    either.ask(f"RENAME TABLE db.moved TO db.{name}")
    either.ask("DROP DATABASE elsewhere")
    either.assert_exported_once(name)


def test_a_database_that_is_not_there(either: Trouble) -> None:
    either.ask("DROP DATABASE IF EXISTS db")

    result = either.export("gone")

    either.assert_stopped(result, 3, "there is no database 'db'")


def test_tables_without_parts(
    worker: TaskWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other engine is named, with where its rows are to be looked for."""
    statements = {
        "View": "VIEW db.one AS SELECT * FROM db.t",
        "Memory": "TABLE db.one (p UInt8) ENGINE = Memory",
        "Log": "TABLE db.one (p UInt8) ENGINE = Log",
        "Merge": "TABLE db.one AS db.t ENGINE = Merge('db', 't')",
        "Buffer": "TABLE db.one AS db.t ENGINE = Buffer('db', 't', 1, 9, 99, 9, 99, 9, 99)",
        "MaterializedView": "MATERIALIZED VIEW db.one TO db.sink AS SELECT p FROM db.t",
    }
    # Of its own, because the embedded engine does not open again what some of them leave.
    with clickhouse_front() as front:
        trouble = Trouble(front.url, front, tmp_path, worker, monkeypatch)
        trouble.filled("t")
        trouble.ask("CREATE TABLE db.sink (p UInt8) ENGINE = MergeTree ORDER BY p")
        for engine, statement in statements.items():
            trouble.ask(f"CREATE {statement}")
            result = trouble.export("one")
            kind = "VIEW" if engine == "View" else "TABLE"
            trouble.ask(f"DROP {kind} db.one SYNC")
            points = engine in ("MaterializedView", "Buffer")
            way = "Name the table that it writes to" if points else "Copy the rows"
            trouble.assert_stopped(result, 3, f"its engine is {engine}, and only tables of", way)
    assert not (trouble.root / "warehouse" / "n").exists()


def test_a_busy_server_is_asked_again(newest: Trouble, newest_server: ClickHouseFront) -> None:
    """A query that only reads is repeated; a server that stays busy costs one line."""
    name = newest.filled("busy")

    newest_server.fail_next(TOO_MANY, times=9, containing=PARTITIONS)
    result = newest.export(name)
    newest_server.mend()
    newest_server.fail_next(TOO_MANY, times=2, containing=PARTITIONS)
    # A statement is sent once; the group is then cloned partition by partition.
    newest_server.fail_next(TOO_MANY, containing="REPLACE PARTITION")

    newest.assert_stopped(
        result, 4, "Too many simultaneous queries", "raise max_concurrent_queries"
    )
    newest.assert_exported_once(name)
    assert newest_server.faults_left == 0


def test_a_staging_database_that_cannot_be_made(
    newest: Trouble, newest_server: ClickHouseFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is named; once it is there the same command works."""
    name = newest.filled("unstaged")
    newest_server.command("CREATE USER exporter")
    newest_server.command("GRANT SELECT ON db.* TO exporter")
    newest_server.command("GRANT SELECT ON system.* TO exporter")
    monkeypatch.setenv("MERGEBERG_SOURCE_USER", "exporter")

    result = newest.export(name)

    newest.assert_stopped(
        result, 3, "Run GRANT CREATE DATABASE", "ON mergeberg_staging.* TO exporter"
    )
    assert not (newest.root / "warehouse" / "n").exists()
    newest_server.command("GRANT ALL ON *.* TO exporter")
    newest.assert_exported_once(name)


def test_a_replica_without_its_keeper_is_refused_until_it_is_back(
    oldest: Trouble, old_servers: OldPair
) -> None:
    """Harm prevented: an export that lacks what the other replicas got meanwhile."""
    oldest.ask("CREATE DATABASE IF NOT EXISTS db")
    oldest.ask(
        "CREATE TABLE db.alone (p UInt8, k UInt64, s String) ENGINE ="
        " ReplicatedMergeTree('/tables/alone', 'r1') PARTITION BY p ORDER BY k"
    )
    oldest.fill("alone", 0, 100)
    old_servers.zookeeper.kill()
    read_only = "SELECT is_readonly FROM system.replicas WHERE table = 'alone'"
    wait_until(lambda: oldest.ask(read_only) == "1", "the replica lost its Keeper")

    result = oldest.export("alone", "--sync-timeout", "0.1")

    for partition in ("0", "1"):
        oldest.assert_failed(result, 3, partition, "its replica is read-only", "Run again later")
    assert oldest.in_lake("alone") == []
    old_servers.mend()
    oldest.assert_exported_once("alone")
    oldest.ask("DROP TABLE db.alone")
