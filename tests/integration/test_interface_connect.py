"""Spark Connect: a server of Spark's own, and a client that has nothing but `pyspark-client`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from spark_ext.access.check import POLICY
from tableformat.receipt import Receipt
from tests.repository.source_files import ROOT
from tests.services.server_process import free_port
from tests.support.interfaces import (
    BIG_ROWS,
    EVENTS,
    Ended,
    Interfaces,
    blocks,
    reads_as,
    wait_while_it_runs,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.nightly]

CLIENT = ROOT / ".readers" / "connect" / "bin" / "python"
PORT = free_port()
GRANTS = """
GRANT ALL ON *.* TO paula;
GRANT SELECT ON system.replicated_partition_exports TO alice;
"""
SHOWN = "SELECT count(*) FROM mergeberg.system.replicated_partition_exports WHERE query_id = 'x'"
LOOK = f"""
from pyspark.sql import SparkSession

for user in ("alice", "eve"):
    spark = SparkSession.builder.remote("sc://127.0.0.1:{PORT}/;user_id=" + user).create()
    try:
        print(*spark.sql({SHOWN!r}).collect()[0])
    except Exception as refused:
        print(str(refused).splitlines()[0])
"""


@pytest.fixture(scope="module")
def interfaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interfaces]:
    """Run the server of the page, with a policy."""
    root = tmp_path_factory.mktemp("connect")
    policy = root / "policy.sql"
    policy.write_text(GRANTS)
    made = Interfaces.made(
        root,
        {
            POLICY: str(policy),
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(PORT),
        },
    )
    (command,) = blocks("connect.md", "sh")
    server = made.server("server", command.splitlines()[-1], PORT)
    server.start()
    yield made
    server.kill()


def client(interfaces: Interfaces, program: str) -> subprocess.Popen[str]:
    """Start a program of the user paula."""
    assert CLIENT.exists(), "there is no client: run make set-up-test-all"
    return subprocess.Popen(
        [CLIENT, "-I", "-c", program],
        cwd=interfaces.root,
        env={**os.environ, "SPARK_USER": "paula"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows_of(finished: Receipt) -> tuple[object, ...]:
    """Return which rows of the source a file has, wherever they were frozen."""
    return tuple((one.source_name, one.start, one.stop) for one in finished.ranges)


def test_a_client_without_anything_of_ours_exports_cancels_and_goes_on(
    interfaces: Interfaces,
) -> None:
    """Harm prevented: a cancelled export that loses what was finished, or exports it twice."""
    # It waits for a line before it cancels.
    process = client(
        interfaces, "".join(blocks("connect.md", "python")).replace("15002", str(PORT))
    )

    wait_while_it_runs(
        process,
        lambda: len(interfaces.finished("analytics.big")) > 1,
        "files of the export that is cancelled were finished",
    )
    finished = interfaces.finished("analytics.big")
    ended = Ended.of(process, "\n")

    assert ended.code == 0, ended.err
    assert reads_as("".join(blocks("connect.md", "text"))).fullmatch(ended.out.strip()), ended
    # What was finished when it was cancelled is not exported again, and is in the lake.
    of_first = {one.epoch for one in finished}
    after, in_lake = interfaces.finished("analytics.big"), interfaces.data_files("analytics.big")
    again = {rows_of(one) for one in after if one.epoch not in of_first}
    kept = {rows_of(one) for one in after if one.file_path.removeprefix("file://") in in_lake}
    rows = {rows_of(one) for one in finished}
    assert (rows & again, rows - kept, bool(again)) == (set(), set(), True)
    assert interfaces.numbers("analytics.big", "id") == list(range(BIG_ROWS))
    assert interfaces.numbers("analytics.days", "n") == EVENTS


def test_the_user_of_a_client_has_the_rights_of_his_name(interfaces: Interfaces) -> None:
    """Harm prevented: `current_user()` is the server's own user there, who may do everything."""
    ended = Ended.of(client(interfaces, LOOK))

    shown, denied = ended.out.splitlines()
    assert shown == "0", ended
    assert denied.startswith(
        "Cannot read system.replicated_partition_exports: eve: Not enough privileges. To execute "
        "this query, it's necessary to have the grant SELECT ON system.replicated_partition_exports"
    )
