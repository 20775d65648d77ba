"""Two groups of processes on two hosts export one table over networks that break or are bad.

    python -m tests.partition --minutes 10 --seed 7 --workers 2 --partitions 30 [--packets]

Each host is a network namespace of its own, and reaches Keeper, catalog and object store over one
link, through a relay of packets. Without `--packets` links are cut for longer than sessions and
leases live, and healed; with it packets are lost, doubled, reordered, corrupted, late, slow.

Needs Linux and root; fails without. Prints what happened and what the judge of `tests/chaos` found,
and ends with 1 when anything is wrong, or did not happen. Part of `make soak`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chaos.ends import begin, counted, end, say
from tests.chaos.world import World, quiet
from tests.partition.course import CONDITIONS, Course
from tests.partition.group import Group
from tests.partition.setting import over_tls
from tests.services.packets.conditions import Happened
from tests.services.packets.networks import host, leave_the_machine

_HOSTS: Final = ("one", "two")
_SEEN_BY_THE_KERNEL: Final = ("RetransSegs", "InCsumErrors")


def main() -> int:
    """Run, judge, tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.partition")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2, help="of each group")
    parser.add_argument("--partitions", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--packets", action="store_true", help="bad packets instead of cuts")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(10**6)  # noqa: S311  chance
    say(f"seed {seed}, {given.workers} workers on each host, {given.partitions} partitions")
    leave_the_machine()
    quiet()
    with (
        tempfile.TemporaryDirectory(prefix="mergeberg-hosts-") as name,
        contextlib.ExitStack() as up,
    ):
        world, chance = World(Path(name)), random.Random(seed)  # noqa: S311  chance
        world.write({f"p{n}": [chance.randint(1, 9)] for n in range(given.partitions)})
        setting = up.enter_context(over_tls(world))
        hosts = [up.enter_context(host(n, i, seed=seed + i)) for i, n in enumerate(_HOSTS, start=1)]
        first, second = (Group(one, world) for one in hosts)
        course = Course(world, setting, (first, second), chance)
        setting.calm(world)
        begin(world)
        setting.rough(world)
        try:
            for group in course.groups * given.workers:
                group.start(chance.randrange(10**9))
            course.wait_for_all()
            ends = time.monotonic() + given.minutes * 60
            while time.monotonic() < ends:
                course.packets() if given.packets else course.cut()
            course.heal()
            course.wrong += (f"died: {name}" for group in course.groups for name in group.died())
        finally:
            first.stop()
            second.stop()
        setting.calm(world)
        verdict = end(world)
        _show(course)
        verdict.show()
        missing = [*_missing(course, packets=given.packets), *course.wrong]
        for text in missing:
            say(f"WRONG {text}")
        return 1 if verdict.wrong or missing else 0


def _show(course: Course) -> None:
    """Print what happened to the links, and what each group reported."""
    say(f"happened: {counted(course.happened)}")
    if course.cuts:
        shortest, longest = min(course.cuts), max(course.cuts)
        say(
            f"cut for {shortest:.1f} to {longest:.1f} s, {sum(course.cuts):.0f} s together; "
            f"found out within {max(course.found_out):.1f} s"
        )
    for group in course.groups:
        one = group.host
        packets = Counter({str(what): count for what, count in one.link.counted.items()})
        kernel = Counter({name: one.figure(name) for name in _SEEN_BY_THE_KERNEL})
        say(f"host {one.name}: packets: {counted(packets)}; its kernel: {counted(kernel)}")
        ended = sum(group.runs().values())
        say(
            f"host {one.name}: {ended} runs, of which errors ended {counted(group.errors())}; "
            f"answers: {counted(group.statuses())}"
        )


def _missing(course: Course, *, packets: bool) -> Iterator[str]:
    """Yield what this run was for and did not happen."""
    seen = sum((group.host.link.counted for group in course.groups), Counter[Happened]())
    if packets:
        # Whether more comes than a rate carries is up to the machine; that it waits is not.
        wanted = set(Happened) - {Happened.CUT_OFF, Happened.OVERFLOWED}
        yield from (f"never happened: {name}" for name in set(CONDITIONS) - set(course.happened))
        for name in _SEEN_BY_THE_KERNEL:
            if not any(group.host.figure(name) for group in course.groups):
                yield f"never happened: no kernel counted {name}"
    else:
        wanted = set[Happened]({Happened.CUT_OFF})
        if not course.happened["sessions that ended"]:
            yield "never happened: no session ended in a cut"
    yield from (f"never happened: no packet was {what}" for what in wanted if not seen[what])


if __name__ == "__main__":
    sys.exit(main())
