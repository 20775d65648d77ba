"""Spark's Thrift server, and beeline: what JDBC programs see, and which rights their users have."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from pyiceberg.exceptions import NoSuchTableError

from spark_ext.access.check import POLICY
from tests.services.server_process import free_port
from tests.support.interfaces import EVENTS, Ended, Interfaces, blocks, reads_as

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.nightly]

PORT = free_port()
# Who gives no name is `anonymous`.
GRANTS = """
GRANT ALL ON *.* TO anonymous;
GRANT SELECT ON system.replicated_partition_exports, SELECT, SHOW ON ch.db.* TO alice;
"""


@pytest.fixture(scope="module")
def interfaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interfaces]:
    """Run the server of the page, with a policy."""
    root = tmp_path_factory.mktemp("thrift")
    policy = root / "policy.sql"
    policy.write_text(GRANTS)
    made = Interfaces.made(root, {"spark.master": "local[2]", POLICY: str(policy)})
    command = blocks("thrift.md", "sh")[0].splitlines()[-1].replace("10000", str(PORT))
    server = made.server("server", command, PORT)
    server.start()
    yield made
    server.kill()


def beeline(interfaces: Interfaces, statements: str, *options: str) -> Ended:
    """Run statements as the page does; without a terminal beeline prints a prompt, and blanks."""
    (interfaces.root / "statements.sql").write_text(statements)
    command = blocks("thrift.md", "sh")[1].replace("10000", str(PORT))
    ended = interfaces.run([*shlex.split(command), *options])
    lines = [line.removeprefix("null").rstrip() for line in ended.out.splitlines()]
    return Ended(ended.code, "\n".join(line for line in lines if line), ended.err)


def test_beeline_exports_and_shows_errors(interfaces: Interfaces) -> None:
    (statements,) = blocks("thrift.md", "sql")

    ended = beeline(interfaces, statements)

    assert reads_as(blocks("thrift.md", "text")[0]).fullmatch(ended.out), ended
    assert reads_as(blocks("thrift.md", "error")[0]).search(ended.err), ended.err
    assert ended.code == 2
    assert interfaces.numbers("analytics.months", "n") == EVENTS


def test_a_user_has_the_rights_of_his_name_whatever_his_session_sets(
    interfaces: Interfaces,
) -> None:
    """Harm prevented: who may look on may export, with the rights of the server's own user."""
    mine = interfaces.root / "mine.sql"
    mine.write_text("GRANT ALL ON *.* TO alice")

    ended = beeline(
        interfaces,
        f"SET {POLICY}={mine};\n"
        "SELECT count(*) AS seen FROM mergeberg.system.replicated_partition_exports"
        " WHERE destination_table = 'lake.analytics.denied';\n"
        "CALL lake.system.export_partition('analytics.denied', 'ch.db.events', '202401');\n",
        *("-n", "alice"),
    )

    assert ended.out.endswith("seen\n0"), ended
    assert (
        "Cannot call export_partition: alice: Not enough privileges. To execute this query, it's "
        "necessary to have the grant INSERT ON lake.analytics.denied, SHOW ON lake.analytics.*, "
        "SELECT ON system.tables. Ask the administrator of the server. SQLSTATE: 42501"
    ) in ended.err
    assert ended.code == 2
    with pytest.raises(NoSuchTableError):
        interfaces.table("analytics.denied")
