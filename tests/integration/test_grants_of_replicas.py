"""What a user needs in addition to the rights for any table, when the table is replicated."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_grants import MADE, OF_REPLICAS, Exporter
from tests.services.clickhouse_front import clickhouse_front
from tests.services.clickhouse_http.faults import error

MACROS = "<macros><shard>1</shard><replica>r1</replica></macros>"
NO_KEEPER = error(
    497,
    "ACCESS_DENIED",
    "exporter: Not enough privileges. To execute this query, it's necessary to have the grant"
    " SELECT(path) ON system.zookeeper",
)


def test_a_replicated_table_needs_the_tables_about_replicas_and_keeper(tmp_path: Path) -> None:
    """Without `system.zookeeper` nobody can tell it from another table of the same path."""
    with clickhouse_front(config=MACROS) as front:
        front.commands(*MADE)
        front.command("DETACH TABLE db.events")
        front.command("ATTACH TABLE db.events AS REPLICATED")
        exporter = Exporter(front, tmp_path)
        exporter.given_all()
        given = str(front.access.users["exporter"].grants)
        assert all(table in given for table in OF_REPLICAS[:2])
        # A server without a Keeper does not have the table, and then nothing is asked of it.
        front.fail_next(NO_KEEPER, times=1000, containing="system.zookeeper")

        expected = "GRANT SELECT ON system.zookeeper TO exporter;"
        assert exporter.missing() == [expected]
        assert exporter.refusal().endswith(f"a right is missing. Run {expected}")
        assert exporter.staged() == ()
