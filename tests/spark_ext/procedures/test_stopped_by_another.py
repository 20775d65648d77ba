"""An UPDATE of one process is stopped by the DROP of another: `mergeberg alter` twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.repository.source_files import ROOT
from tests.support.session_lake import export_all, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

COMMAND = "from spark_ext.cli.main import run; run()"
HELD = f"""
import sys
from tableformat.operations.statement_commit import Stopping

look = Stopping.look

def held(*given):
    print("held", flush=True)
    sys.stdin.readline()
    look(*given)

Stopping.look = held
{COMMAND}
"""


@contextmanager
def alters(
    places: Places, statement: str, program: str = COMMAND
) -> Iterator[subprocess.Popen[str]]:
    """Run `mergeberg alter` in a process of its own; it is ended with the test."""
    words = ("alter", statement, "--warehouse", str(places.warehouse))
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=places.root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_one_says_that_it_was_stopped_and_by_whom_and_the_other_is_done(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: two users wait for one another, or both succeed by their messages."""
    places.reads_parts = True
    export_all(session, "events", "stopped")
    table, partition = "ALTER TABLE lake.n.stopped", "PARTITION ID '202402'"
    with ExitStack() as stack:
        update = stack.enter_context(
            alters(places, f"{table} UPDATE s = 'x' IN {partition} WHERE id > 0", HELD)
        )
        assert update.stdout is not None
        assert update.stdout.readline() == "held\n"
        drop = stack.enter_context(alters(places, f"{table} DROP {partition}"))
        assert drop.stderr is not None
        asked = drop.stderr.readline()

        updated, why = update.communicate("go on\n")
        dropped, rest = drop.communicate()

    of = rf"PARTITION ID '202402' of job \w+ of process {update.pid} on "
    assert re.match(f"· stopping UPDATE s IN {of}", asked), asked + rest
    assert (drop.returncode, dropped.partition(" · ")[0]) == (0, "partition 202402: dropped")
    by = rf"it was stopped by DROP PARTITION ID '202402' of job \w+ of process {drop.pid} on "
    assert re.match(f"partition 202402: killed: {by}", updated), updated
    assert (update.returncode, why.startswith("Next: mergeberg alter ")) == (4, True), why
    assert rows_of(places, "stopped") == 1
