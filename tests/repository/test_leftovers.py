"""A test file that leaves something behind fails, and the files after it do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT

SOON = "from tests.support import leftovers\nleftovers._SECONDS = 0.2\n"
IMPORTS = "import socket, subprocess, sys, threading\nimport pytest\n"
THREAD = """
ENDED = threading.Event()
def test_it(): threading.Thread(target=ENDED.wait, name="forgotten", daemon=True).start()
"""
PROCESS = """
STARTED = []
def test_it():
    waits = [sys.executable, "-c", "input('forgotten')"]
    STARTED.append(subprocess.Popen(waits, stdin=subprocess.PIPE))
"""
SOCKET = """
OPENED = []
def test_it(): OPENED.append(socket.create_server(("127.0.0.1", 0)))
"""
OF_MODULE = """
@pytest.fixture(scope="module")
def thread():
    ended = threading.Event()
    started = threading.Thread(target=ended.wait)
    started.start()
    yield
    ended.set()
    started.join()
def test_it(thread): pass
"""
OF_SESSION = """
@pytest.fixture(scope="session")
def server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
def test_it(server): pass
"""
SERVERS = """
# Starts another process at the first line that it reads, and ends both at the second one.
WORDS = [sys.executable, "-uc", (
    "import subprocess, sys\\n"
    "input()\\n"
    "waits = [sys.executable, '-c', 'input()']\\n"
    "with subprocess.Popen(waits, stdin=subprocess.PIPE):\\n"
    "    print('started')\\n"
    "    input()"
)]
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
def start(): return subprocess.Popen(WORDS, **PIPES)
@pytest.fixture(scope="session")
def servers():
    running = [start()]
    yield running
    running[0].communicate("end\\n")
"""
STARTED_LATER = """
def test_it(servers):
    print("start", file=servers[0].stdin, flush=True)
    assert servers[0].stdout.readline() == "started\\n"
"""
STARTED_AGAIN = """
def test_it(servers):
    servers[0].kill()
    servers[0].communicate()
    servers[0] = start()
"""


def run(directory: Path, text: str) -> str:
    """Run a test file and another one after it; return what the run printed."""
    (directory / "conftest.py").write_text(SOON)
    (directory / "test_a.py").write_text(IMPORTS + text)
    (directory / "test_b.py").write_text("def test_of_another_file(): pass\n")
    (directory / "pytest.ini").write_text("[pytest]\n")
    options = [
        "-p",
        "tests.support.leftovers",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-rEf",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(directory)],
        check=False,
        capture_output=True,
        cwd=ROOT,
        text=True,
    )
    return ended.stdout


@pytest.mark.parametrize(
    ("text", "left"),
    [(THREAD, "thread forgotten"), (PROCESS, "process "), (SOCKET, "socket ")],
    ids=["thread", "process", "socket"],
)
def test_a_file_that_leaves_something_fails_and_names_it(
    tmp_path: Path, text: str, left: str
) -> None:
    """Harm prevented: a later file fails by chance for what this one left."""
    output = run(tmp_path, text)

    assert f"this file leaves behind: {left}" in output, output
    assert "2 passed, 1 error" in output
    assert "test_a.py::test_it" in output.rpartition("short test summary")[2]


@pytest.mark.parametrize(
    "text",
    [OF_MODULE, OF_SESSION, SERVERS + STARTED_LATER, SERVERS + STARTED_AGAIN],
    ids=["module", "session", "started later", "started again"],
)
def test_what_a_fixture_ends_or_the_session_shares_is_not_left(tmp_path: Path, text: str) -> None:
    assert "= 2 passed in " in run(tmp_path, text).splitlines()[-1]
