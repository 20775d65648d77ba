"""Renders statements as SQL: `parse_statement(render_statement(s))` equals `s` for every statement.

The text is one line. ClickHouse's own parser reads it as the same statement, except for forms that
only mergeberg has (EXPORT, names of three parts).
"""

from __future__ import annotations

from typing import assert_never

from spark_ext.sql.clauses import Deduplicate, Ending, Outfile, Setting, render_clause
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import (
    Alter,
    ChangeRows,
    Delete,
    KillQuery,
    Optimize,
    Statement,
    Update,
)
from tableformat.mergetree.expression import Literal, render_expression
from tableformat.names import quote_identifier, quote_string

__all__ = ["render_deduplicate", "render_statement"]


def render_statement(statement: Statement) -> str:
    """Return the statement as SQL, on one line."""
    match statement:
        case Alter(table, commands, cluster, ending, is_temporary):
            # Brackets keep the commas of one command from those between commands.
            each = [str(command) for command in commands]
            body = ", ".join(f"({one})" for one in each) if len(each) > 1 else each[0]
            verb = "ALTER TEMPORARY TABLE" if is_temporary else "ALTER TABLE"
            return _joined(verb, str(table), _cluster(cluster), body, _ending(ending))
        case ChangeRows(table, command, cluster, settings):
            return _change_rows(table, command, cluster, settings)
        case Optimize():
            return _optimize(statement)
        case KillQuery(query_ids, mode, cluster, ending):
            ids = [quote_string(one) for one in query_ids]
            where = f"= {ids[0]}" if len(ids) == 1 else f"IN ({', '.join(ids)})"
            how = f"WHERE query_id {where} {mode.value}"
            return _joined("KILL QUERY", _cluster(cluster), how, _ending(ending))
        case _:
            assert_never(statement)


def _joined(*pieces: str) -> str:
    return " ".join(piece for piece in pieces if piece)


def _cluster(cluster: str | None) -> str:
    return "" if cluster is None else f"ON CLUSTER {quote_string(cluster)}"


def _rows(command: Update | Delete) -> str:
    where = f"WHERE {render_expression(command.where)}"
    return where if command.partition is None else f"IN {render_clause(command.partition)} {where}"


def _change_rows(
    table: DottedName,
    command: Update | Delete,
    cluster: str | None,
    settings: tuple[Setting, ...],
) -> str:
    rows, given = _rows(command), _settings(settings)
    if isinstance(command, Delete):
        return _joined("DELETE FROM", str(table), _cluster(cluster), rows, given)
    assigned = f"SET {render_clause(command.assignments)}"
    return _joined("UPDATE", str(table), _cluster(cluster), assigned, rows, given)


def _optimize(statement: Optimize) -> str:
    return _joined(
        "OPTIMIZE TABLE",
        str(statement.table),
        _cluster(statement.cluster),
        render_clause(statement.partition),
        "FINAL" if statement.final else "",
        "" if statement.deduplicate is None else render_deduplicate(statement.deduplicate),
        _ending(statement.ending),
    )


def render_deduplicate(by: Deduplicate) -> str:
    """Return the DEDUPLICATE clause of OPTIMIZE TABLE."""
    if by.star:
        names = ", ".join(_name(column) for column in by.without)
        return f"DEDUPLICATE BY * EXCEPT ({names})" if names else "DEDUPLICATE BY *"
    names = ", ".join(_name(column) for column in by.columns)
    return f"DEDUPLICATE BY {names}" if names else "DEDUPLICATE"


def _ending(ending: Ending) -> str:
    outfile = "" if ending.outfile is None else _outfile(ending.outfile)
    form = "" if ending.format is None else f"FORMAT {_name(ending.format)}"
    return _joined(outfile, form, _settings(ending.settings))


def _outfile(outfile: Outfile) -> str:
    compression = outfile.compression
    return _joined(
        f"INTO OUTFILE {quote_string(outfile.path)}",
        "TRUNCATE" if outfile.truncate else "",
        "APPEND" if outfile.append else "",
        "AND STDOUT" if outfile.stdout else "",
        "" if compression is None else f"COMPRESSION {quote_string(compression)}",
        "" if outfile.level is None else f"LEVEL {outfile.level}",
    )


def _settings(settings: tuple[Setting, ...]) -> str:
    each = ", ".join(f"{_setting_name(setting)} = {_value(setting)}" for setting in settings)
    return f"SETTINGS {each}" if each else ""


def _setting_name(setting: Setting) -> str:
    plain = all(_name(part) == part for part in setting.name.split("."))
    return setting.name if plain else quote_identifier(setting.name)


def _value(setting: Setting) -> str:
    return "DEFAULT" if setting.value is None else render_expression(Literal(setting.value))


def _name(name: str) -> str:
    return str(DottedName((name,)))
