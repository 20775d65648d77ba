"""The product has few modules, and cites only documents that are in the repository."""

from __future__ import annotations

import ast
import re
import statistics
from typing import get_args

import pytest

from spark_ext.public_names import PUBLIC
from spark_ext.sql.grammar import SHARED
from spark_ext.sql.statements import READERS, TYPED, Command
from tests.repository.references import EVERY, dangling
from tests.repository.source_files import ROOT, source_files
from tests.repository.structure import (
    EVERY_HELP,
    HELP,
    crossed_files,
    imported_by,
    importers,
    main,
    modules,
    option_lists,
    own,
    statement_lists,
)

MODULES = 281
MEDIAN = (150, 336)
SINGLE_IMPORTER = 46
STATEMENT_LISTS = {
    "spark_ext/operations/operate.py": "runs each; mypy reports one that it leaves out",
    "spark_ext/public_names.py": "imports nothing, and is compared with the list below",
    "spark_ext/sql/statements.py": "the one list",
}
"""The modules that name many statements, and why they may."""
OPTION_LISTS = {
    "spark_ext/cli/declarations.py": "the place of each in a command",
    "spark_ext/cli/sections.py": "the section of each in a command's help",
    "spark_ext/procedures/export.py": "makes the request of a CALL",
    "spark_ext/sql/statement_settings.py": "makes the request of a statement",
    "tableformat/export/options.py": "the one list",
    "tableformat/messages.py": "the options that messages name, those of other commands included",
}
"""The modules that name many options of an export, and why they may."""
DEFAULTS = {"ABANDONED_TTL", "MANIFEST_TTL", "MAX_RETRIES", "MAX_SLICES", "MOST_PARTITIONS"}
"""The defaults and bounds of options of an export, which `tableformat.export.options` has."""
HAVE_DEFAULTS = {"spark_ext/actions/verify.py"}
"""Modules that name one of them; `verify` divides its partitions as an export does."""
CROSSED = {"export": 109, "detach": 67, "call": 112}
HELP_IMPORTS = 5
"""Our modules that are imported where no command runs: packages, main and sections."""
ALL_IMPORTS = 180
"""Modules, Python's and Click's included, that help may import beyond those of every program."""
OPTION_IMPORTS = 45
"""Our modules that are imported for options: those above, the lists, and their values."""
ENGINES = {"pyspark", "pyarrow", "pyiceberg", "chdb", "boto3", "numpy", "pydantic", "kazoo"}
RUN = "from spark_ext.cli.main import run; run()"
COMPLETION = {
    "_MERGEBERG_COMPLETE": "bash_complete",
    "COMP_WORDS": "mergeberg ex",
    "COMP_CWORD": "1",
}
OPTIONS = {**COMPLETION, "COMP_WORDS": "mergeberg export --", "COMP_CWORD": "2"}
OPTIONS_OF_STATEMENT = {**COMPLETION, "COMP_WORDS": "mergeberg drop --", "COMP_CWORD": "2"}


def test_there_are_not_more_modules_than_a_reader_can_keep_in_mind() -> None:
    lines = modules()
    single = [path for path, found in importers().items() if len(found) == 1]

    assert len(lines) <= MODULES
    assert MEDIAN[0] <= statistics.median(lines.values()) <= MEDIAN[1]
    assert len(single) <= SINGLE_IMPORTER, sorted(single)


def test_statements_are_listed_once() -> None:
    """Harm prevented: a statement that one interface knows and another does not."""
    assert statement_lists() == sorted(STATEMENT_LISTS)
    assert PUBLIC.keys() >= TYPED.keys()


def test_options_of_an_export_are_listed_once() -> None:
    """Harm prevented: an option that one interface has, and that another forgets."""
    assert option_lists() == sorted(OPTION_LISTS)


def test_every_first_word_of_a_statement_is_its_readers() -> None:
    verbs = dict.fromkeys(one.form.partition(" ")[0] for one in get_args(Command))

    assert list(verbs) == list(READERS)


def test_the_jar_knows_the_first_words_of_statements() -> None:
    """Harm prevented: Spark's syntax error for a statement that Python can read."""
    java = (ROOT / "spark_ext/jvm/src/mergeberg/spark/Shapes.java").read_text(encoding="utf-8")
    listed = re.search(r"OURS_ALONE =\s+Set\.of\((.*?)\);", java, re.DOTALL)

    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == READERS.keys() - SHARED


