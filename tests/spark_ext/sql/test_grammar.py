"""What ClickHouse's statements mean, which texts are left to Spark, and what an error points at."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ext.sql.clauses import Deduplicate, Ending, Outfile, Setting
from spark_ext.sql.grammar import parse_statement, render_statement
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import (
    Alter,
    Attach,
    AttachFrom,
    ChangeRows,
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
    KillMode,
    KillQuery,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    Optimize,
    ReplaceFrom,
    Statement,
    Unfreeze,
    Update,
)
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Call, ColumnName, Literal
from tableformat.mergetree.partition_literal import All, ById, ByValue
from tableformat.names import PartitionId, PartName
from tests.strategies.types import NASTY
from tests.support.statement_examples import KNOWN, OURS

T = DottedName(("t",))
ONE = ByValue(Literal(1))
ID = ById(PartitionId("202401"))
PART = PartName.parse("all_1_1_0")
P_IS_2 = Call("equals", (ColumnName("p"), Literal(2)))

COMMANDS: tuple[tuple[str, Command], ...] = (
    ("EXPORT PARTITION ID '202401' TO TABLE lake.ns.t",
     Export(ID, DottedName(("lake", "ns", "t")))),
    ("export partition all to table t", Export(All(), T)),
    ("EXPORT PARTITION ('x', 3) TO TABLE t",
     Export(ByValue(Call("tuple", (Literal("x"), Literal(3)))), T)),
    ("EXPORT PART 'all_1_1_0' TO TABLE hive.`s3://b/t`",
     Export(PART, DottedName(("hive", "s3://b/t")))),
    ("DETACH PARTITION ID '202401'", Detach(ID)),
    ("DETACH PART all_1_1_0", Detach(PART)),
    ("ATTACH PARTITION ALL", Attach(All())),
    ("ATTACH PART 20000101-1_1_3_1_5", Attach(PartName.parse("20000101-1_1_3_1_5"))),
    ("ATTACH PARTITION 1 FROM db.`a b`", AttachFrom(ONE, DottedName(("db", "a b")))),
    ("DROP PARTITION -5", Drop(ByValue(Literal(-5)))),
    ("DROP PARTITION NULL", Drop(ByValue(Literal(None)))),
    ("DROP PARTITION 'it''s \\'x\\' \\x41\\n'", Drop(ByValue(Literal("it's 'x' A\n")))),
    ("DROP PARTITION $tag$it's$tag$", Drop(ByValue(Literal("it's")))),
    ("DROP PARTITION tuple()", Drop(ByValue(Call("tuple", ())))),
    ("DROP DETACHED PARTITION 1", DropDetached(ONE)),
    ("DROP DETACHED PART ALL", DropDetached(All())),
    ("REPLACE PARTITION 1 FROM t", ReplaceFrom(ONE, T)),
    ("MOVE PARTITION 1 TO TABLE t", MoveToTable(ONE, T)),
    ("MOVE PART 'all_1_1_0' TO DISK 'd'", MoveToDisk(PART, "d")),
    ("MOVE PARTITION 1 TO VOLUME 'v'", MoveToVolume(ONE, "v")),
    ("FORGET PARTITION 1", Forget(ONE)),
    ("FREEZE", Freeze()),
    ("FREEZE PARTITION 1 WITH NAME 'n'", Freeze(ONE, "n")),
    ("UNFREEZE WITH NAME 'n'", Unfreeze("n")),
    ("UNFREEZE PARTITION 1 WITH NAME 'n'", Unfreeze("n", ONE)),
    ("FETCH PARTITION 1 FROM '/p'", Fetch(ONE, "/p")),
    ("CLEAR COLUMN IF EXISTS n.a IN PARTITION 1",
     ClearColumn(DottedName(("n", "a")), ONE, if_exists=True)),
    ("CLEAR INDEX i", ClearIndex(DottedName(("i",)))),
    ("UPDATE x = 1, `y z` = p IN PARTITION 1 WHERE p = 2",
     Update((("x", Literal(1)), ("y z", ColumnName("p"))), P_IS_2, ONE)),
    ("DELETE WHERE p = 2", Delete(P_IS_2)),
    ("DELETE IN PARTITION ID '202401' WHERE p = 2", Delete(P_IS_2, ID)),
)  # fmt: skip


@pytest.mark.parametrize(("text", "command"), COMMANDS)
def test_a_command_means(text: str, command: Command) -> None:
    assert repr(parse_statement(f"ALTER TABLE t {text}")) == repr(Alter(T, (command,)))


@pytest.mark.parametrize("text", [*KNOWN, *OURS])
def test_a_documented_statement_is_read_and_written(text: str) -> None:
    """The statements of the requirements and of ClickHouse's page, word by word."""
    statement = parse_statement(text)

    assert statement is not None
    assert parse_statement(render_statement(statement)) == statement


