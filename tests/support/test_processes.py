"""Questions of tests about processes have results, also where there is no /proc."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.server_process import wait_until
from tests.support.processes import (
    PROC,
    available_memory,
    command_line,
    descendants,
    environment,
    family_peak,
    has_ended,
    own_peak,
    parent,
    processes,
    stands_still,
)

# Starts another one, which says its number, and waits for the end of its input.
STARTS = """
import subprocess, sys
child = [sys.executable, "-c", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"]
subprocess.run(child, check=False)
"""
both = pytest.mark.parametrize("proc", [PROC, Path("/no/such/place")], ids=["here", "without"])


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """Return a process and the one that it started."""
    pipe, words = subprocess.PIPE, [sys.executable, "-c", STARTS, "a word"]
    environ = {**os.environ, "OF_THE_TEST": "ü"}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


def test_all_that_a_process_started_is_known(family: tuple[int, int]) -> None:
    first, second = family

    assert descendants(first) == {second}
    assert {first, second} <= descendants(os.getpid())
    assert (parent(second), parent(first)) == (first, os.getpid())
    assert {first, second} <= set(processes())


@both
def test_a_process_stands_still_once_all_of_it_does(proc: Path, family: tuple[int, int]) -> None:
    _, child = family

    assert not stands_still(child, proc)
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: stands_still(child, proc), "it stood still")
    assert not has_ended(child)
    os.kill(child, signal.SIGCONT)
    wait_until(lambda: not stands_still(child, proc), "it went on")


def test_words_and_variables_of_a_process_are_known(family: tuple[int, int]) -> None:
    """Harm prevented: a secret in one of them that no test looks at."""
    assert command_line(family[0])[1:] == ("-c", STARTS, "a word")
    assert [environment(one)["OF_THE_TEST"] for one in family] == ["ü", "ü"]


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    wait_until(lambda: has_ended(process.pid), "it had ended, and nobody had taken note")
    assert process.pid in processes()
    process.wait()
    gone = process.pid

    assert has_ended(gone)
    assert not stands_still(gone)
    assert gone not in processes()
    assert (command_line(gone), environment(gone)) == ((), {})
    assert (parent(gone), descendants(gone)) == (0, set())


@both
def test_the_memory_of_this_process_is_known(proc: Path) -> None:
    found = own_peak(proc)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    # The system counts pages of each processor by itself, and adds them up now and then.
    assert 10 << 20 < found <= (most << 10) + (16 << 20)
    assert available_memory() > 10 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of another process")
def test_the_memory_of_a_family_counts_the_processes_that_run() -> None:
    alone = family_peak()
    program = "held = bytearray(b'x') * (64 << 20); print(len(held), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == f"{64 << 20}\n"
        both = family_peak()
        child.communicate("\n")

    assert both - alone > 64 << 20
    assert family_peak() < both
