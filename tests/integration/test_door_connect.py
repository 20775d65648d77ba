"""Spark Connect: a server of Spark's own, and a client that has nothing but `pyspark-client`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.front_doors import BIG_ROWS, EVENTS, Doors, Ended, blocks, reads_as, wait_while_it_runs
from tests.repository.source_files import ROOT
from tests.services.server_process import free_port

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CLIENT = ROOT / ".readers" / "connect" / "bin" / "python"
PORT = free_port()


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Run the server of the page."""
    made = Doors.made(
        tmp_path_factory.mktemp("connect"),
        {
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


def client(doors: Doors) -> subprocess.Popen[str]:
    """Start the program of the page, which waits for a line before it cancels."""
    assert CLIENT.exists(), "there is no client: run make test, or make .readers/.connect-py3XX"
    program = "".join(blocks("connect.md", "python")).replace("15002", str(PORT))
    return subprocess.Popen(
        [CLIENT, "-I", "-c", program],
        cwd=doors.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_client_without_anything_of_ours_exports_cancels_and_goes_on(doors: Doors) -> None:
    """Harm prevented: a cancelled export that loses what was finished, or exports it twice."""
    process = client(doors)

    wait_while_it_runs(
        process,
        lambda: len(doors.finished_files("analytics.big")) > 1,
        "files of the export that is cancelled were finished",
    )
    finished = doors.finished_files("analytics.big")
    ended = Ended.of(process, "\n")

    assert ended.code == 0, ended.err
    assert reads_as("".join(blocks("connect.md", "text"))).fullmatch(ended.out.strip()), ended
    assert finished <= doors.data_files("analytics.big")
    assert doors.numbers("analytics.big", "id") == list(range(BIG_ROWS))
    assert doors.numbers("analytics.days", "n") == EVENTS
