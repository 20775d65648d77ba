"""A typed statement is the statement: from every interface, the value is that of its text."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import assert_never, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.cli.commands.statements import StatementRun
from spark_ext.cli.main import invoke
from spark_ext.cli.typed_commands import example
from spark_ext.procedures.declarations import Call, Value
from spark_ext.procedures.statements import statement_of
from spark_ext.sql.arguments import GivenValue
from spark_ext.sql.clauses import Ending, Setting, Target
from spark_ext.sql.dispatch import PROCEDURES
from spark_ext.sql.grammar import parse_statement, render_deduplicate, render_statement
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import (
    TYPED,
    Alter,
    Attach,
    AttachFrom,
    ClearColumn,
    ClearIndex,
    Command,
    Delete,
    Detach,
    Drop,
    DropDetached,
    Export,
    Fetch,
    Forget,
    Freeze,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    Optimize,
    ReplaceFrom,
    TypedStatement,
    Unfreeze,
    Update,
)
from tableformat.errors import UsageError
from tableformat.mergetree.expression import render_expression
from tableformat.mergetree.partition_literal import All, ById, ByValue
from tableformat.names import PartName, quote_identifier
from tests.strategies.expressions import constants
from tests.strategies.statements import (
    deduplications,
    dotted,
    known_commands,
    partitions,
)
from tests.support.session_without_spark import NoSpark

Arguments = dict[str, GivenValue]
FAST = "mergeberg_attach_fast"
OVERWRITES_FILES = "export_merge_tree_part_overwrite_file_if_exists"
EMPTY = "allow_replace_partition_from_empty_source"


def chosen(of: Target | None) -> Arguments:
    """Return what says which partition or part is meant."""
    match of:
        case None:
            return {}
        case PartName():
            return {"part": str(of)}
        case ById(partition_id):
            return {"partition_id": partition_id.value}
        case ByValue(value):
            return {"partition": render_expression(value)}
        case All():
            return {"all_partitions": True}
        case _:
            assert_never(of)


def in_partition(of: Target | None, **more: GivenValue) -> Arguments:
    return {**chosen(of), **more}


def called(command: Command | Optimize) -> tuple[str, Arguments]:
    """Return the typed statement that a command is, and its arguments."""
    match command:
        case Detach(of):
            return "detach_partition", chosen(of)
        case Attach(of):
            return "attach_partition", chosen(of)
        case Drop(of):
            return "drop_partition", chosen(of)
        case DropDetached(of):
            return "drop_detached_partition", chosen(of)
        case AttachFrom(of, table):
            return "attach_partition", in_partition(of, from_table=str(table))
        case ReplaceFrom(of, table):
            return "replace_partition", in_partition(of, from_table=str(table))
        case MoveToTable(of, table):
            return "move_partition", in_partition(of, to_table=str(table))
        case MoveToDisk(of, disk):
            return "move_partition", in_partition(of, to_disk=disk)
        case MoveToVolume(of, volume):
            return "move_partition", in_partition(of, to_volume=volume)
        case Forget(of):
            return "forget_partition", chosen(of)
        case Freeze(of, name):
            return "freeze", in_partition(of, name=name)
        case Unfreeze(name, of):
            return "unfreeze", in_partition(of, name=name)
        case Fetch(of, path):
            return "fetch_partition", in_partition(of, path=path)
        case ClearColumn(name, of, if_exists):
            return "clear_column", in_partition(of, column=str(name), if_exists=if_exists)
        case ClearIndex(name, of, if_exists):
            return "clear_index", in_partition(of, index=str(name), if_exists=if_exists)
        case Update(assignments, where, of):
            each = [f"{quote_identifier(c)} = {render_expression(v)}" for c, v in assignments]
            arguments = in_partition(
                of, assignments=", ".join(each), where=render_expression(where)
            )
            return "update_rows", arguments
        case Delete(where, of):
            return "delete_rows", in_partition(of, where=render_expression(where))
        case Optimize(_, of, final, by):
            arguments = in_partition(of, final=final)
            if by is not None:
                columns = render_deduplicate(by).removeprefix("DEDUPLICATE").removeprefix(" BY ")
                arguments |= {"deduplicate_by": columns} if columns else {"deduplicate": True}
            return "optimize", arguments
        case Export():
            pytest.fail("`mergeberg export` and `CALL … export_partition` are that")
        case _:
            assert_never(command)


def every(typed: TypedStatement, given: Mapping[str, GivenValue]) -> Arguments:
    """Return all arguments, those that are not given as an interface leaves them."""
    assert given.keys() <= {one.name for one in typed.arguments}
    return {
        one.name: given.get(one.name, False if one.is_flag else None) for one in typed.arguments
    }


def has_values(command: Command | Optimize) -> bool:
    """Whether no name or path in it is empty, which an option refuses and the grammar takes."""
    return not any(
        getattr(command, field.name) == ""
        for field in fields(command)
        if field.name in ("disk", "volume", "path")
    )


one = partitions(constants)
optimizes = st.builds(Optimize, dotted, st.none() | one, st.booleans(), st.none() | deduplications)
commands = (known_commands(dotted, one) | optimizes).filter(has_values)


@given(table=dotted, command=commands, fast=st.booleans())
def test_arguments_make_the_statement_that_their_text_is(
    table: DottedName, command: Command | Optimize, *, fast: bool
) -> None:
    """Every command that has a typed form, whatever stands in it."""
    name, given_ = called(command)
    typed = TYPED[name]
    settings: tuple[Setting, ...] = ()
    if fast and any(a.name == "fast" for a in typed.arguments):
        given_, settings = {**given_, "fast": True}, (Setting(FAST, 1),)
    ending = Ending(settings=settings)
    wanted = (
        replace(command, table=table, ending=ending)
        if isinstance(command, Optimize)
        else Alter(table, (command,), ending=ending)
    )

    made = typed.of(DottedName(table.parts), every(typed, given_), lambda a: a.option)

    assert repr(made) == repr(wanted)
    assert repr(parse_statement(render_statement(made))) == repr(wanted)


OF = "ALTER TABLE lake.n.t"
ROWS: tuple[tuple[str, str, str, Arguments], ...] = (
    ("DETACH PARTITION ID '1'", "detach --partition-id 1", "detach_partition",
     {"partition_id": "1"}),
    ("DETACH PARTITION '2024-01-31'", "detach --partition 2024-01-31", "detach_partition",
     {"partition": "2024-01-31"}),
    ("DETACH PARTITION '2024-01-31 10:00:00'", "detach --partition '2024-01-31 10:00:00'",
     "detach_partition", {"partition": "2024-01-31 10:00:00"}),
    ("DETACH PARTITION ('x', 3)", """detach --partition "('x', 3)" """, "detach_partition",
     {"partition": "('x', 3)"}),
    ("DETACH PART 'all_1_1_0'", "detach --part all_1_1_0", "detach_partition",
     {"part": "all_1_1_0"}),
    ("DETACH PART '-5_1_1_0'", "detach --part -5_1_1_0", "detach_partition",
     {"part": "-5_1_1_0"}),
    ("ATTACH PARTITION ALL", "attach --all", "attach_partition", {"all_partitions": True}),
    ("ATTACH PARTITION ALL FROM lake.n.u", "attach --all --from lake.n.u", "attach_partition",
     {"all_partitions": True, "from_table": "lake.n.u"}),
    (f"ATTACH PARTITION 1 FROM ch.db.`a b` SETTINGS {OVERWRITES_FILES} = 1",
     "attach --partition 1 --from 'ch.db.`a b`' --overwrite-file-if-exists", "attach_partition",
     {"partition": "1", "from_table": "ch.db.`a b`", "overwrite_file_if_exists": True}),
    ("DROP PARTITION 1", "drop --partition 1", "drop_partition", {"partition": "1"}),
    ("DROP DETACHED PART 'all_1_1_0'", "drop-detached --part all_1_1_0",
     "drop_detached_partition", {"part": "all_1_1_0"}),
    (f"REPLACE PARTITION 1 FROM lake.n.u SETTINGS {FAST} = 1, {EMPTY} = 1",
     "replace --partition 1 --from lake.n.u --fast --allow-empty", "replace_partition",
     {"partition": "1", "from_table": "lake.n.u", "fast": True, "allow_empty": True}),
    ("MOVE PARTITION 1 TO TABLE lake.n.u", "move --partition 1 --to lake.n.u", "move_partition",
     {"partition": "1", "to_table": "lake.n.u"}),
    ("MOVE PART 'all_1_1_0' TO DISK 'd'", "move --part all_1_1_0 --to-disk d", "move_partition",
     {"part": "all_1_1_0", "to_disk": "d"}),
    ("MOVE PARTITION 1 TO VOLUME 'v'", "move --partition 1 --to-volume v", "move_partition",
     {"partition": "1", "to_volume": "v"}),
    ("FORGET PARTITION ID '1'", "forget --partition-id 1", "forget_partition",
     {"partition_id": "1"}),
    ("FREEZE", "freeze", "freeze", {}),
    ("FREEZE PARTITION 1 WITH NAME 'it''s'", """freeze --partition 1 --name "it's" """, "freeze",
     {"partition": "1", "name": "it's"}),
    ("UNFREEZE WITH NAME 'a'", "unfreeze --name a", "unfreeze", {"name": "a"}),
    ("FETCH PARTITION 1 FROM '/a/b'", "fetch --partition 1 --from /a/b", "fetch_partition",
     {"partition": "1", "path": "/a/b"}),
    ("CLEAR COLUMN IF EXISTS n.a IN PARTITION 1",
     "clear-column --column n.a --partition 1 --if-exists", "clear_column",
     {"column": "n.a", "partition": "1", "if_exists": True}),
    ("CLEAR INDEX i", "clear-index --index i", "clear_index", {"index": "i"}),
    ("UPDATE x = x + 1, s = 'a' IN PARTITION ID '1' WHERE p = 2",
     """update --set 'x = x + 1' --set "s = 'a'" --partition-id 1 --where 'p = 2'""",
     "update_rows",
     {"assignments": "x = x + 1, s = 'a'", "partition_id": "1", "where": "p = 2"}),
    ("DELETE WHERE p IN (1, 2) AND NOT s LIKE 'a%'",
     """delete --where "p IN (1, 2) AND NOT s LIKE 'a%'" """, "delete_rows",
     {"where": "p IN (1, 2) AND NOT s LIKE 'a%'"}),
    ("OPTIMIZE TABLE lake.n.t PARTITION 1 FINAL DEDUPLICATE BY a, b",
     "optimize --partition 1 --final --deduplicate-by 'a, b'", "optimize",
     {"partition": "1", "final": True, "deduplicate_by": "a, b"}),
    ("OPTIMIZE TABLE lake.n.t DEDUPLICATE BY * EXCEPT (v)",
     "optimize --deduplicate-by '* EXCEPT (v)'", "optimize", {"deduplicate_by": "* EXCEPT (v)"}),
    ("OPTIMIZE TABLE lake.n.t DEDUPLICATE", "optimize --deduplicate", "optimize",
     {"deduplicate": True}),
)  # fmt: skip
"""A statement, and the same on the command line and in CALL."""


def read(text: str) -> Alter | Optimize:
    """Return the statement of a text; of a command it is that on lake.n.t."""
    statement = parse_statement(text if text.startswith("OPTIMIZE") else f"{OF} {text}")
    assert isinstance(statement, Alter | Optimize)
    return statement


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what gets the statements that the command line would run."""
    found: list[object] = []

    def change(run: StatementRun, _exports: object, *, dry_run: bool) -> int:
        found.append((run.statement, dry_run))
        return 0

    monkeypatch.setattr(StatementRun, "change", change)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_command_line_is_the_statement_of_its_text(
    ran: list[object], row: tuple[str, str, str, Arguments]
) -> None:
    text, line, _, _ = row
    command, *words = shlex.split(line)
    out = io.StringIO()

    codes = [invoke([command, "lake.n.t", *words, *more], out, out) for more in ([], ["--dry-run"])]

    assert codes == [0, 0], out.getvalue()
    assert repr(ran) == repr([(read(text), False), (read(text), True)])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_call_is_the_statement_of_its_text(row: tuple[str, str, str, Arguments]) -> None:
    text, _, name, given_ = row
    typed = TYPED[name]
    arguments = cast("dict[str, Value]", every(typed, given_))

    call = Call(NoSpark({}).session, "lake", {"table": "lake.n.t", **arguments}, {})

    assert repr(statement_of(typed, call)) == repr(read(text))


