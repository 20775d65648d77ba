"""Whether an owner or a job may still be alive: only a process that is known to be gone is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import processes
from catalog.processes import can_judge, job_may_be_alive, may_be_alive, new_job, this_process


def _of_a_dead_process() -> tuple[str, str, str]:
    code = "from catalog.processes import *; p = this_process(); print(p.pid, p.start, new_job())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid, start, job = done.stdout.split()
    return pid, start, job


def test_this_process_is_alive() -> None:
    """Harm prevented: a run takes the lease of its own sibling thread away."""
    assert may_be_alive(this_process())
    assert job_may_be_alive(new_job())


def test_a_process_that_ended_is_dead() -> None:
    """Harm prevented: after a kill the same command waits for a lease that nobody holds."""
    pid, start, job = _of_a_dead_process()

    assert not may_be_alive(replace(this_process(), pid=int(pid), start=start))
    assert not job_may_be_alive(job)


def test_a_process_that_has_the_number_of_a_dead_one_is_another() -> None:
    """Harm prevented: a number that is used again keeps a dead owner alive for ever."""
    number, between, table = this_process().start.partition("n")
    # Ticks since boot are exact, and seconds, where the table has no name, are nearly so.
    later = int(number) + (1 if table else 10)

    assert not may_be_alive(replace(this_process(), start=f"{later}{between}{table}"))


def test_a_process_of_another_container_of_the_same_host_name_is_left_alone() -> None:
    """Harm prevented: its number is free here, and its staging tables are dropped under it."""
    assert may_be_alive(replace(this_process(), pid=999_999_999, start="1n00000000"))


def test_what_runs_on_another_host_is_left_alone() -> None:
    """Harm prevented: the staging tables of a job on another host are dropped under its feet."""
    assert may_be_alive(replace(this_process(), host="elsewhere", pid=1))
    assert job_may_be_alive("0badcafe_1_1_aaaaaaaa")


def test_a_job_of_another_form_is_left_alone() -> None:
    """Harm prevented: somebody else's table in the staging database is dropped."""
    assert job_may_be_alive("backup_of_events")
    assert job_may_be_alive("")


def test_only_jobs_of_this_host_and_its_processes_can_be_judged() -> None:
    """Harm prevented: a job that nobody here can see is taken for dead, or kept for ever."""
    _, _, dead = _of_a_dead_process()
    host, pid, start, tail = new_job().split("_")

    assert can_judge(new_job())
    assert can_judge(dead)
    assert can_judge(f"0badcafe_{pid}_{start}_{tail}") is False
    assert can_judge(f"{host}_{pid}_1n00000000_{tail}") is False, "before the last start"
    assert can_judge("backup_of_events") is None
    assert can_judge(f"{host}_{pid}_{start}_{tail}_1") is None


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take this machine for one without /proc, as macOS is."""
    monkeypatch.setattr(processes, "_PROC", tmp_path / "no-proc")


def _ps(monkeypatch: pytest.MonkeyPatch, directory: Path, command: str) -> None:
    """Let `ps` be a program that says one start time of every process, when asked as macOS's is."""
    program = directory / "ps"
    program.write_text(
        f"""#!/bin/sh
test "$LC_ALL $TZ $1 $2 $3" = "C UTC0 -o lstart= -p" || exit 1
{command}
"""
    )
    program.chmod(0o700)
    monkeypatch.setattr(processes, "_PS", program)


@pytest.mark.usefixtures("no_proc")
def test_without_proc_the_start_is_what_ps_says() -> None:
    me = this_process()

    assert me.start.endswith("n")
    assert 0 <= time.time() - int(me.start[:-1]) < 24 * 3600
    assert may_be_alive(me)
    assert job_may_be_alive(new_job())
    assert can_judge(new_job())


@pytest.mark.usefixtures("no_proc")
def test_without_proc_a_process_that_ended_is_dead() -> None:
    """Harm prevented: on macOS a lease and the leftovers of a killed export wait for their time."""
    pid, _, _ = _of_a_dead_process()
    me = this_process()
    host, _, start, tail = new_job().split("_")

    assert not may_be_alive(replace(me, pid=int(pid)))
    assert not job_may_be_alive(f"{host}_{pid}_{start}_{tail}")


@pytest.mark.usefixtures("no_proc")
def test_without_proc_the_start_distinguishes_processes_of_one_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Harm prevented: a number that is used again keeps a dead owner alive for ever."""
    _ps(monkeypatch, tmp_path, "echo 'Tue Jan  2 10:00:00 2024    '")
    me = this_process()

    assert me.start == "1704189600n"
    assert may_be_alive(me)
    assert may_be_alive(replace(me, start="1704189601n")), "two clocks may be a second apart"
    assert not may_be_alive(replace(me, start="1704189610n"))


@pytest.mark.usefixtures("no_proc")
@pytest.mark.parametrize("command", ["", "exit 1", "echo no date"])
def test_where_nothing_says_the_start_the_number_alone_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """Harm prevented: a run takes a lease that is its own, or waits for one that nobody holds."""
    _ps(monkeypatch, tmp_path, command)
    pid, _, _ = _of_a_dead_process()
    me = this_process()

    assert (me.pid, me.start) == (os.getpid(), "unknown")
    assert may_be_alive(me)
    assert not may_be_alive(replace(me, pid=int(pid)))
    assert job_may_be_alive(new_job())
    assert can_judge(new_job())


@pytest.mark.usefixtures("no_proc")
def test_where_there_is_no_ps_the_number_alone_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "_PS", tmp_path / "none")

    assert this_process().start == "unknown"
    assert may_be_alive(this_process())


def test_an_owner_of_unknown_start_is_left_alone_where_starts_are_known() -> None:
    """Harm prevented: what another system of the same host name holds is taken from it."""
    pid, _, _ = _of_a_dead_process()
    other = replace(this_process(), pid=int(pid), start="unknown")

    assert may_be_alive(other) is (processes._process_table() != "")
