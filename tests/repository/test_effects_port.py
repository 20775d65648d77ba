"""Everything that the job does to the outside goes through the one port of effects.

`tests/enumeration` lets a fault meet each effect of the port. What is done outside of it is not
enumerated, so that nobody would know what a crash there does. Found by name, not by type: a call of
any method of a contract counts, on any object, until a line below says why it may.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tableformat.committer import FilesOfMain, LakeTable
from tableformat.export.ports import Lake, SliceWriter
from tableformat.export.verification import LakeDigests
from tableformat.ledger import Ledger
from tableformat.operations.partition_files import PartitionedLake
from tableformat.source import Source
from tableformat.storage import Storage
from tests.repository.source_files import SourceFile, source_files

CONTRACTS = (
    FilesOfMain, Lake, LakeDigests, LakeTable, PartitionedLake, Ledger, SliceWriter, Source, Storage
)  # fmt: skip
METHODS = {
    name
    for contract in CONTRACTS
    for name, member in vars(contract).items()
    if inspect.isfunction(member) and not name.startswith("_")
}
"""Among them reads: one that decides something is a seam as well, before which others may act."""

NO_CONTRACT = frozenset(
    (
        "_freezing",
        "_leases",
        "_taken_over",
        "cleaning",
        "hashlib",
        "leases",
        "observer",
        "self",
        "verification",
    )
)
"""Names of what has a method of such a name and is no contract: its own calls are looked at."""
READS_ONLY = ("dry_run.py", "watermark.py")
"""They may read what they like, and nothing else."""
READING = frozenset(
    (
        "copied_to", "describe", "detached_parts", "engine_of", "files_of", "highest_epoch",
        "holder", "is_made", "load", "partitions", "parts", "probe", "read", "read_all",
        "refusals", "rows", "table",
    )
)  # fmt: skip

# Why a call needs no effect: the calls, by file, function and what is called. One that is not
# there any more fails.
ALLOWED = {
    "a generator: what it does is done where it is asked to go on, within an effect": {
        ("writers.py", "write", "writer.write"),
        ("writers.py", "write", "writer.write"),
        ("write_and_commit.py", "_writing", "writer.write"),
    },
    "one change of one row, by compare-and-set, which is all that the command does": {
        ("give_up.py", "_forgotten", "ledger.write"),
        ("give_up.py", "forget", "ledger.read"),
        ("give_up.py", "forget", "ledger.release"),
        ("archived.py", "_refuse_later", "ledger.read"),
    },
    "a number that is drawn in vain harms nobody; what is done with it is an effect": {
        ("freeze_and_claim.py", "_epoch", "ledger.next_epoch"),
        ("commit.py", "_stage_and_send", "ledger.next_epoch"),
        ("write_and_commit.py", "_list", "ledger.next_epoch"),
        ("give_up.py", "_claim", "ledger.next_epoch"),
        ("job.py", "mark_killed", "ledger.next_epoch"),
        ("take_out.py", "_send", "ledger.next_epoch"),
        ("commit.py", "send_empty", "ledger.next_epoch"),
        ("rebuild.py", "_count_up", "ledger.next_epoch"),
        ("statement_commit.py", "claim", "ledger.next_epoch"),
        ("statement_commit.py", "_ask", "ledger.next_epoch"),
        ("move.py", "_claimed_again", "ledger.next_epoch"),
    },
    "the thread that renews leases runs beside the job; a lease proves nothing": {
        ("leases.py", "_look", "_ledger.read_all"),
        ("leases.py", "_renew", "_ledger.renew"),
    },
    "it shortens how long this process waits, and asks nobody": {
        ("leases.py", "leave", "_ledger.leave"),
    },
    "rows of other keys, whose marks may go; the request that removes them asserts M": {
        ("commit.py", "_marks_to_remove", "ledger.read"),
    },
    "refuses, and a ledger that is put back while it is asked is found at the next M": {
        ("commit.py", "check_table_of_ledger", "ledger.highest_epoch"),
        ("commit.py", "check_table_of_ledger", "ledger.is_made"),
        ("commit.py", "load_table", "ledger.highest_landed"),
        ("rebuild.py", "_count_up", "ledger.highest_epoch"),
    },
    "files that M names: they never change": {
        ("cleanup.py", "files_of", "table.refers_to"),
        ("cleanup.py", "left", "table.refers_to"),
        ("commit.py", "discard_abandoned_attempts", "table.in_use"),
        ("gc.py", "_found", "lake.files_of"),
        ("gc.py", "_found", "lake.references"),
        ("maintenance.py", "_plan", "lake.files_on"),
        ("maintenance.py", "proof_since", "lake.rewritten"),
        ("move.py", "_line_has", "table.files_of"),
        ("foreign_rows.py", "are_copied_back", "table.files_in"),
        ("foreign_rows.py", "are_copied_back", "table.files_of"),
        ("foreign_rows.py", "refuse_foreign", "table.files_in"),
        ("forget.py", "_detached_line", "lake.references"),
        ("forget.py", "_holding", "lake.references"),
        ("forget.py", "_holding", "table.files_of"),
        ("forget.py", "_holding", "table.refers_to"),
        ("freeze.py", "_planned", "lake.references"),
        ("freeze.py", "_change", "lake.paths_in_main"),
        ("freeze.py", "run", "lake.paths_in_main"),
        ("freeze.py", "run", "lake.references"),
        ("partition_files.py", "_by_key", "lake.files_on"),
        ("partition_files.py", "_files_of", "lake.files_on"),
        ("partition_files.py", "detached", "lake.files_on"),
        ("partition_files.py", "files_beginning", "lake.files_on"),
        ("dry_run.py", "_existing", "table.paths_in_main"),
        ("rebuild.py", "_locations", "table.metadata_files"),
        ("rebuild.py", "_locations", "table.paths_in_main"),
        ("rebuild.py", "_never_held", "table.files_of"),
        ("rebuild.py", "_refuse_unlisted", "table.paths_in_main"),
        ("rebuild.py", "_row", "table.files_of"),
        ("gc.py", "_listing", "table.refers_to"),
        ("gc.py", "find", "table.metadata_files"),
        ("foreign_rows.py", "_hidden", "table.paths_in_main"),
        ("main_state.py", "_as_noted", "lake.rewritten"),
        ("main_state.py", "_left_elsewhere", "lake.rewritten"),
        ("main_state.py", "at", "lake.files_of"),
        ("main_state.py", "begins_empty", "lake.paths_in_main"),
        ("main_state.py", "proved", "lake.rewritten"),
        ("foreign_rows.py", "leaving", "table.files_in"),
    },
    "which source snapshots and files are of use: what is kept too long is swept by the next run": {
        ("cleanup.py", "staging_in_use", "ledger.rows"),
        ("slices.py", "stored_receipts", "storage.list"),
        ("slices.py", "stored_receipts", "storage.read"),
    },
    "lists are written once and never changed": {
        ("commit_lists.py", "read_lists", "storage.list"),
        ("commit_lists.py", "read_lists", "storage.read"),
    },
    "the row as it is by now, and the write that follows is a compare-and-set": {
        ("rebuild.py", "_row", "ledger.read"),
        ("write_and_commit.py", "note_error", "ledger.read"),
    },
    "for words only: figures of an answer, or of the log": {
        ("write_and_commit.py", "_committed", "ledger.read"),
        ("foreign_rows.py", "__call__", "_ledger.read"),
        ("job.py", "_was_exported", "ledger.read"),
    },
    "what the source holds now: what is exported is what is frozen, and compared with it": {
        ("group.py", "run", "source.parts"),
        ("request.py", "select", "source.find_partition"),
        ("request.py", "select", "source.partitions"),
        ("request.py", "select", "source.with_times"),
    },
    "lets go of what this process has open; its end does the same": {
        ("group.py", "_export", "source.close"),
        ("job.py", "export", "digests.close"),
        ("job.py", "export", "source.close"),
    },
    "`archive`, after the job: compare-and-set under the lease, around what the source does": {
        ("archived.py", "_written", "ledger.write"),
        ("archived.py", "_leased", "ledger.release"),
        ("archived.py", "note_detached", "ledger.write"),
    },
    "the lease of `archive` and of FORGET": {
        ("leases.py", "one_lease", "ledger.take_lease"),
    },
    "what is installed here": {
        ("ports.py", "versions", "writer.versions"),
        ("write_and_commit.py", "_writing", "writer.versions"),
    },
    "the effect VERIFY performs it, by way of a variable; it only reads": {
        ("verification.py", "_check", "lake.files_of"),
        ("verification.py", "_check", "lake.load"),
        ("verification.py", "kept_digest", "digests.kept"),
        ("verification.py", "differences", "files.digest"),
    },
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method, or its hand-over to `partial`: where, and of what."""

    file: str
    function: str
    text: str
    in_port: bool

    @property
    def place(self) -> tuple[str, str, str]:
        """What a line of `ALLOWED` names."""
        return self.file, self.function, self.text


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that is used in a function, within an effect or not."""

    name: str
    function: str
    in_port: bool


def walked(
    node: ast.AST, function: str = "", *, in_port: bool = False
) -> Iterator[tuple[ast.AST, str, bool]]:
    """Yield every node with the function that it stands in, and whether an effect performs it."""
    yield node, function, in_port
    if isinstance(node, ast.FunctionDef):
        function = node.name
    if is_effect(node):
        assert isinstance(node, ast.Call)
        for argument in node.args[1:]:
            yield from walked(argument, function, in_port=True)
        return
    for child in ast.iter_child_nodes(node):
        yield from walked(child, function, in_port=in_port)


def is_effect(node: ast.AST) -> bool:
    """Whether a node is `effects(step, act)`."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("effects")
        and len(node.args) == len(("step", "act"))
    )


