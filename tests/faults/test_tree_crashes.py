"""A fault meets any act of an export into a tree of Hive directories; run again, it is right.

An act is an effect of the job, or a write of the tree inside one: so also between the log's entry
and the commit file (docs/decisions/0010-hive-destination.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from catalog.hive import open_tree
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.effects import Direct
from tableformat.export.commit import Ports
from tableformat.export.give_up import GivenUp, KillOutcome, TooLate, kill
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ById, ExportOptions
from tableformat.export.slices import FileFormat
from tableformat.ledger import State
from tableformat.messages import plain
from tableformat.names import PartitionId
from tests.enumeration.faults import DEATHS, RESPONDED, Fault
from tests.enumeration.oracle import IN_MAIN
from tests.enumeration.scenarios import Ran
from tests.enumeration.trees import WRITES, Acts, TreeWorld, check_end, check_visible, commits
from tests.support.dying import Dies
from tests.support.scenarios import ALL, Partitions, parts_of

SMALL_FILES = FileFormat(target_file_bytes=80)
EVERYTHING = replace(ALL, format=SMALL_FILES)
ONE = replace(EVERYTHING, selection=ById(PartitionId("p1")))
MOST_RUNS = 2


def nothing(_world: TreeWorld, _request: ExportRequest) -> None: ...


def interrupted(world: TreeWorld, request: ExportRequest) -> None:
    """Die when two of four files are written."""
    with pytest.raises(Dies):
        world.run(request, most_files=2)


def left_by_a_dead_one(world: TreeWorld, request: ExportRequest) -> None:
    """Die when a file is written; what was frozen is lost, and rows are inserted."""
    with pytest.raises(Dies):
        world.run(request, most_files=1)
    world.source.left.clear()
    world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)


def without_commit_file(world: TreeWorld, request: ExportRequest) -> None:
    """Export, and then somebody removes the commit files."""
    world.run(request)
    for found in commits(world).values():
        Path(world.tree.paths.commit(found[0].name).removeprefix("file://")).unlink()


def exported_and_changed(world: TreeWorld, request: ExportRequest) -> None:
    """Export everything that is there, and then rows are inserted into the first partition."""
    world.run(replace(request, options=ExportOptions()))
    world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)


def exported_one_and_changed(world: TreeWorld, request: ExportRequest) -> None:
    """Export one of two partitions, and then rows are inserted into it."""
    exported_and_changed(world, replace(request, selection=ONE.selection))


def replaced_and_changed(world: TreeWorld, request: ExportRequest) -> None:
    """Export and replace, and then rows are deleted."""
    exported_and_changed(world, request)
    world.run(request)
    world.source.by_id["p1"] = parts_of("p1", 7)


def replaced_in_part(world: TreeWorld, request: ExportRequest) -> None:
    """Die when the first file of a replacement is written."""
    exported_and_changed(world, request)
    with pytest.raises(Dies):
        world.run(request, most_files=1)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A command in a prepared world; `always`: the partitions that are exported all the time."""

    name: str
    request: ExportRequest
    parts: Mapping[str, tuple[int, ...]]
    prepare: Callable[[TreeWorld, ExportRequest], None] = nothing
    always: frozenset[str] = frozenset()
    before: int = 0

    @property
    def replaces(self) -> bool:
        """Whether each run replaces what the one before it exported."""
        return self.request.options.force

    def world(self, directory: Path) -> TreeWorld:
        """Make the world in which it begins."""
        directory.mkdir(parents=True)
        held = {name: parts_of(name, *rows) for name, rows in self.parts.items()}
        world = TreeWorld(directory, Partitions(by_id=held))
        self.prepare(world, replace(self.request, to=world.to))
        world.written.clear()
        return world


TWO = {"p1": (7, 5), "p2": (3, 6)}
REPLACING = ExportOptions(force=True, replace_partition=True)
FORCED = replace(EVERYTHING, options=REPLACING)
SCENARIOS = (
    Scenario("first export of one partition", ONE, {"p1": (7, 5)}),
    Scenario("two partitions in one commit", EVERYTHING, TWO),
    Scenario("two partitions, each in its own", replace(EVERYTHING, commit_every=1), TWO),
    Scenario("resume of an interrupted export", EVERYTHING, TWO, interrupted),
    Scenario("after a dead export of other rows", ONE, {"p1": (7, 5)}, left_by_a_dead_one),
    Scenario("commit files that were removed", EVERYTHING, TWO, without_commit_file),
    Scenario("replacement of one partition", replace(ONE, options=REPLACING), {"p1": (7, 5)},
             exported_and_changed, frozenset({"p1"})),
    Scenario("replacement beside a first export", FORCED, TWO, exported_one_and_changed,
             frozenset({"p1"})),
    Scenario("replacement of a replacement", FORCED, {"p1": (7, 5)}, replaced_and_changed,
             frozenset({"p1"}), before=14),
    Scenario("resume of a replacement", FORCED, TWO, replaced_in_part, frozenset(TWO)),
)  # fmt: skip


