"""An export from a server, against the same one from an embedded ClickHouse.

Both are the whole command on a warm session of two cores. The server is the same engine in a
process of its own on the same host, so what is compared is the way of the rows: over HTTP as Arrow,
or out of files. It takes processors from the tasks, as a server elsewhere would not.
"""

from __future__ import annotations

from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import parse_server
from tests.bench.data import PARTITIONS, Dataset, fill
from tests.bench.report import Goals, Section
from tests.bench.series import process_side, take_pairs
from tests.services.clickhouse_front import clickhouse_front

__all__ = ["measure_served"]


def measure_served(directory: Path, dataset: Dataset, rows: int, pairs: int) -> Section:
    """Measure both ways.

    Args:
        directory: empty; everything is made there.
        dataset: the table.
        rows: of each of its two partitions.
        pairs: measurements of each side.

    Raises:
        TableFormatError: the table could not be made.
    """
    clickhouse, scratch = directory / "clickhouse", directory / "scratch"
    with EmbeddedConnection(clickhouse, create=True) as connection:
        fill(connection, dataset, rows)
    with clickhouse_front() as front:
        settings = parse_server(front.url, environment={}, allow_insecure=True)
        with ServerConnection(ServerClient(settings, settings.hosts[0])) as server:
            fill(server, dataset, rows)
        served, embedded = (
            ("tests.bench.whole_export", source, dataset.table, str(scratch / name))
            for name, source in (("served", front.url), ("embedded", f"chdb:{clickhouse}"))
        )
        with (
            process_side(*served, scratch=scratch) as over_http,
            process_side(*embedded, scratch=directory / "other") as out_of_files,
        ):
            taken = take_pairs(pairs, over_http, out_of_files, rows * len(PARTITIONS))
    title = f"{dataset.name} from a server, Spark local[2], warm, with commits"
    return Section(title, taken, Goals(time=1.5), gated=False, against="embedded")
