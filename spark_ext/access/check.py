"""Checks a procedure call or a system table query against the access policy of a shared server.

    spark.mergeberg.policy   /etc/mergeberg/policy.sql

Only the setting of the application counts; a session cannot set it or override it.
Without a policy every user may do everything. With a policy:
- a call needs every privilege that `needs_of` lists; the error names all that are missing (497);
- a policy file that cannot be read denies every call;
- a session that has changed the meaning of names is refused, because a right on `lake.ns.t` is
  a right on that table of the server's configuration.

`needs_of` derives the privileges from the call and its names; it opens no table.
It resolves names as the statement does (`spark_ext.sql.names`), so the check and the statement
see the same tables. A tag or branch of a table needs a grant on its own name (`lake.ns.t.tag_x`).
A ClickHouse table over Hive directories needs a grant on its own name, too.
The rules for users are in docs/reference/access.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from catalog.iceberg.spark_settings import CATALOG, HADOOP
from spark_ext.procedures.declarations import Call, Procedure, SystemTable
from spark_ext.procedures.names import CallNames
from spark_ext.procedures.statements import EXECUTE_ALTER, statement_of
from spark_ext.sql.catalogs import names_of, settings_of_application
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.names import Names, Parts
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import SESSION, SETTINGS, read_statement_settings
from spark_ext.sql.statements import (
    TYPED,
    Alter,
    AttachFrom,
    ChangeRows,
    Command,
    Delete,
    Export,
    Fetch,
    KillQuery,
    MoveToTable,
    Optimize,
    ReplaceFrom,
    Statement,
    TypedStatement,
    Update,
)
from tableformat.access import (
    EVERYTHING,
    Act,
    Need,
    Of,
    Policy,
    Privilege,
    Scope,
    parse_policy,
    required_for,
)
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.errors import RefusedError, UsageError
from tableformat.mergetree.row_functions import reads_outside
from tableformat.names import LakeName, split_identifiers

__all__ = ["POLICY", "check_access", "needs_of"]

_BARE: Final = 2


def needs_of(target: Procedure | SystemTable, call: Call) -> tuple[Need, ...]:
    """Return the privileges that a call needs.

    A text that is not a statement needs none, because it is refused in any case.

    Raises:
        KeyError: the procedure has no entry here.
        TableFormatError: a name is ambiguous, or names nothing.
    """
    if isinstance(target, SystemTable):
        return (Need(Privilege.SELECT, Scope(("system", target.name))),)
    return _PROCEDURES[target.name](call)


def _statement(call: Call) -> tuple[Need, ...]:
    statement = parse_statement(call.text("statement"))
    names = names_of(call.spark, call.conf, current=call.current)
    if statement is None:
        return ()
    return (*_of_statement(statement, names), *_replacing(statement, call.conf, names))


def _replacing(statement: Statement, conf: Mapping[str, str], names: Names) -> tuple[Need, ...]:
    """Return the further privileges of exports whose settings let them remove foreign rows."""
    commands = statement.commands if isinstance(statement, Alter) else ()
    exports = [one for one in commands if isinstance(one, Export)]
    if not exports or not read_statement_settings(statement, conf).replace_partition:
        return ()
    return tuple(Need(Privilege.ALTER_DELETE, _destination(names, e.to.parts)) for e in exports)


def _typed(typed: TypedStatement, call: Call) -> tuple[Need, ...]:
    return _of_statement(statement_of(typed, call), CallNames.of(call).names)


def _of_statement(statement: Statement, names: Names) -> tuple[Need, ...]:
    match statement:
        case KillQuery():
            return required_for(statement.act, {})
        case Optimize(table):
            return required_for(statement.act, {Of.TABLE: _either(names, table.parts)})
        case ChangeRows(table, command):
            return _command(command, table.parts, names)
        case Alter(table, commands):
            return tuple(n for one in commands for n in _command(one, table.parts, names))


def _command(command: Command, table: Parts, names: Names) -> tuple[Need, ...]:
    match command:
        case Export(to=to):
            return _from_to(command.act, _source(names, table), _destination(names, to.parts))
        case AttachFrom(_, other) | ReplaceFrom(_, other):
            of, came_from = _either(names, table), _other(names, table, other.parts)
            return required_for(command.act, {Of.TABLE: of, Of.FROM: came_from})
        case MoveToTable(_, other):
            of, to_table = _either(names, table), _other(names, table, other.parts)
            return required_for(command.act, {Of.TABLE: of, Of.TO: to_table})
        case Fetch(_, path):
            of, fetched = _either(names, table), _fetched(names, path)
            return required_for(command.act, {Of.TABLE: of, Of.FROM: fetched})
        case Update() | Delete():
            of = _either(names, table)
            return (
                *required_for(command.act, {Of.TABLE: of}),
                *_read_by_condition(command, table, names),
            )
        case _:
            return required_for(command.act, {Of.TABLE: _either(names, table)})


def _read_by_condition(command: Update | Delete, table: Parts, names: Names) -> tuple[Need, ...]:
    """Return SELECT on the whole source if an expression can read other ClickHouse tables."""
    values = (v for _, v in command.assignments) if isinstance(command, Update) else ()
    if names.clickhouse_table(table) is None or not any(
        map(reads_outside, (command.where, *values))
    ):
        return ()
    return (Need(Privilege.SELECT, Scope((table[0],), below=True)),)


def _fetched(names: Names, path: str) -> Scope:
    """Return the scope of FETCH: the named table, or everything for an address or path."""
    if "/" in path or ":" in path:
        return EVERYTHING
    return _either(names, split_identifiers(path))


def _other(names: Names, table: Parts, other: Parts) -> Scope:
    """Return the scope of a statement's other table.

    In a statement on a ClickHouse table, a name without a source is in the same source.
    """
    source = names.clickhouse_table(table)
    if source is not None and len(other) <= _BARE:
        return Scope((table[0], *other))
    return _either(names, other)


def _either(names: Names, parts: Parts) -> Scope:
    found = names.table(parts)
    return Scope(parts) if isinstance(found, SourceTable) else _lake(found)


def _source(names: Names, parts: Parts) -> Scope:
    default = names.settings.default_source
    if len(parts) > _BARE or default is None:
        return Scope(parts)
    of = names.bare(names.settings.sources[default], parts).table
    return Scope((default, of.database, of.name))


def _destination(names: Names, parts: Parts) -> Scope:
    if names.clickhouse_table(parts) is not None:
        return Scope(parts)
    return _lake(names.destination(parts))


def _lake(name: LakeName) -> Scope:
    return Scope((name.catalog, *name.namespace, name.name))


def _from_to(act: Act, came_from: Scope, to: Scope) -> tuple[Need, ...]:
    of_databases = {
        Of.DATABASE_FROM: Scope(came_from.parts[:-1], below=True),
        Of.DATABASE_TO: Scope(to.parts[:-1], below=True),
    }
    return required_for(act, {Of.FROM: came_from, Of.TO: to, **of_databases})


def _exporting(act: Act, call: Call) -> tuple[Need, ...]:
    names = CallNames.of(call)
    came_from = _source(names.names, _parts(call, "source"))
    return _from_to(act, came_from, _destination(names.names, _parts(call, "table")))


def _exports(call: Call) -> tuple[Need, ...]:
    """Return the privileges of EXPORT, and with `replace_partition` also ALTER DELETE."""
    needs = _exporting(Act.EXPORT, call)
    if not call.flag("replace_partition"):
        return needs
    to = _destination(CallNames.of(call).names, _parts(call, "table"))
    return (*needs, Need(Privilege.ALTER_DELETE, to))


def _looking(scope: Callable[[Names, Parts], Scope], call: Call) -> tuple[Need, ...]:
    table = scope(CallNames.of(call).names, _parts(call, "table"))
    return required_for(Act.LOOK, {Of.TABLE: table})


def _cleaning(call: Call) -> tuple[Need, ...]:
    names, found = CallNames.of(call).names, list[Need]()
    if call.text_or_none("table") is not None:
        table = _destination(names, _parts(call, "table"))
        found += required_for(Act.GC_OF_A_TABLE, {Of.TABLE: table})
    if call.text_or_none("source") is not None:
        first = _source(names, _parts(call, "source")).parts[0]
        found += required_for(Act.GC_OF_A_SOURCE, {Of.SOURCE: Scope((first,), below=True)})
    return tuple(found)


def _parts(call: Call, argument: str) -> Parts:
    return split_identifiers(call.text(argument))


_PROCEDURES: Final[Mapping[str, Callable[[Call], tuple[Need, ...]]]] = {
    "archive_partition": partial(_exporting, Act.ARCHIVE_PARTITION),
    "cancel_export": partial(_exporting, Act.CANCEL_EXPORT),
    "create_table_like": partial(_exporting, Act.CREATE_TABLE_LIKE),
    "execute_alter": _statement,
    "export_partition": _exports,
    "export_partitions": _exports,
    "exports": lambda _: required_for(Act.EXPORTS, {}),
    "forget_export": partial(_exporting, Act.FORGET_EXPORT),
    "gc": _cleaning,
    "partitions": partial(_looking, _either),
    "parts": partial(_looking, _source),
    "verify_partition": partial(_exporting, Act.VERIFY_PARTITION),
    **{name: partial(_typed, typed) for name, typed in TYPED.items()},
}


POLICY: Final = f"{SESSION}policy"
"""The setting with the path of the policy file."""

# `enable` sets this catalog in the session; it has no lake tables.
_OURS: Final = f"{CATALOG}mergeberg"


def check_access(target: Procedure | SystemTable, call: Call, user: str | None) -> None:
    """Check that a user has the privileges for a call; without a policy, every user has them.

    Args:
        target: the procedure or system table.
        call: the call, with its arguments and the settings of its session.
        user: the SQL user; None if it is unknown.

    Raises:
        RefusedError: privileges are missing, all of which the message names (code 497); the policy
            cannot be read; or the session has changed the meaning of names.
        TableFormatError: a name in the call is ambiguous, or names nothing.
    """
    application = settings_of_application(call.spark)
    what = f"Cannot {_what(target)}"
    if POLICY not in application:
        if POLICY in call.conf:
            message = (
                f"{what}: {POLICY} is set in the session only, where it protects nothing. Set it "
                "in the configuration that the server starts with, or RESET it."
            )
            raise RefusedError(message)
        return
    policy = _read(what, application[POLICY])
    if not user:
        message = f"{what}: the server has a policy, and the user of the statement is unknown."
        raise RefusedError(message, code=ACCESS_DENIED)
    _check_names(what, call.conf, application)
    missing = policy.missing(user, needs_of(target, call))
    if missing:
        message = (
            f"{what}: {user}: Not enough privileges. To execute this query, it's necessary to have "
            f"the grant {', '.join(map(str, missing))}. Ask the administrator of the server."
        )
        raise RefusedError(message, code=ACCESS_DENIED)


def _what(target: Procedure | SystemTable) -> str:
    if isinstance(target, SystemTable):
        return f"read system.{target.name}"
    return "run the statement" if target.name == EXECUTE_ALTER.name else f"call {target.name}"


def _read(what: str, name: str) -> Policy:
    """Read and parse the policy file.

    Raises:
        RefusedError: the file cannot be read or parsed; then every call is denied.
    """
    mend = "No statement runs until the administrator of the server has fixed it."
    if not Path(name).is_absolute():
        message = f"{what}: {POLICY} is {name!r}, which is no absolute path. {mend}"
        raise RefusedError(message, code=ACCESS_DENIED)
    try:
        return parse_policy(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        message = f"{what}: the policy {name} cannot be read, {why}. {mend}"
        raise RefusedError(message, code=ACCESS_DENIED) from error
    except UsageError as error:
        message = f"{what}: the policy {name} cannot be read, {error.message}. {mend}"
        raise RefusedError(message, code=ACCESS_DENIED) from error


def _check_names(what: str, conf: Mapping[str, str], application: Mapping[str, str]) -> None:
    """Check that names have the same meaning in the session as in the server's configuration.

    Raises:
        RefusedError: the session has changed settings that define the meaning of names.
    """
    changed = sorted(
        name
        for name in conf.keys() | application.keys()
        if _defines_names(name) and conf.get(name) != application.get(name)
    )
    if changed:
        message = (
            f"{what}: the session has set {', '.join(changed)}, but with a policy only the "
            "server's configuration decides which tables names refer to. RESET it."
        )
        raise RefusedError(message, code=ACCESS_DENIED)


def _defines_names(name: str) -> bool:
    if name.startswith(SESSION):
        return name != POLICY and name.removeprefix(SESSION) not in SETTINGS
    return name.startswith((CATALOG, HADOOP)) and name != _OURS