@pytest.fixture(params=SCENARIOS, ids=[s.name for s in SCENARIOS])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    found: Scenario = request.param
    return found


def outcomes_are_true(
    world: TreeWorld, outcomes: tuple[Outcome, ...], before: frozenset[str] = frozenset()
) -> None:
    """Check that what is reported as exported has its commit file, and what failed has none new.

    Args:
        world: as it is.
        outcomes: what a run reported.
        before: the transactions that were exported before: what failed early tells the last one.
    """
    there = commits(world)
    for outcome in outcomes:
        assert "bug" not in outcome.message, outcome
        if outcome.status in IN_MAIN:
            assert there[outcome.partition_id][0].rows == outcome.rows > 0
        elif outcome.status in (Status.FAILED, Status.REFUSED):
            made = there.get(outcome.partition_id, ())
            new = [c.transaction_id for c in made if c.transaction_id not in before]
            assert new != [outcome.transaction_id]


def run_again(world: TreeWorld, request: ExportRequest) -> None:
    """Run the command until it has nothing more to do."""
    for _ in range(MOST_RUNS):
        ran = world.run(request)
        outcomes_are_true(world, ran.outcomes)
        if ran.error is None and {o.status for o in ran.outcomes} <= {*IN_MAIN}:
            # What a run that was taken for dead froze is swept by the next.
            if world.source.left:
                world.run(request)
            return
    message = f"Run again {MOST_RUNS} times, and it is not done: {ran}"
    raise AssertionError(message)


def acts_of(scenario: Scenario, directory: Path) -> list[str]:
    """Return the acts of a run without a fault."""
    world = scenario.world(directory)
    world.acts = acts = Acts()
    ran = world.run(replace(scenario.request, to=world.to), effects=acts)
    assert ran.error is None
    assert {o.status for o in ran.outcomes} <= {*IN_MAIN}, ran
    return acts.names


def check(scenario: Scenario, directory: Path, fault: Fault, number: int) -> None:
    """Let a fault meet one act, and run it again."""
    world = scenario.world(directory)
    request = replace(scenario.request, to=world.to)
    expected = {p: sum(x.rows for x in held) for p, held in world.source.by_id.items()}
    contents = {p: {rows, sum(scenario.parts[p])} for p, rows in expected.items()}
    contents["p1"].add(scenario.before)

    def other() -> None:
        ran = world.run(request, others_live=fault.others_live)
        assert {o.status for o in ran.outcomes} <= {*IN_MAIN, Status.IN_PROGRESS}, ran
        outcomes_are_true(world, ran.outcomes)

    before = frozenset(c.transaction_id for found in commits(world).values() for c in found)
    world.acts = acts = Acts(number, fault, other)
    try:
        ran = world.run(request, effects=acts)
    except Dies:
        ran = Ran((), None)
    assert len(acts.names) > number, "it was not met"
    check_visible(world, contents)
    assert scenario.always <= set(commits(world)), "what was exported is seen by nobody"
    outcomes_are_true(world, ran.outcomes, before)
    run_again(world, request)
    check_visible(world, contents)
    check_end(world, expected, fault, replaces=scenario.replaces)
    if fault in DEATHS and number < len(acts.names) and not scenario.replaces:
        assert max(world.written.values(), default=0) <= 1, "a finished file was written again"


def sample(names: list[str], fault: Fault) -> tuple[int, ...]:
    """Return the numbers that are tried: of every death, and of what else happens each act once.

    A death after an act is one before the next, unless a write of the tree stands between.
    """
    if fault is Fault.DIES_BEFORE:
        return tuple(range(len(names)))
    if fault is Fault.LOST_RESPONSE:
        return tuple(n for n, name in enumerate(names) if name in RESPONDED)
    if fault is Fault.DIES_AFTER:
        return tuple(n for n, name in enumerate(names) if name.split()[0] in WRITES)
    return tuple(names.index(name) for name in dict.fromkeys(names))


def every(names: list[str], fault: Fault) -> tuple[int, ...]:
    """Return all numbers at which a fault can meet a run."""
    responds = fault is Fault.LOST_RESPONSE
    return tuple(n for n, name in enumerate(names) if name in RESPONDED or not responds)


def check_all(
    scenario: Scenario, directory: Path, fault: Fault, numbers: Callable[..., tuple[int, ...]]
) -> None:
    """Let a fault meet the acts that are asked for, each in a world of its own."""
    wrong: list[Exception] = []
    names = acts_of(scenario, directory / "undisturbed")
    for number in numbers(names, fault):
        try:
            check(scenario, directory / str(number), fault, number)
        except Exception as error:  # noqa: BLE001  all of them are reported, at the end
            error.add_note(f"{scenario.name}: act {number}, {names[number]}: {fault.value}")
            wrong.append(error)
    if wrong:
        raise ExceptionGroup(fault.value, wrong)


