"""The functions of `spark_ext` say what the procedures say, and the page says what they say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields

import pytest

import spark_ext
from spark_ext.procedures.declared import Procedure
from spark_ext.procedures.exporting import EXPORT_PARTITION, EXPORT_PARTITIONS, EXPORTED
from spark_ext.sql.wording import in_python
from tests.repository.source_files import ROOT

PAGE = (ROOT / "docs" / "reference" / "python-api.md").read_text()
BOTH = pytest.mark.parametrize(
    ("function", "procedure"),
    [
        (spark_ext.export_partition, EXPORT_PARTITION),
        (spark_ext.export_partitions, EXPORT_PARTITIONS),
    ],
)
LITERALS: dict[str, object] = {"true": True, "false": False, "NULL": None, "map()": {}}


def parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(function).parameters.items() if n != "spark"}


@BOTH
def test_parameters_and_defaults_are_those_of_the_procedure(
    function: Callable[..., object], procedure: Procedure
) -> None:
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


def test_a_value_has_the_columns_of_the_answer() -> None:
    assert [f.name for f in fields(spark_ext.ExportedPartition)] == [c.name for c in EXPORTED]
    assert [c.name for c in EXPORTED if f"`{c.name}`" not in PAGE] == []


def test_messages_say_arguments_as_python_writes_them() -> None:
    assert in_python("Give --force.") == "Give `force=True`."


def test_the_package_of_sql_can_be_called() -> None:
    assert callable(spark_ext.sql)
    assert inspect.ismodule(spark_ext.sql)
