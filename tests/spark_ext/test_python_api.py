"""The functions of `spark_ext` say what the procedures say, and the page says what they say."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import fields

import pytest

import spark_ext
from spark_ext.procedures.declarations import Procedure
from spark_ext.procedures.export import EXPORT_PARTITION, EXPORT_PARTITIONS, EXPORTED
from spark_ext.procedures.statements import TYPED_PROCEDURES
from spark_ext.sql.messages import in_python
from tableformat.messages import Option
from tests.repository.source_files import ROOT

PAGE = (ROOT / "docs" / "reference" / "python-api.md").read_text()
BOTH = pytest.mark.parametrize(
    ("function", "procedure"),
    [
        (spark_ext.export_partition, EXPORT_PARTITION),
        (spark_ext.export_partitions, EXPORT_PARTITIONS),
    ],
)
STATEMENTS = pytest.mark.parametrize("procedure", TYPED_PROCEDURES, ids=lambda one: one.name)
STUB = ast.parse((ROOT / "spark_ext" / "__init__.pyi").read_text())
LITERALS: dict[str, object] = {"true": True, "false": False, "NULL": None, "map()": {}}


def parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(function).parameters.items() if n != "spark"}


@BOTH
def test_parameters_and_defaults_are_those_of_the_procedure(
    function: Callable[..., object], procedure: Procedure
) -> None:
    assert_alike(function, procedure)


@STATEMENTS
def test_a_statement_has_its_procedures_parameters_all_but_the_table_by_name(
    procedure: Procedure,
) -> None:
    function = getattr(spark_ext, procedure.name)
    given = parameters(function)
    kinds = {n for n, p in given.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY}

    assert_alike(function, procedure)
    assert kinds == {"table"}
    assert (function.__name__, function.__doc__.splitlines()[0]) == (
        procedure.name,
        procedure.description,
    )
    assert f"`{procedure.name}`" in PAGE


@pytest.mark.parametrize(
    "procedure", [EXPORT_PARTITION, EXPORT_PARTITIONS, *TYPED_PROCEDURES], ids=lambda one: one.name
)
def test_a_type_checker_sees_the_parameters_of_a_function(procedure: Procedure) -> None:
    (stub,) = (
        node
        for node in STUB.body
        if isinstance(node, ast.FunctionDef) and node.name == procedure.name
    )
    given = parameters(getattr(spark_ext, procedure.name))
    shown = {
        a.arg: (ast.unparse(a.annotation or a), default is not None)
        for a, default in zip(stub.args.kwonlyargs, stub.args.kw_defaults, strict=True)
    }

    by_name = inspect.Parameter.KEYWORD_ONLY

    assert [a.arg for a in stub.args.args] == [
        "spark", *(name for name, one in given.items() if one.kind is not by_name)
    ]  # fmt: skip
    assert shown == {
        name: (
            re.sub(r"(?:\w+\.)+(?=[A-Z])", "", inspect.formatannotation(one.annotation)),
            one.default is not inspect.Parameter.empty,
        )
        for name, one in given.items()
        if one.kind is by_name
    }


@BOTH
def test_a_function_documents_its_options_in_the_words_of_python(
    function: Callable[..., object], procedure: Procedure
) -> None:
    documented = inspect.getdoc(function) or ""

    assert documented.splitlines()[0] == procedure.description
    assert [p.name for p in procedure.parameters if f"    {p.name}: " not in documented] == []
    assert not re.search(r"\b(?:NULL|true|false)\b", documented)


def assert_alike(function: Callable[..., object], procedure: Procedure) -> None:
    """Fail where a function has other parameters or defaults than its procedure."""
    given = parameters(function)

    assert [*given] == [p.name for p in procedure.parameters]
    for one in procedure.parameters:
        default = given[one.name].default
        if one.default is None:
            assert default is inspect.Parameter.empty
        else:
            literal = LITERALS[one.default] if one.default in LITERALS else int(one.default)
            assert (one.name, default) == (one.name, literal)


@BOTH
def test_all_behind_the_source_are_given_by_name(
    function: Callable[..., object], procedure: Procedure
) -> None:
    kinds = {n: p.kind for n, p in parameters(function).items()}

    assert procedure.parameters[1].name == "source"
    assert {n for n, kind in kinds.items() if kind is not inspect.Parameter.KEYWORD_ONLY} == {
        "table",
        "source",
    }


@BOTH
def test_the_page_names_every_parameter_with_its_default(
    function: Callable[..., object], procedure: Procedure
) -> None:
    assert procedure.parameters
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", PAGE, re.MULTILINE))

    named = {n: p.default for n, p in parameters(function).items() if n not in ("table", "source")}
    assert {n: rows.get(n) for n in named} == {n: str(default) for n, default in named.items()}


def test_a_value_has_the_columns_of_the_result() -> None:
    assert [f.name for f in fields(spark_ext.ExportedPartition)] == [c.name for c in EXPORTED]
    assert [c.name for c in EXPORTED if f"`{c.name}`" not in PAGE] == []


def test_messages_say_arguments_as_python_writes_them() -> None:
    assert in_python(f"Give {Option.FORCE}.") == "Give `force=True`."


def test_the_package_of_sql_can_be_called() -> None:
    assert callable(spark_ext.sql)
    assert inspect.ismodule(spark_ext.sql)