def test_every_command_on_a_lake_table_has_a_typed_form() -> None:
    """And every typed form is shown here."""
    there = [read(text) for text, *_ in ROWS]
    kinds = {type(one.commands[0]) if isinstance(one, Alter) else Optimize for one in there}

    assert kinds == {*get_args(Command), Optimize} - {Export}
    assert {name for _, _, name, _ in ROWS} == TYPED.keys()
    assert [name for name in TYPED if name not in PROCEDURES] == []


@pytest.mark.parametrize("typed", TYPED.values(), ids=list(TYPED))
def test_an_example_is_a_command_line_that_runs(ran: list[object], typed: TypedStatement) -> None:
    out = io.StringIO()

    for values in typed.examples:
        words = shlex.split(example(typed, values))
        assert invoke(words[1:], out, out) == 0, out.getvalue()

    assert len(ran) == len(typed.examples) > 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("detach", "exactly one of --partition-id, --partition, --part and --all."),
        ("detach --all --part all_1_1_0", "exactly one of --partition-id, --partition, --part and"),
        ("freeze --partition 1 --partition-id 1", "exactly one of --partition-id and --partition."),
        ("forget", "exactly one of --partition-id and --partition."),
        ("detach --partition 1 --partition 2", "--partition is given twice."),
        ("delete --where 'a = 1' --where 'b = 1'", "--where is given twice."),
        ("delete", "Missing option '--where'"),
        ("detach --partition ''", "--partition is empty."),
        ("detach --partition x", "'x' at line 1, column 1 is the name of a column"),
        ("detach --partition '1; DROP'", "Cannot read the partition"),
        ("detach --partition 2024-01", "makes it an expression"),
        ("detach --part all", "Cannot read the part"),
        ("drop --partition-id 'a/b'", "'a/b' as a partition id"),
        ("move --partition ALL --to lake.n.u", "'ALL' at line 1, column 1 is not allowed here"),
        ("move --partition 1", "0 of --to, --to-disk and --to-volume are given."),
        ("move --partition 1 --to a.b.c --to-disk d", "2 of --to, --to-disk and --to-volume"),
        ("move --part all_1_1_0 --to lake.n.u", "only whole partitions are copied between tables"),
        ("attach --part all_1_1_0 --from lake.n.u", "Choose one by --partition-id."),
        ("attach --all --overwrite-file-if-exists", "rows that come from another table"),
        ("delete --where 'a ='", "Cannot read the condition: it ends"),
        ("delete --where '1 = 1 SETTINGS x = 1'", "Cannot read the condition: found 'SETTINGS'"),
        ("update --set 'a' --where 1", "Cannot read the assignment: it ends"),
        ("optimize --deduplicate-by ','", "Cannot read the list of columns"),
        ("clear-column --column 'a b'", "Cannot read the name 'a b'"),
        ("unfreeze --name ''", "--name is empty."),
    ],
)
def test_what_has_no_one_meaning_is_refused_before_anything_is_done(
    ran: list[object], line: str, message: str
) -> None:
    """Harm prevented: of two that are given one is done, and nobody knows which."""
    command, *words = shlex.split(line)
    err = io.StringIO()

    code = invoke([command, "lake.n.t", *words], io.StringIO(), err)

    assert message in err.getvalue()
    assert f"Next: mergeberg {command} --help" in err.getvalue() or code != 2
    assert (code, ran) in ((2, []), (3, []))