def test_no_interface_has_a_default_of_an_option_of_its_own() -> None:
    """Harm prevented: an option has one meaning in CALL, and another on the command line."""
    found = {
        file.path
        for file in source_files("spark_ext")
        if DEFAULTS & {n.id for n in ast.walk(file.tree) if isinstance(n, ast.Name)}
    }

    assert found == HAVE_DEFAULTS


def test_one_runner_exports_for_every_interface() -> None:
    """Harm prevented: what one interface does of shards or replicas, and another leaves out."""
    found = {
        file.path
        for file in source_files("spark_ext")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "export_from_any"
    }

    assert found == {"spark_ext/actions/export.py", "spark_ext/operations/from_clickhouse.py"}


@pytest.mark.spark
@pytest.mark.nightly
def test_a_command_crosses_few_files() -> None:
    found = {name: len(files) for name, files in crossed_files().items()}

    assert found.keys() == CROSSED.keys()
    assert all(0 < found[name] <= most for name, most in CROSSED.items()), found


@pytest.mark.spark
@pytest.mark.nightly
def test_one_command_prints_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Harm prevented: a figure that a reader has to measure by hand, and measures otherwise."""
    main()

    table, *places = capsys.readouterr().out.split("\n\n")
    figures = dict(line.rsplit(maxsplit=1) for line in table.splitlines()[:-1])
    assert figures["product modules"] == str(len(modules()))
    assert figures["files that one call crosses"] == str(len(crossed_files()["call"]))
    assert figures["modules that list an export's options"] == str(len(OPTION_LISTS))
    assert figures["references without a target"] == "0"
    assert figures["other texts of our own that decide"] == "0"
    assert "tableformat/ledger_text.py, _kind_before: rows up to" in "".join(places)


@pytest.mark.parametrize(
    ("program", "environment"),
    [
        pytest.param(HELP, {}, id="help"),
        pytest.param(HELP.replace("--help", "--version"), {}, id="version"),
        pytest.param(HELP.replace("'--help'", "'exports', '--help'"), {}, id="help of a group"),
        pytest.param(RUN, COMPLETION, id="completion"),
    ],
)
def test_what_runs_no_command_imports_no_command(program: str, environment: dict[str, str]) -> None:
    """Harm prevented: seconds of imports at every TAB."""
    imported, _ = imported_by(program, **environment)

    assert "click" in imported
    assert len(own(imported)) <= HELP_IMPORTS, sorted(own(imported))
    assert len(imported) <= ALL_IMPORTS, sorted(imported)


@pytest.mark.parametrize(
    ("program", "environment"),
    [
        pytest.param(EVERY_HELP, {}, id="help of every command"),
        pytest.param(RUN, OPTIONS, id="completion of options"),
        pytest.param(RUN, OPTIONS_OF_STATEMENT, id="completion of options of a statement"),
    ],
)
def test_what_shows_options_imports_no_engine(program: str, environment: dict[str, str]) -> None:
    """Harm prevented: seconds of imports of Spark and Arrow for the help of a command."""
    imported, _ = imported_by(program, **environment)

    assert "spark_ext.cli.options" in imported
    assert imported & ENGINES == set()
    assert len(own(imported)) <= OPTION_IMPORTS, sorted(own(imported))
    assert len(imported) <= ALL_IMPORTS, sorted(imported)


@pytest.mark.parametrize("package", ["mergeberg", "spark_ext"])
def test_importing_a_package_imports_only_the_list_of_its_names(package: str) -> None:
    imported, _ = imported_by(f"import {package}")

    assert own(imported) == {package, "spark_ext", "spark_ext.public_names"}
    assert "email" not in imported


def test_no_command_imports_another() -> None:
    """Harm prevented: a command that loads what other commands need."""
    commands = "spark_ext/cli/commands/"
    found = {
        path: sorted(one for one in by if one.startswith(commands))
        for path, by in importers().items()
        if path.startswith(commands)
    }

    assert {path: by for path, by in found.items() if by} == {}


@pytest.mark.parametrize(
    "kind", ["documents outside of the repository", "pages of docs in all texts"]
)
def test_code_and_documents_cite_only_what_is_in_the_repository(kind: str) -> None:
    """Harm prevented: a reader looks for the source of a rule, and nobody outside has it."""
    assert dangling(EVERY[kind]()) == []
