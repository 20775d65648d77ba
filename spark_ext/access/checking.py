"""Checks a call against the policy of the server, where it has one.

    spark.mergeberg.policy   /etc/mergeberg/policy.sql

The setting is the application's: what a session sets has no effect. With a policy everything is
denied that it does not grant, everything at all where it cannot be read, and in a session that has
changed what names mean: a right on `lake.ns.t` is one on that table of the server's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from catalog.spark_settings import CATALOG, HADOOP
from spark_ext.access.needs import needs_of
from spark_ext.procedures.declared import Call, Procedure, SystemTable
from spark_ext.procedures.statements import EXECUTE_ALTER
from spark_ext.sql.catalogs import settings_of_application
from spark_ext.sql.statement_settings import SESSION, SETTINGS
from tableformat.access.policy import Policy
from tableformat.access.policy_text import parse_policy
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.errors import RefusedError, UsageError

__all__ = ["POLICY", "check_access"]

POLICY: Final = f"{SESSION}policy"
"""The setting that names the file."""

# `enable` sets it in the session; it holds no tables of a lake.
_OURS: Final = f"{CATALOG}mergeberg"


def check_access(asked: Procedure | SystemTable, call: Call, user: str | None) -> None:
    """Check that a user may do what he asks for; without a policy everybody may.

    Args:
        asked: the procedure or table.
        call: with its arguments, and the settings of its session.
        user: who gave the statement; None where nobody can tell.

    Raises:
        RefusedError: he may not; all that is missing is named (code 497). Or the policy cannot be
            read, or the session has other names than the server.
        TableFormatError: a name in the call may mean several things, or none.
    """
    application = settings_of_application(call.spark)
    what = f"Cannot {_what(asked)}"
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
        message = f"{what}: the server has a policy, and cannot tell who gave the statement."
        raise RefusedError(message, code=ACCESS_DENIED)
    _check_names(what, call.conf, application)
    missing = policy.missing(user, needs_of(asked, call))
    if missing:
        message = (
            f"{what}: {user}: Not enough privileges. To execute this query, it's necessary to have "
            f"the grant {', '.join(map(str, missing))}. Ask who keeps the policy of the server."
        )
        raise RefusedError(message, code=ACCESS_DENIED)


def _what(asked: Procedure | SystemTable) -> str:
    if isinstance(asked, SystemTable):
        return f"read system.{asked.name}"
    return "run the statement" if asked.name == EXECUTE_ALTER.name else f"call {asked.name}"


def _read(what: str, name: str) -> Policy:
    """Return the policy of a file, as it is now.

    Raises:
        RefusedError: it cannot be read; then nobody may do anything.
    """
    mend = "No statement is answered until who keeps the server has mended it."
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
    """Check that names mean in the session what they mean to the policy.

    Raises:
        RefusedError: the session sets what only the server's configuration may say.
    """
    changed = sorted(
        name
        for name in conf.keys() | application.keys()
        if _says_what_names_mean(name) and conf.get(name) != application.get(name)
    )
    if changed:
        message = (
            f"{what}: the session has set {', '.join(changed)}, and with a policy only the "
            "configuration of the server says which tables names mean. RESET it."
        )
        raise RefusedError(message, code=ACCESS_DENIED)


def _says_what_names_mean(name: str) -> bool:
    if name.startswith(SESSION):
        return name != POLICY and name.removeprefix(SESSION) not in SETTINGS
    return name.startswith((CATALOG, HADOOP)) and name != _OURS