STATEMENTS: tuple[tuple[str, Statement], ...] = (
    ("ALTER TABLE ch.db.t ON CLUSTER '{cluster}' FREEZE, FREEZE;;",
     Alter(DottedName(("ch", "db", "t")), (Freeze(), Freeze()), "{cluster}")),
    ("/* a /* b */ */ ALTER -- c\n TABLE t // d\n (FREEZE), (DROP PARTITION 1) # e",
     Alter(T, (Freeze(), Drop(ONE)))),
    ("ALTER TABLE t FREEZE INTO OUTFILE 'f' APPEND AND STDOUT COMPRESSION 'xz' LEVEL 3 FORMAT JSON",
     Alter(T, (Freeze(),), ending=Ending(
         Outfile("f", append=True, stdout=True, compression="xz", level=3), "JSON"))),
    ("ALTER TABLE t FREEZE SETTINGS a = 1, b, c = 'x', d = -1.5, e = DEFAULT FORMAT JSON",
     Alter(T, (Freeze(),), ending=Ending(None, "JSON", (
         Setting("a", 1), Setting("b", value=True), Setting("c", "x"), Setting("d", -1.5),
         Setting("e", None))))),
    ("OPTIMIZE TABLE t PARTITION 1 FINAL DEDUPLICATE BY a, b",
     Optimize(T, ONE, final=True, deduplicate=Deduplicate(("a", "b")))),
    ("OPTIMIZE TABLE t DEDUPLICATE", Optimize(T, deduplicate=Deduplicate())),
    ("KILL QUERY WHERE query_id = 'a' OR query_id IN ('b', 'c') TEST",
     KillQuery(("a", "b", "c"), KillMode.TEST)),
    ("KILL QUERY WHERE query_id = 'a'", KillQuery(("a",))),
    ("DELETE FROM t IN PARTITION 1 WHERE p = 2", ChangeRows(T, Delete(P_IS_2, ONE))),
    ("UPDATE t SET x = 1 IN PARTITION 1 WHERE p = 2",
     ChangeRows(T, Update((("x", Literal(1)),), P_IS_2, ONE))),
)  # fmt: skip


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_a_statement_means(text: str, statement: Statement) -> None:
    assert repr(parse_statement(text)) == repr(statement)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1",
        "SELECT 'not closed",
        "ALTER TABLE t ADD COLUMN x INT",
        "ALTER TABLE t DROP COLUMN x",
        "ALTER TABLE t DROP PARTITION (p = 'x')",
        "ALTER TABLE t DROP IF EXISTS PARTITION (p = 'x', q = 1), PARTITION (p = 'y', q = 2) PURGE",
        "ALTER TABLE lake.db.t DROP PARTITION FIELD days(ts)",
        "ALTER TABLE lake.db.t REPLACE PARTITION FIELD days(ts) WITH hours(ts)",
        "ALTER TABLE lake.db.t ADD PARTITION FIELD bucket(16, id)",
        "ALTER TABLE t REPLACE COLUMNS (x INT)",
        "ALTER TABLE t PARTITION (p = 1) SET LOCATION 'x'",
        "ALTER TABLE t RENAME TO u",
        "ALTER VIEW v AS SELECT 1",
        "DELETE FROM lake.db.t WHERE a = 1",
        "UPDATE lake.db.t SET a = 1 WHERE b IN (1, 2)",
        "OPTIMIZE t",
        "KILL MUTATION WHERE mutation_id = 'x'",
        "CALL lake.system.export_partition('x')",
        "ALTER",
        "ALTER TABLE",
        "ALTER TABLE `t",
    ],
)
def test_what_is_spark_s_or_iceberg_s_is_left_to_them(text: str) -> None:
    """No statement that worked before may be taken away."""
    assert parse_statement(text) is None


