"""Every case there is: `python -m tests.enumeration` (or `make soak`); a short run is in the tests.

First exports, then statements on lake tables. With `--far` ledger and lake are in a ZooKeeper, a
REST catalog and an object store over TLS, and exports alone are tried; each death twice: Keeper
takes the dead one for living, or has ended its session. Prints one line for each scenario and
fault, with the number of seams, and fails when any of them ends in a world that is not as it must
be.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial

from tests.enumeration.cases import Cases
from tests.enumeration.faults import DEATHS, Fault, seams
from tests.enumeration.prepared_cases import Settled, here
from tests.enumeration.scenarios import SCENARIOS
from tests.enumeration.statement_cases import StatementCases
from tests.enumeration.statements import STATEMENTS
from tests.places.services import FarServices, far_services

__all__: list[str] = []


def main(words: Sequence[str] | None = None) -> int:
    """Run the scenarios that are named, by default all; return 1 if any case is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.enumeration")
    parser.add_argument("names", nargs="*", metavar="scenario")
    parser.add_argument("--far", action="store_true", help="over Keeper, a REST catalog and S3")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th seam only")
    given = parser.parse_args(words)
    names, began = given.names, time.monotonic()
    known = _known(far=given.far)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    number = wrong = 0
    with far_services() if given.far else contextlib.nullcontext() as services:
        for name in names or known:
            for settled, faults, then in _ways(services):
                with known[name](settled) as cases:
                    for fault in faults:
                        numbers = seams(cases.steps, fault)[:: given.every]
                        number += len(numbers)
                        wrong += _report(cases, fault, numbers, then)
    _say(f"{number} cases, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _ways(services: FarServices | None) -> tuple[tuple[Settled, tuple[Fault, ...], str], ...]:
    """Return where worlds are, the faults that are tried there, and what comes after each."""
    if services is None:
        return ((here, tuple(Fault), ""),)
    over = partial(services.settled, sessions_end=True)
    return (services.settled, tuple(Fault), ""), (over, DEATHS, ", and its session ends")


def _known(*, far: bool) -> dict[str, Callable[[Settled], Cases | StatementCases]]:
    """Return what begins the cases of each scenario, by its name."""
    found: dict[str, Callable[[Settled], Cases | StatementCases]] = {}
    found |= {one.name: partial(Cases, one) for one in SCENARIOS}
    if not far:
        # The small world of statements has its files here.
        found |= {one.name: partial(StatementCases, one) for one in STATEMENTS}
    return found


def _report(
    cases: Cases | StatementCases, fault: Fault, numbers: tuple[int, ...], then: str
) -> int:
    """Try a fault at all seams of a scenario and tell; return how many ended wrongly."""
    began, wrong = time.monotonic(), 0
    try:
        cases.check(fault, numbers)
    except ExceptionGroup as group:
        wrong = len(group.exceptions)
        traceback.print_exception(group)
    seconds = time.monotonic() - began
    _say(
        f"{'FAIL' if wrong else 'pass'}  {cases.scenario.name:36} {len(numbers):>3} seams  "
        f"{seconds:6.1f} s  {fault.value}{then}"
    )
    return wrong


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
