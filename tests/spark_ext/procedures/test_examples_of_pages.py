"""Each example on the pages about procedures can be run as it stands.

Those of statements are the examples that their declaration has, of which
tests/spark_ext/sql/test_statements.py shows that they run.
"""

from __future__ import annotations

import ast
import re

from spark_ext.procedures.declarations import Value
from spark_ext.sql.dispatch import PROCEDURES
from spark_ext.sql.statements import TYPED
from tableformat.errors import TableFormatError
from tests.support.procedures_page import written
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

FIRST, LAST = ("create_table_like", "export_partitions"), "archive_partition"
"""Those without which others have no table, and that which takes the rows out of the source."""
_TIME = re.compile(r"TIMESTAMP '([^']*)'")


def arguments(name: str, example: str) -> dict[str, Value]:
    """Return the arguments of `CALL lake.system.name(…)`, those without a name by their place."""
    text = _TIME.sub(r"TIMESTAMP('\1')", example).replace(" => ", "=")
    found = ast.parse(text.removeprefix("CALL "), mode="eval").body
    assert isinstance(found, ast.Call)
    places = zip(PROCEDURES[name].parameters, found.args, strict=False)
    named = {word.arg: word.value for word in found.keywords if word.arg is not None}
    given = {parameter.name: value for parameter, value in places} | named
    return {parameter: _value(node) for parameter, node in given.items()}


def _value(node: ast.expr) -> Value:
    match node:
        case ast.Name("true" | "false"):
            return node.id == "true"
        case ast.Call(ast.Name("map"), [key, value]):
            return {ast.literal_eval(key): ast.literal_eval(value)}
        case ast.Call(ast.Name("TIMESTAMP"), [time]):
            # As the server's JVM passes a time on.
            return f"{ast.literal_eval(time).replace(' ', 'T')}Z"
        case _:
            text: str = ast.literal_eval(node)
            return text


def test_examples_of_procedures_run_as_they_stand(places: Places, session: NoSpark) -> None:
    """Harm prevented: a page whose only example has its arguments the wrong way round."""
    places.reads_parts = True
    places.clickhouse_run("ALTER TABLE db.events ADD COLUMN payload String")
    failed: dict[str, str] = {}

    for name in (*FIRST, *sorted(PROCEDURES.keys() - TYPED.keys() - {*FIRST, LAST}), LAST):
        try:
            session.call(name, **arguments(name, written()[name][1]))
        except TableFormatError as error:
            failed[name] = error.message

    assert failed.keys() == {"cancel_export"}, failed
    assert "nothing to cancel: it is in snapshot" in failed["cancel_export"]