ERRORS = (
    ("ALTER TABLE t EXPORT PARTITON ID '1' TO TABLE x", "found 'PARTITON'", 21,
     "PARTITION or PART is expected."),
    ("ALTER TABLE t EXPORT PARTITION ID '1' TO x", "found 'x'", 41, "TABLE is expected."),
    ("ALTER TABLE t EXPORT PARTITION ID '1'", "it ends", 37, "TO is expected."),
    ("ALTER TABLE t EXPORT PARTITION ID '1' TO TABLE a. ;", "found ';'", 50,
     "The next part of the name is expected."),
    ("ALTER TABLE t EXPORT PARTITION ID 1 TO TABLE x", "found '1'", 34, "Write ID '202401'."),
    ("ALTER TABLE t EXPORT PARTITION 2024-01-31 TO TABLE x", "'-'", 35,
     "Put a date or a text in single quotes: '2024-01-31'."),
    ("ALTER TABLE t EXPORT PARTITION abc TO TABLE x", "'abc'", 31, "ID '202401'."),
    ("ALTER TABLE t DROP PARTITION (p, q)", "'p'", 30, "ID '202401'."),
    ("ALTER TABLE t EXPORT PARTITION ID '1/2' TO TABLE x", "'1/2'", 34, "letters, digits and '-'"),
    ("ALTER TABLE t EXPORT PARTITION {p:String} TO TABLE x", "'{p:String}'", 31,
     "Write the value itself."),
    ("ALTER TABLE t EXPORT PARTITION ID {p:String} TO TABLE x", "'{p:String}'", 34,
     "Write the value itself."),
    ("ALTER TABLE t EXPORT PARTITION ? TO TABLE x", "'?'", 31, "Write the value itself."),
    ("ALTER TABLE {t:Identifier} FREEZE", "'{t:Identifier}'", 12, "Write the value itself."),
    ("ALTER TABLE t EXPORT PARTITION :p TO TABLE x", "':p'", 31, "Write the value itself."),
    ("ALTER TABLE t DROP PART 'all'", "'all'", 24, "<partition>_<low>_<high>_<level>"),
    ("ALTER TABLE t FREEZE WITH NAME 'n", "the quote '", 31, "Close it."),
    ("ALTER TABLE t FREEZE /* x", "the comment", 21, "End it with */."),
    ("ALTER TABLE t FREEZE FORMAT JSON INTO OUTFILE 'f'", "found 'INTO'", 33,
     "SETTINGS or the end is expected."),
    ("ALTER TABLE t FREEZE SETTINGS a = 1 FORMAT JSON x", "found 'x'", 48, "The end is expected."),
    ("ALTER TABLE t FREEZE SETTINGS a = 1 x", "found 'x'", 36, "FORMAT or the end is expected."),
    ("ALTER TABLE t FREEZE SETTINGS a = 1, EXPORT PARTITION 1 TO TABLE x", "'EXPORT'", 37,
     "Write SETTINGS once, at the end of the statement"),
    ("ALTER TABLE t FREEZE; DROP TABLE t", "'DROP'", 22, "Give one statement at a time."),
    ("ALTER TABLE t FREEZE,", "it ends", 21, "A command about partitions"),
    ("ALTER TABLE t (FREEZE), FREEZE", "found 'FREEZE'", 24, "'(' is expected."),
    ("ALTER TABLE t UNFREEZE", "it ends", 22, "WITH is expected."),
    ("ALTER TABLE t DELETE WHERE", "it ends", 26, "a constant or a function is expected."),
    ("ALTER TABLE t DELETE WHERE a IN (SELECT 1)", "'SELECT'", 33, "operators and functions"),
    ("ALTER TABLE `` FREEZE", "the name", 12, "Write a name between the quotes."),
    ("OPTIMIZE TABLE t FINAL PARTITION 1", "found 'PARTITION'", 23, "DEDUPLICATE, INTO OUTFILE"),
    ("KILL QUERY WHERE user = 'x'", "'user'", 17, "WHERE query_id = "),
    ("ALTER TABLE t MOVE PARTITION 1 TO TABLE FUNCTION s3('x')", "'FUNCTION'", 40,
     "TO TABLE lake.analytics.events"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "subject", "column", "advice"), ERRORS)
