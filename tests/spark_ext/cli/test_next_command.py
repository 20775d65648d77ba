"""The next command can be typed as it is printed, and keeps the options of the last one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.cli.main import main
from spark_ext.cli.next_command import next_command
from spark_ext.sql.statement_reader import shown_statement
from tableformat.errors import Advice, NotFoundError, RefusedError, TableFormatError
from tests.support.command_lines import context_of
from tests.wrong.places import Places

UNKNOWN = NotFoundError("Cannot find it.", advice=frozenset({Advice.LIST_PARTITIONS}))
EXPORT = "ALTER TABLE {} EXPORT PARTITION 9 TO TABLE a.b.c"
REFUSED = RefusedError("Cannot export it.")
TYPO = NotFoundError("Cannot find the table db.evnts.", named="db.evnts", similar="db.events")
NOWHERE = NotFoundError("Cannot find the catalog other.")
LACKING = RefusedError("Cannot export.", advice=frozenset({Advice.EVOLVE_SCHEMA}))
NARROW = RefusedError(
    "Cannot export: n is long and int there; --evolve-schema widens it, or SQL.",
    advice=frozenset({Advice.EVOLVE_SCHEMA}),
)
RENAMED = RefusedError("Cannot export: s is missing: RENAME it; otherwise --evolve-schema adds it.")


def after(line: str, code: int, error: TableFormatError | None = None) -> str:
    """Return the advice after a command line that ended with a code."""
    return next_command(shlex.split(line), code, group=main, error=error)


@pytest.mark.parametrize(
    ("line", "code", "error", "expected"),
    [
        ("export db.t", 2, None, "export --help"),
        ("exports forget", 2, None, "exports forget --help"),
        ("exprot db.t", 2, None, "--help"),
        ("", 2, None, "--help"),
        ("--nope", 2, None, "--help"),
        ("export db.t --to", 2, None, "export --help"),
        ("verify db.t --all --ledger l", 1, None, "exports list --ledger l"),
        ("export --all db.t --warehouse=w", 6, None, "exports list --warehouse=w"),
        ("gc --to a.b.c", 4, None, "gc --to a.b.c"),
        ("export db.t --all --to a.b.c", 130, None, "export db.t --all --to a.b.c"),
        ("export --all --source s db.t", 3, UNKNOWN, "partitions db.t --source s"),
        ("export --all --conf a=b db.t --to a.b.c", 3, REFUSED, "check db.t --to a.b.c"),
        ("export --overwrite-file-if-exists db.t", 3, REFUSED, "check db.t"),
        ("export --all --to db.u db.t", 3, REFUSED, "check db.t"),
        ("export --all --to=db.u db.t", 3, REFUSED, "check db.t"),
        ("archive --drop db.t --all", 3, UNKNOWN, "partitions db.t"),
        (
            f"alter --source s '{EXPORT.format('ch.db.t')}'",
            3,
            UNKNOWN,
            "partitions db.t --source s",
        ),
        (f"alter '{EXPORT.format('db.t')}' --fast", 3, UNKNOWN, "partitions db.t"),
        (f"alter --database shop '{EXPORT.format('t')}'", 3, UNKNOWN, "partitions shop.t"),
        (f"alter --database=shop '{EXPORT.format('t')}'", 3, UNKNOWN, "partitions shop.t"),
        (f"alter '{EXPORT.format('`a b`')}'", 3, UNKNOWN, "partitions 'default.`a b`'"),
        ("export db.evnts --all --to l.n.t", 3, TYPO, "export db.events --all --to l.n.t"),
        ("verify db.evnts --all --to l.n.t", 3, TYPO, "verify db.events --all --to l.n.t"),
        ("export db.t --all", 3, LACKING, "export db.t --all --evolve-schema"),
        (
            "export db.t --all --evolve-schema",
            3,
            LACKING,
            "check db.t --evolve-schema",
        ),
    ],
)
def test_each_ending_has_a_command_that_helps(
    line: str, code: int, error: TableFormatError | None, expected: str
) -> None:
    """Flags of every command are distinguished from options with a value, wherever the table is."""
    assert after(line, code, error).startswith(f"mergeberg {expected}")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("export db.t --all --to a.b.c", None),
        ("archive --all db.t", REFUSED),
        ("check db.t", REFUSED),
        ("check db.t", None),
        ("export db.t --all --to other.n.t", NOWHERE),
        ("alter 'ALTER TABLE db.evnts DETACH PARTITION 1'", TYPO),
    ],
)
def test_a_refusal_that_no_command_helps_has_no_next_one(
    line: str, error: TableFormatError | None
) -> None:
    """Harm prevented: the command that was refused, or a check that says that all would work."""
    assert after(line, 3, error) == ""


def test_words_with_single_quotes_inside_are_quoted_twice() -> None:
    line = """export db.t --partition "tuple('x', 3)" --to a.b.c"""

    assert after(line, 4) == f"mergeberg {line}"


@pytest.mark.parametrize(
    ("line", "code", "error", "expected"),
    [
        ("--log json export db.t --nope", 2, None, "export --help"),
        ("--log=json exports list --nope", 2, None, "exports list --help"),
        ("--log json export db.t --all", 6, None, "--log json exports list"),
        ("--log json:l export db.t --all", 3, UNKNOWN, "--log json:l partitions db.t"),
        ("--log=json export db.t --all", 3, REFUSED, "--log=json check db.t"),
        (
            "--log json export db.t --all",
            4,
            None,
            "--log json export db.t --all",
        ),
    ],
)
def test_options_before_the_command_are_seen_and_kept(
    line: str, code: int, error: TableFormatError | None, expected: str
) -> None:
    """A run with a log gets the same advice as one without, and its next command is logged too."""
    assert after(line, code, error) == f"mergeberg {expected}"


@pytest.mark.parametrize(
    ("to", "kept"),
    [
        ("a.b.c", " --to a.b.c"),
        ("hive:./tree", ""),
        ("hive:s3://bucket.example.com/a.tree", ""),
        ("db.`a.b.c`", ""),
    ],
)
def test_a_destination_is_kept_where_the_next_command_reads_it(to: str, kept: str) -> None:
    """Harm prevented: the advised command is refused, because dots were counted."""
    line = shlex.join(("export", "db.t", "--to", to))

    assert after(line, 3, REFUSED) == f"mergeberg check db.t{kept}"


@given(
    st.lists(st.sampled_from(["export", "exports", "list", "--log", "--all", "-x", "--to=a", "w"])),
    st.sampled_from([1, 2, 3, 4, 5, 6, 130]),
    st.sampled_from([None, UNKNOWN, REFUSED]),
)
def test_any_words_have_a_next_command_or_none(
    words: list[str], code: int, error: TableFormatError | None
) -> None:
    """Even input that no command understands gets a command that can be typed."""
    following = next_command(words, code, group=main, error=error)

    assert following == "" or shlex.split(following)[0] == "mergeberg"
    assert code == 3 or following


SQL = "url LIKE 'https://%' AND tag = 'a:b' AND url != 'q@y.z'"
CHANGES = (
    ("delete", "lake.n.t", "--all", "--where", SQL),
    ("delete", "lake.n.t", "--all", f"--where={SQL}"),
    ("update", "lake.n.t", "--all", "--set", f"url = if({SQL}, 'h://u:p@x', url)", "--where", SQL),
    ("alter", f"ALTER TABLE lake.n.t DELETE WHERE {SQL}", "--warehouse", "w"),
    ("export", "db.t", "--all", "--where", "partition_id != 'x://a:b@c'", "--to", "lake.n.t"),
    ("export", "db.t", "--all", "--to", "lake.n.`s3://a:b@c`"),
    ("fetch", "lake.n.t", "--partition-id", "1", "--from", "hdfs://h:8020/a@b"),
    ("fetch", "lake.n.t", "--partition-id", "1", "--from", "file:///a:b@c/d"),
    ("alter", "ALTER TABLE lake.n.t FETCH PARTITION ID '1' FROM 's3://bucket/a:b@c'"),
)


@pytest.mark.parametrize("words", CHANGES)
def test_the_repeated_command_has_the_words_of_the_failed_one(words: tuple[str, ...]) -> None:
    """Harm prevented: a DELETE with another condition, as if the text were an address."""
    following = next_command(words, 4, group=main)

    assert shlex.split(following)[1:] == [*words]


TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(
        ["://", ":", "@", "?", "key=", "&", "'", '"', "u", " ", "s3", "hive:", "-", "="]
    )
).map("".join)


@given(TEXTS, TEXTS)
def test_any_text_that_is_no_address_is_repeated_as_it_is(one: str, other: str) -> None:
    for words in (
        ("delete", "lake.n.t", "--all", "--where", one),
        ("update", "lake.n.t", "--set", one, "--where", other),
        ("update", "lake.n.t", f"--set={one}", f"--where={other}"),
        ("export", "db.t", "--all", "--where", one, "--convert", other),
    ):
        assert shlex.split(next_command(words, 4, group=main))[1:] == [*words]


@given(TEXTS)
def test_a_statement_is_repeated_as_it_is_or_not_at_all(text: str) -> None:
    """Harm prevented: a statement with another condition. One with a secret is not repeated."""
    words = ["alter", f"DELETE FROM lake.n.t WHERE {text}"]
    following = shlex.split(next_command(words, 4, group=main))[1:]

    assert following == (words if shown_statement(words[1]) == words[1] else [])


HIDDEN = "pa55-w0rd-of-mine"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--source", f"https://u:{HIDDEN}@ch1"), ("--source", "https://u@ch1")),
        ((f"--source=https://u:{HIDDEN}@ch1",), ("--source=https://u@ch1",)),
        (("--ledger", f"keeper://u:{HIDDEN}@z/p"), ("--ledger", "keeper://u@z/p")),
        (("--to", f"hive:s3://k:{HIDDEN}@b/x"), ("--to", "hive:s3://k@b/x")),
        (("--to", f"hive:s3://k:a/{HIDDEN}@b/x"), ("--to", "hive:s3://k@b/x")),
        (("--conf", f"spark.a.secret.key={HIDDEN}"), ("--conf", "spark.a.secret.key=…")),
        (("--conf", f"spark.uri=https://u:{HIDDEN}@h"), ("--conf", "spark.uri=https://u@h")),
        ((f"--conf=spark.password={HIDDEN}",), ("--conf=spark.password=…",)),
        (("--source-setting", f"password={HIDDEN}"), ("--source-setting", "password=…")),
    ],
)
def test_the_next_command_has_no_secret_of_an_option(
    words: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    following = next_command(("export", "db.t", "--all", *words), 4, group=main)

    assert shlex.split(following)[1:] == ["export", "db.t", "--all", *shown]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fetch", "l.n.t", "--from", f"s3://k:{HIDDEN}@b/x"), "fetch l.n.t --from s3://k@b/x"),
        (("read", f"hive:s3://k:{HIDDEN}@b/x"), "read hive:s3://k@b/x"),
        (("alter", f"ALTER TABLE l.n.t FETCH PARTITION 1 FROM 's3://k:{HIDDEN}@b/x'"), ""),
        (("spark", "--", "--conf", f"spark.a.secret.key={HIDDEN}"), ""),
        (
            ("spark", "--source", f"ch=https://u:{HIDDEN}@h", "--", "-e", "SELECT 1"),
            "spark --source ch=https://u@h -- -e 'SELECT 1'",
        ),
        (
            ("exports", "list", "--watch", "--ledger", f"keeper://u:{HIDDEN}@z"),
            "exports list --watch --ledger keeper://u@z",
        ),
    ],
)
def test_no_command_is_printed_that_would_need_a_secret(
    words: tuple[str, ...], expected: str
) -> None:
    """A text that cannot be shown without its secret has no next command."""
    assert next_command(words, 4, group=main) == (f"mergeberg {expected}" if expected else "")


FORCED = "export db.t --all --force --to l.n.t"


@pytest.mark.parametrize(
    ("file", "line", "code", "error", "expected"),
    [
        (
            '[export]\nwhere = "rows > 1 OR bytes > 2"',
            FORCED,
            4,
            None,
            f"{FORCED} --where \"(rows > 1 OR bytes > 2) AND partition_id NOT IN ('202401')\"",
        ),
        (
            '[export]\nwhere = "rows > 1"',
            f"{FORCED} --where 'rows > 2'",
            4,
            None,
            f"{FORCED} --where \"(rows > 2) AND partition_id NOT IN ('202401')\"",
        ),
        (
            "[export]\nall = true",
            "export db.t --force --to l.n.t",
            4,
            None,
            "export db.t --force --to l.n.t --where \"partition_id NOT IN ('202401')\"",
        ),
        ("[export]\nledger = 'a'", "export db.t --to l.n.t", 6, None, "exports list --ledger a"),
        (
            "[export]\nledger = 'a'",
            "export db.t --to l.n.t --ledger b",
            6,
            None,
            "exports list --ledger b",
        ),
        ("[general]\nledger = 'a'", "export db.t --to l.n.t", 6, None, "exports list"),
        (
            "[general]\nledger = 'a'\n[exports.list]\nledger = 'b'",
            "export db.t --to l.n.t",
            6,
            None,
            "exports list --ledger a",
        ),
        (
            f"[export]\nsource = 'https://u:{HIDDEN}@h'\nconvert = ['a=string', 'b=long']",
            "export db.t --to hive:x",
            3,
            REFUSED,
            "check db.t --convert a=string --convert b=long --source https://u@h",
        ),
        (
            "[export]\nto = 'l.n.t'\nallow-insecure = true",
            "export db.t",
            3,
            REFUSED,
            "check db.t --to l.n.t --allow-insecure",
        ),
        (
            "[export]\nevolve-schema = true",
            "export db.t --to hive:x",
            3,
            LACKING,
            "check db.t --evolve-schema",
        ),
        (
            "[alter]\ndatabase = 'shop'",
            f"alter '{EXPORT.format('t')}'",
            3,
            UNKNOWN,
            "partitions shop.t",
        ),
        (
            "[verify]\nsource = 's'",
            "verify db.t --to l.n.t",
            3,
            UNKNOWN,
            "partitions db.t --source s",
        ),
    ],
)
def test_the_next_command_has_the_options_of_the_configuration(
    file: str, line: str, code: int, error: TableFormatError | None, expected: str, tmp_path: Path
) -> None:
    """Harm prevented: a forced export of partitions that the file excludes, or another ledger."""
    words = shlex.split(line)
    (tmp_path / "m.toml").write_text(file)
    context = context_of(tmp_path / "m.toml", *words)

    following = next_command(
        words, code, group=main, error=error, landed=["202401"], context=context
    )

    assert following == f"mergeberg {expected}"


def test_the_next_command_reads_the_database_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MERGEBERG_DATABASE", "shop")
    (tmp_path / "m.toml").write_text("")
    words = ("alter", EXPORT.format("t"))
    context = context_of(tmp_path / "m.toml", *words)

    following = next_command(words, 3, group=main, error=UNKNOWN, context=context)

    assert following == "mergeberg partitions shop.t"


def test_a_refused_export_with_a_log_says_how_to_check_it(places: Places, tmp_path: Path) -> None:
    """The command line itself says it, not only the rule."""
    log, source = f"json:{tmp_path / 'log'}", f"chdb:{places.clickhouse}"
    words = ("export", "db.odd", "--all", "--to", "lake.n.new", "--source", source)

    code, _, err = places.run("--log", log, *words, "--warehouse", str(places.warehouse))

    assert code == 3
    assert f"mergeberg --log {log} check db.odd --to lake.n.new --source {source}" in err
