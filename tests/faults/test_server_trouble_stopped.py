"""An export that is stopped while it reads from a server: its queries end there, too.

The whole command in a process of its own, with Spark: Ctrl-C, SIGTERM, and `exports cancel` from
another process. Each way of stopping is tried at one of the two servers, and each server is tried:
what ends the queries is the same for all ways, and what they are in which format is the server's.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_ext.cli.main import invoke
from tests.repository.source_files import ROOT
from tests.services.relay import relay
from tests.services.server_process import wait_until
from tests.support.server_trouble import Trouble

ROWS = 500_000
# More than the driver receives; all buffers on the way take less than what is left.
STALLS_AFTER = 5_000_000
# Spark starts slowly on a busy machine.
SECONDS_TO_START = 100.0
RUNS = "SELECT count() FROM system.processes WHERE query_id LIKE 'mergeberg-%'"

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def trouble(request: pytest.FixtureRequest) -> Iterator[Trouble]:
    """Return a server behind a relay, through which exports ask it."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Trouble)
    with relay(int(found.url.rpartition(":")[2])) as found.relay:
        yield found


def large(trouble: Trouble, name: str) -> str:
    """Make a table whose one file takes seconds to write."""
    trouble.filled(name, parts=0)
    trouble.ask(
        f"INSERT INTO db.{name} SELECT 0, number, concat(hex(cityHash64(number)),"
        f" hex(SHA256(toString(number)))) FROM numbers({ROWS})"
    )
    return name


@contextmanager
def reading(trouble: Trouble, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run an export; when the context is entered the server cannot send on what a slice reads."""
    # A shell may have started the tests in its background, where Ctrl-C is ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; from spark_ext.cli.main import run; run()"
    words = ["export", f"db.{name}", "--all", "--to", f"lake.n.{name}", "--manifest-ttl", "0"]
    words += ["--source", trouble.address, "--allow-insecure", "--master", "local[2]", *options]
    export = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=trouble.root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert trouble.relay is not None
    trouble.relay.stall_after(STALLS_AFTER)
    try:
        trouble.relay.wait_until_stalled(SECONDS_TO_START)
        assert trouble.ask(RUNS) != "0"
        yield export
    finally:
        export.kill()
        export.communicate()


def assert_stopped(
    trouble: Trouble, name: str, stop: Callable[[subprocess.Popen[str]], None], *options: str
) -> tuple[int, str, str]:
    """Stop an export that reads; return its exit code and its output."""
    with reading(trouble, name, *options) as export:
        stop(export)
        out, err = export.communicate(timeout=SECONDS_TO_START)
        assert trouble.relay is not None
        # It learns that nobody listens any more.
        trouble.relay.resume()
        wait_until(lambda: trouble.ask(RUNS) == "0", "the queries of the export had ended")
        assert (trouble.in_lake(name), trouble.staged()) == ([], ())
        return export.returncode, out, err


@pytest.mark.soak
@pytest.mark.parametrize("trouble", ["newest"], indirect=True)
def test_ctrl_c_ends_the_queries_at_the_server(trouble: Trouble) -> None:
    name = large(trouble, "interrupted")

    code, _, err = assert_stopped(trouble, name, lambda export: export.send_signal(signal.SIGINT))

    assert code == 130
    assert "Interrupted. Finished partitions are in the lake" in err
    assert f"Next: mergeberg export db.{name}" in err
    trouble.assert_exported_once(name, "--target-file-size", "512")


@pytest.mark.soak
@pytest.mark.parametrize("trouble", ["oldest"], indirect=True)
def test_a_shutdown_ends_the_queries_at_the_server(trouble: Trouble) -> None:
    """After its grace: what would not be finished in it is not waited for."""
    name = large(trouble, "shut_down")

    code, _, err = assert_stopped(
        trouble, name, lambda export: export.send_signal(signal.SIGTERM), "--grace", "0.1"
    )

    assert code == 4
    assert "Cannot finish: the export was stopped" in err
    trouble.assert_exported_once(name, "--target-file-size", "512")


@pytest.mark.parametrize("trouble", ["newest"], indirect=True)
def test_a_cancel_ends_the_queries_at_the_server(trouble: Trouble) -> None:
    """Harm prevented: a server that continues work that nobody wants."""
    name = large(trouble, "cancelled")
    output = io.StringIO()

    def cancel(_: subprocess.Popen[str]) -> None:
        words = ["exports", "cancel", "0", "--table", f"db.{name}"]
        words += ["--warehouse", str(trouble.root / "warehouse")]
        assert invoke(words, output, output) == 0, output.getvalue()

    code, out, err = assert_stopped(trouble, name, cancel)

    assert code == 4, out + err
    assert "partition 0: killed: it was cancelled." in out
    trouble.assert_exported_once(name, "--target-file-size", "512")
