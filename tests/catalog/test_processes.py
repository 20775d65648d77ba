"""Whether an owner or a job may still be alive: only a process that is known to be gone is dead."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

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
    ticks, between, table = this_process().start.partition("n")

    assert not may_be_alive(replace(this_process(), start=f"{int(ticks) + 1}{between}{table}"))


def test_a_process_of_another_container_with_the_same_host_name_is_left_alone() -> None:
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