def test_an_error_points_at_the_token(text: str, subject: str, column: int, advice: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_statement(text)

    first, line, caret, *rest = refused.value.message.split("\n")
    assert first.startswith(f"Cannot read the statement: {subject} at line 1, column {column + 1}")
    assert first.endswith(":")
    assert line == f"  {text}"
    assert caret == " " * (column + 2) + "^"
    assert advice in "\n".join(rest)


def test_an_error_in_a_long_text_shows_the_line_and_what_is_near() -> None:
    text = "-- first\nALTER TABLE t\n\tDROP PARTITION (" + "1, " * 500 + "oops, 1)\nSETTINGS a = 1"

    with pytest.raises(UsageError, match=r"'oops' at line 3, column 1518 is the name") as refused:
        parse_statement(text)

    _, line, caret, *_ = refused.value.message.split("\n")
    assert len(line) < 110
    assert line[caret.index("^") :].startswith("oops, 1)")


@pytest.mark.parametrize(
    "command",
    [
        *("REPLACE PARTITION ALL FROM x", "MOVE PARTITION ALL TO TABLE x", "FORGET PARTITION ALL"),
        *("FREEZE PARTITION ALL", "UNFREEZE PARTITION ALL WITH NAME 'x'"),
        *("FETCH PARTITION ALL FROM '/x'", "CLEAR COLUMN c IN PARTITION ALL"),
        *("UPDATE a = 1 IN PARTITION ALL WHERE 1", "DELETE IN PARTITION ALL WHERE 1"),
    ],
)
def test_all_is_refused_where_clickhouse_refuses_to_run_it(command: str) -> None:
    """P-71: ALL can be used only with DROP, DETACH, ATTACH and ATTACH FROM; EXPORT is our own."""
    with pytest.raises(UnsupportedError, match="Only support DROP/DETACH/ATTACH") as refused:
        parse_statement(f"ALTER TABLE t {command}")

    assert refused.value.code == 344


words = st.sampled_from(
    [
        *("ALTER", "TABLE", "t", "EXPORT", "PARTITION", "PART", "ID", "ALL", "TO", "DROP", "WHERE"),
        *(
            "SETTINGS",
            "=",
            ",",
            "(",
            ")",
            "[",
            "'x'",
            "1",
            ".",
            "::",
            "-",
            "NOT",
            "INTERVAL '1 day'",
        ),
        *(
            "CAST",
            "AS",
            "Array",
            "'",
            '"',
            "`",
            "/*",
            "*/",
            "--",
            "\n",
            "\0",
            "$$",
            "x'",
            "\u2018",
            "{",
        ),
        *("UPDATE", "SET", "IN", "OPTIMIZE", "KILL QUERY", "DELETE FROM", "0x", "1e9", "9" * 30),
    ]
)
hostile = st.one_of(
    st.lists(words | st.text(NASTY, max_size=3), max_size=30).map(" ".join),
    st.lists(words | st.text(max_size=3), max_size=30).map("".join),
)


def read(text: str) -> Statement | str | None:
    """Return the statement, None for what is not ours, or the message of the error."""
    try:
        return parse_statement(text)
    except UsageError as error:
        return error.message


@given(st.sampled_from(["", "ALTER TABLE t ", "ALTER TABLE t DROP PARTITION "]), hostile)
@settings(max_examples=300)
def test_no_text_makes_anything_but_a_statement_or_an_error(begin: str, rest: str) -> None:
    """Whatever arrives, a user gets a result or an error, never a traceback."""
    statement = read(begin + rest)

    if isinstance(statement, str):
        assert statement.startswith("Cannot read the statement: ")
    elif statement is not None:
        assert repr(parse_statement(render_statement(statement))) == repr(statement)


DEEP = 20_000
LONG = (
    "ALTER TABLE t DROP PARTITION " + "(" * DEEP,
    "ALTER TABLE t DROP PARTITION " + "(" * DEEP + "1" + ")" * DEEP,
    "ALTER TABLE t DROP PARTITION " + "[" * DEEP,
    "ALTER TABLE t DROP PARTITION " + "- " * DEEP + "1",
    "ALTER TABLE t DROP PARTITION 1::" + "Array(" * DEEP,
    "ALTER TABLE t DELETE WHERE " + "NOT " * DEEP + "a",
    "ALTER TABLE t DELETE WHERE " + "a + " * DEEP + "a",
    "ALTER TABLE t DROP PARTITION " + "9" * DEEP,
    "ALTER TABLE t DROP PARTITION 0x" + "F" * DEEP,
    "ALTER TABLE t DELETE WHERE a > INTERVAL '" + "9" * DEEP + " day'",
    "ALTER TABLE t DROP PARTITION tuple(1)." + "9" * DEEP,
    "ALTER TABLE t DROP PARTITION 1::Decimal(" + "9" * DEEP + ")",
    "ALTER TABLE t FREEZE " + "/*" * DEEP,
    "ALTER TABLE t FREEZE " + "/* */" * DEEP + "x",
    "ALTER TABLE t FREEZE " + "\u2018" * DEEP,
    "ALTER TABLE t FREEZE " + "$a" * DEEP,
    "ALTER TABLE t FREEZE WITH NAME " + "'" * (DEEP + 1),
    "ALTER TABLE t FREEZE " + "x" * DEEP,
    "ALTER TABLE " + "t." * DEEP,
    "ALTER TABLE t " + "FREEZE, " * DEEP,
    "UPDATE t SET " + "a = 1, " * DEEP,
    "ALTER TABLE t DROP PARTITION (" + "1, " * DEEP + "a)",
    "ALTER TABLE t FREEZE SETTINGS " + "a = 1, " * DEEP,
)


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_a_long_or_deep_text_is_refused_soon(text: str) -> None:
    """A statement of some 100 kB takes about a second at most, and never all the stack."""
    began = time.process_time()

    found = read(text)

    assert found is None or (isinstance(found, str) and len(found) < 1000)
    assert time.process_time() - began < 5


def test_many_commands_and_values_are_read_as_fast() -> None:
    text = "ALTER TABLE t DROP PARTITION (" + ", ".join(["'x'"] * 5000) + ")" + ", FREEZE" * 5000
    began = time.process_time()

    statement = parse_statement(text)

    assert isinstance(statement, Alter)
    assert len(statement.commands) == 5001
    assert time.process_time() - began < 5
