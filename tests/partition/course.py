"""What happens to the links between two groups and the services, and what must come of it.

Cuts: in the middle of an export nothing arrives any more on the link of one group, and nobody is
informed, until its sessions and leases end; the other group has to finish everything meanwhile;
then the link is healed, and every process of the first has to find out. Packets: each link is like
this for some seconds, then like that.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.chaos.world import World, clock
from tests.partition.group import Group, became
from tests.partition.setting import Setting
from tests.services.packets.conditions import CLEAN, CUT, Conditions

__all__ = ["CONDITIONS", "Course"]

_MOST_GROWN: Final = 8
_PATIENCE: Final = 120.0
"""Seconds after which what should have come is not waited for any more."""
_TO_THE_MIDDLE: Final = 10.0
_LONGEST_CUT: Final = 25.0
"""Seconds that a cut may go on when all is done that it was for, and everybody has given up."""
_LONGEST_CONDITION: Final = 12.0
_Drawn = Callable[[random.Random], Conditions]

CONDITIONS: Final[Mapping[str, _Drawn]] = {
    "loss": lambda c: Conditions(loss=c.uniform(0.01, 0.05)),
    "duplication": lambda c: Conditions(duplication=c.uniform(0.01, 0.1)),
    "reordering": lambda c: Conditions(reordering=c.uniform(0.02, 0.2)),
    "corruption": lambda c: Conditions(corruption=c.uniform(0.01, 0.05)),
    "forgery": lambda c: Conditions(forgery=c.uniform(0.002, 0.01)),
    "delay": lambda c: Conditions(delay=c.uniform(0.02, 0.2)),
    "rate": lambda c: Conditions(rate=c.uniform(10e3, 100e3)),
    "all of it": lambda c: Conditions(
        loss=c.uniform(0.01, 0.03), duplication=0.02, reordering=0.05, corruption=0.01,
        forgery=0.002, delay=c.uniform(0.01, 0.05), rate=c.uniform(200e3, 1e6),
    ),
}  # fmt: skip


@dataclass
class Course:
    """What happens, how often it did, and what of it went wrong."""

    world: World
    setting: Setting
    groups: tuple[Group, Group]
    chance: random.Random
    happened: Counter[str] = field(default_factory=Counter)
    cuts: list[float] = field(default_factory=list)
    found_out: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def cut(self) -> None:
        """Cut one group off, heal its link, and see what comes of it."""
        victim, other = self.chance.sample(self.groups, 2)
        name = victim.host.name
        self.grow()
        sessions = self._cut_in_the_middle(victim)
        began, since = time.monotonic(), clock()
        self.happened["cut in the middle" if sessions else "cut between exports"] += 1
        self.grow()
        content = self.world.content()
        self._must(
            lambda: not sessions & self.setting.keeper.sessions, f"the sessions of {name} end"
        )
        self.happened["sessions that ended"] += len(sessions)
        self._must(
            lambda: other.has_exported(content, since), f"{other.host.name} finish without {name}"
        )
        time.sleep(self.chance.uniform(0, _LONGEST_CUT))
        before = victim.runs()
        victim.host.link.become(CLEAN)
        healed = time.monotonic()
        self.cuts.append(healed - began)
        self._must(lambda: victim.have_all_run_since(before), f"every process of {name} find out")
        self.found_out.append(time.monotonic() - healed)

    def _cut_in_the_middle(self, victim: Group) -> frozenset[int]:
        """Cut a group off that holds leases, if it comes to that; return its sessions that do."""
        holders, name, link = self.setting.holders, victim.host.name, victim.host.link
        deadline = time.monotonic() + _TO_THE_MIDDLE
        while True:
            became(lambda: bool(holders.sessions_of(name)), deadline - time.monotonic())
            link.become(CUT)
            sessions = holders.sessions_of(name)
            if sessions or time.monotonic() > deadline:
                return sessions
            # They were given back in the last moment.
            link.become(CLEAN)

    def packets(self) -> None:
        """Let each link be like something else for some seconds."""
        names = list(CONDITIONS)
        self.chance.shuffle(names)
        for name in names:
            self.grow()
            for group in self.groups:
                group.host.link.become(CONDITIONS[name](self.chance))
            self.happened[name] += 1
            time.sleep(self.chance.uniform(_LONGEST_CONDITION / 3, _LONGEST_CONDITION))

    def heal(self) -> None:
        """Let all links be clean, and every process end what it does."""
        for group in self.groups:
            group.host.link.become(CLEAN)
        self.wait_for_all()

    def wait_for_all(self) -> None:
        """Let every process end a run."""
        before = [group.runs() for group in self.groups]
        for group, runs in zip(self.groups, before, strict=True):
            does = partial(group.have_all_run_since, runs)
            self._must(does, f"every process of {group.host.name} end a run")

    def grow(self) -> None:
        """Insert into a few partitions of the source."""
        content = self.world.content()
        for partition in self.chance.sample(sorted(content), self.chance.randint(1, _MOST_GROWN)):
            content[partition].append(self.chance.randint(1, 9))
        self.world.write(content)

    def _must(self, is_so: Callable[[], bool], what: str) -> None:
        if not became(is_so, _PATIENCE):
            self.wrong.append(f"stuck: {_PATIENCE:.0f} s were too few to see {what}")