def handed_over(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the methods that a call calls, or hands to `partial` or to an effect."""
    if not isinstance(node, ast.Call):
        return
    callables = [node.func]
    if ast.unparse(node.func) == "partial":
        callables = node.args[:1]
    elif is_effect(node):
        callables = node.args[1:]
    yield from (c for c in callables if isinstance(c, ast.Attribute))


def calls(file: SourceFile, covered: set[str]) -> Iterator[Call]:
    """Yield the calls of a file that may act on the outside."""
    for node, function, in_port in walked(file.tree):
        for method in handed_over(node):
            receiver = ast.unparse(method.value).rsplit(".", 1)[-1]
            if method.attr not in METHODS or receiver in NO_CONTRACT:
                continue
            if file.name in READS_ONLY and method.attr in READING:
                continue
            performed = in_port or is_effect(node) or function in covered
            yield Call(file.name, function, f"{receiver}.{method.attr}", performed)


def mentions(file: SourceFile) -> Iterator[Mention]:
    """Yield the names that a file uses."""
    for node, function, in_port in walked(file.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield Mention(node.id, function, in_port)
        elif isinstance(node, ast.Attribute):
            yield Mention(node.attr, function, in_port)


def covered_functions(files: tuple[SourceFile, ...]) -> set[str]:
    """Return the functions that nobody calls but effects, and functions that only effects call."""
    found = [m for file in files for m in mentions(file)]
    covered = {
        node.name for file in files for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef)
    } & {m.name for m in found}  # fmt: skip
    while True:
        kept = covered - {
            m.name for m in found if not m.in_port and m.function not in covered
        }  # fmt: skip
        if kept == covered:
            return covered
        covered = kept


def outside_the_port(files: tuple[SourceFile, ...]) -> set[tuple[str, str, str]]:
    """Return the places of calls that no effect performs."""
    covered = covered_functions(files)
    return {c.place for file in files for c in calls(file, covered) if not c.in_port}


def test_every_effect_on_the_outside_goes_through_the_port() -> None:
    """Harm prevented: an effect before or after which nobody ever tried to crash."""
    found = outside_the_port(source_files("tableformat/export", "tableformat/operations"))
    allowed = {place for places in ALLOWED.values() for place in places}

    assert found - allowed == set(), "perform these through `effects`, or say why they need not be"
    assert allowed - found == set(), "these lines of ALLOWED are not needed any more"


def test_the_methods_are_those_that_act() -> None:
    """Harm prevented: a search that finds nothing because a contract was renamed."""
    acting = {"write", "next_epoch", "take_lease", "release", "send", "stage", "discard", "load"}
    acting |= {"snapshot", "find_snapshot", "sweep_leftovers", "put", "delete", "evolve", "create"}
    assert acting <= METHODS
    assert not acting & READING - {"load"}


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("ports.ledger.write(row)", True),
        ("run(partial(self._ports.table.send, state))", True),
        ("storage(path).put(path, text)", True),
        ("effects(Step.CLAIM, lambda: ports.ledger.write(row))", False),
        ("self._ports.effects(Step.SEND, partial(ports.table.send, state))", False),
        ("effects(Step.LOAD_METADATA, lake.load)", False),
        ("effects(Step.CLAIM, print) or ports.ledger.write(row)", True),
        ("effects(Step.CLAIM, lambda: within())", False),
        ("effects(Step.CLAIM, lambda: within()) or within()", True),
        ("sorted(rows, key=str)", False),
    ],
)
def test_a_call_outside_the_port_is_found(line: str, *, is_found: bool) -> None:
    """Harm prevented: a test of the source text that lets everything pass."""
    body = "\n    source.release(1)" if "within" in line else " ..."
    text = f"def within():{body}\ndef job():\n    {line}\n"
    file = SourceFile("made_up.py", text)

    assert bool(outside_the_port((file,))) is is_found