each_fault = pytest.mark.parametrize("fault", Fault, ids=[f.name.lower() for f in Fault])


@each_fault
def test_a_fault_at_any_act_and_the_same_command_again_is_exactly_once(
    scenario: Scenario, fault: Fault, tmp_path: Path
) -> None:
    """Harm prevented: rows lost or twice for readers of commit files, or a false outcome."""
    check_all(scenario, tmp_path, fault, sample)


@pytest.mark.soak
@each_fault
def test_a_fault_at_every_single_act_and_a_repeat_is_exactly_once(
    scenario: Scenario, fault: Fault, tmp_path: Path
) -> None:
    """Harm prevented: the one act that the sample leaves out is the one that loses rows."""
    check_all(scenario, tmp_path, fault, every)


def test_the_acts_are_those_of_the_tree_too(tmp_path: Path) -> None:
    """Harm prevented: an enumeration that does not see between the log and the commit file."""
    names = acts_of(SCENARIOS[1], tmp_path / "two")
    send = names.index("send")

    assert [n.split()[0] for n in names[send + 1 : send + 4]] == ["put_if_absent"] * 3
    assert names[send + 2 : send + 4] == ["put_if_absent commits"] * 2
    assert acts_of(SCENARIOS[5], tmp_path / "removed").count("put_if_absent commits") == 2
    replacing = acts_of(SCENARIOS[6], tmp_path / "replacing")
    entry = replacing.index("send") + 1
    assert replacing[entry + 1 : entry + 3] == ["put_if_absent commits", "delete commits"]
    assert all(sample(names, fault) for fault in Fault)


@pytest.mark.parametrize("landed", [False, True])
def test_an_export_given_up_while_its_commit_is_held_up_never_appears(
    tmp_path: Path, *, landed: bool
) -> None:
    """Harm prevented: a commit file that is put after it was reported as KILLED."""
    world = SCENARIOS[0].world(tmp_path / "given up")
    request = replace(ONE, to=world.to)
    entry = acts_of(SCENARIOS[0], tmp_path / "undisturbed").index("send") + 1
    killed: list[KillOutcome] = []

    def give_up() -> None:
        table = open_tree(world.to).table(world.to)
        assert table is not None
        ledger = SqliteLedger(world.directory / "ledger.db", clock=world.clock)
        ports = Ports(Direct(), table, ledger, world.clock, lambda _: None)
        (row,) = ledger.rows()
        killed.append(kill(ports, row.key.hash, state=State.KILLED))
        ledger.close()

    fault = Fault.PAUSED_AFTER_ALIVE if landed else Fault.PAUSED_BEFORE_ALIVE
    world.acts = acts = Acts(entry, fault, give_up)
    (outcome,) = world.run(request, effects=acts).outcomes

    if landed:
        assert isinstance(killed[0], TooLate)
        assert commits(world)["p1"][0].rows == 12
    else:
        assert isinstance(killed[0], GivenUp)
        assert outcome.status is Status.KILLED
        assert commits(world) == {}
    run_again(world, request)
    check_end(world, {"p1": 12}, fault)


def test_force_alone_replaces_nothing_and_names_the_words_that_do(tmp_path: Path) -> None:
    """Harm prevented: who lists directories sees old and new rows, and nobody asked for it."""
    world = SCENARIOS[0].world(tmp_path / "forced")
    request = replace(ONE, to=world.to)
    world.run(request)
    before = commits(world)

    (outcome,) = world.run(replace(request, options=ExportOptions(force=True))).outcomes

    assert outcome.status is Status.REFUSED
    assert "--force --replace-partition" in plain(outcome.message)
    assert commits(world) == before


def test_a_commit_file_that_was_replaced_and_comes_late_counts_for_nobody(
    tmp_path: Path,
) -> None:
    """Harm prevented: rows of an export that was replaced twice since, once it wakes up."""
    world = SCENARIOS[0].world(tmp_path / "held up")
    request = replace(ONE, to=world.to, options=REPLACING)
    acts_before = acts_of(SCENARIOS[0], tmp_path / "undisturbed")
    put = acts_before.index("put_if_absent commits")

    def twice() -> None:
        for rows in ((7, 5, 2), (7,)):
            world.source.by_id["p1"] = parts_of("p1", *rows)
            (outcome,) = world.run(request).outcomes
            assert outcome.status in IN_MAIN, outcome

    world.acts = acts = Acts(put, Fault.PAUSED_BEFORE_BY_THE_DEAD, twice)
    world.run(replace(ONE, to=world.to), effects=acts)

    assert acts.names[put] == "put_if_absent commits"
    (commit,) = commits(world)["p1"]
    assert commit.rows == 7
    assert len(list(Path(world.tree.paths.commits.removeprefix("file://")).iterdir())) == 2
    world.run(request)
    check_end(world, {"p1": 7}, Fault.PAUSED_BEFORE_BY_THE_DEAD, replaces=True)
