"""A server of tests ends with them, also where only a watcher can see to it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT
from tests.services.server_process import wait_until
from tests.support.processes import has_ended

# Starts three in a thread that ends, lets one of them stand still and one end, and says it.
STARTS = """
import os, signal, sys, threading
from pathlib import Path
from tests.support.tied_processes import start_tied

made = []
def start():
    with Path("log").open("ab") as log:
        for seconds in (600, 600, 0):
            words = [sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"]
            made.append(start_tied(words, Path.cwd(), log, **HOW))

thread = threading.Thread(target=start)
thread.start()
thread.join()
made[2].wait()
os.kill(made[1].pid, signal.SIGSTOP)
assert [one.poll() for one in made] == [None, None, 0]
print(*(one.pid for one in made), flush=True)
WAY()
"""
WAYS = {"killed": "sys.stdin.read()", "ended": "sys.exit(0)", "fallen": "os.abort()"}
# What the machine has, and the way of one that has no setpriv.
HOWS = ["{}", "{'setpriv': None}"] if shutil.which("setpriv") else ["{'setpriv': None}"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
def test_what_it_started_ends_with_it(tmp_path: Path, how: str, way: str) -> None:
    """Harm prevented: servers of runs that were killed fill a machine."""
    code = STARTS.replace("HOW", how).replace("WAY()", WAYS[way])
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        stdin=pipe,
        stdout=pipe,
    ) as process:
        assert process.stdout is not None
        started = [int(word) for word in process.stdout.readline().split()]
        assert len(started) == 3
        if way == "killed":
            process.send_signal(signal.SIGKILL)

    wait_until(lambda: all(map(has_ended, started)), "all had ended")
    assert (tmp_path / "log").read_bytes() == b""