@pytest.mark.parametrize(
    "line",
    [
        *(f"{one.command} n.t {example(one, one.examples[0]).split(maxsplit=3)[3]}"
          for one in TYPED.values()),
        "alter 'ALTER TABLE n.t DROP PARTITION 1'",
    ],
)  # fmt: skip
def test_a_lake_table_without_its_catalog_is_refused(line: str, tmp_path: Path) -> None:
    """Harm prevented: what is meant for ClickHouse's table is done to the lake's."""
    err = io.StringIO()

    code = invoke([*shlex.split(line), "--warehouse", str(tmp_path)], io.StringIO(), err)

    assert (code, "Write catalog.namespace.table, or give --catalog" in err.getvalue()) == (2, True)


def test_two_partitions_in_a_call_are_refused_in_its_words() -> None:
    arguments = cast("dict[str, Value]", every(TYPED["drop_partition"], {"all_partitions": True}))
    call = Call(
        NoSpark({}).session,
        "lake",
        {"table": "n.t", **arguments, "partition_id": "1"},
        {},
    )

    with pytest.raises(UsageError) as refused:
        statement_of(TYPED["drop_partition"], call)

    assert refused.value.message.endswith(
        "exactly one of `partition_id`, `partition`, `part` and `all_partitions => true`."
    )
