"""Every case there is: `python -m tests.enumeration` (or `make soak`); a short run is in the tests.

With `--far` ledger and lake are in a ZooKeeper, a REST catalog and an object store over TLS. Prints
one line for each scenario and fault, with the number of seams, and fails when any of them ends in a
world that is not as it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import traceback
from collections.abc import Sequence

from tests.enumeration.cases import Cases, here
from tests.enumeration.faults import Fault, seams
from tests.enumeration.scenarios import SCENARIOS
from tests.places.services import far_services

__all__: list[str] = []


def main(words: Sequence[str] | None = None) -> int:
    """Run the scenarios that are named, by default all; return 1 if any case is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.enumeration")
    parser.add_argument("names", nargs="*", metavar="scenario")
    parser.add_argument("--far", action="store_true", help="over Keeper, a REST catalog and S3")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th seam only")
    given = parser.parse_args(words)
    names, began = given.names, time.monotonic()
    known = {s.name: s for s in SCENARIOS}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    number = wrong = 0
    with far_services() if given.far else contextlib.nullcontext() as services:
        settled = services.settled if services else here
        for name in names or known:
            with Cases(known[name], settled) as cases:
                for fault in Fault:
                    numbers = seams(cases.steps, fault)[:: given.every]
                    number += len(numbers)
                    wrong += _told(cases, fault, numbers)
    _say(f"{number} cases, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _told(cases: Cases, fault: Fault, numbers: tuple[int, ...]) -> int:
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
        f"{seconds:6.1f} s  {fault.value}"
    )
    return wrong


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
