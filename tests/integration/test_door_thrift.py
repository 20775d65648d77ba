"""Spark's Thrift server, and beeline: what JDBC programs see."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.front_doors import EVENTS, Doors, blocks, reads_as
from tests.services.server_process import free_port

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PORT = free_port()


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Run the server of the page."""
    made = Doors.made(tmp_path_factory.mktemp("thrift"), {"spark.master": "local[2]"})
    command = blocks("thrift.md", "sh")[0].splitlines()[-1].replace("10000", str(PORT))
    server = made.server("server", command, PORT)
    server.start()
    yield made
    server.kill()


def test_beeline_exports_and_is_told_what_is_wrong(doors: Doors) -> None:
    (statements,) = blocks("thrift.md", "sql")
    (doors.root / "statements.sql").write_text(statements)
    command = blocks("thrift.md", "sh")[1].replace("10000", str(PORT))

    ended = doors.run(shlex.split(command))

    # Without a terminal beeline prints a prompt that is `null`, and blanks.
    lines = [line.removeprefix("null").rstrip() for line in ended.out.splitlines()]
    out = "\n".join(line for line in lines if line)
    assert reads_as(blocks("thrift.md", "text")[0]).fullmatch(out), ended
    assert reads_as(blocks("thrift.md", "error")[0]).search(ended.err), ended.err
    assert ended.code == 2
    assert doors.numbers("analytics.months", "n") == EVENTS
