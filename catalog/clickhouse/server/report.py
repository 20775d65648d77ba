"""Everything about a server and its user that `check` says on one screen, as one value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, text
from catalog.clickhouse.describe import list_partitions
from catalog.clickhouse.offers import Offer, SignKind
from catalog.clickhouse.server.answers import NOT_SHOWN
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.grants import ARCHIVE, NICE, Grant, Target
from catalog.clickhouse.server.policies import hidden_rows, refuse_hidden
from catalog.clickhouse.server.replicas import lag_of
from catalog.clickhouse.server.rights import Asked, ask_rights, unreadable_tables
from catalog.clickhouse.server.standing import Standing, standing_of
from catalog.clickhouse.staging import list_leftovers
from tableformat.names import TableName
from tableformat.quantities import counted

__all__ = ["ServerReport", "report_of"]

_LIMITS: Final = (
    "queries",
    "query_selects",
    "query_inserts",
    "errors",
    "result_rows",
    "result_bytes",
    "read_rows",
    "read_bytes",
    "execution_time",
    "written_bytes",
)
# The one is there in place of the other; row policies have a line of their own.
_NO_LACK: Final = (Offer.DATA_PATH, Offer.ROW_POLICIES)


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What is known of a server and of its user before an export.

    `grants` are the rights that are missing, `for_archive` those that `archive` needs beside them,
    `nice` those without which something is slower. While the user may not read the system tables,
    `version` is '', `lacks` empty, and what is known of staging tables None. `reasons` forbid the
    export, `notes` are for the user to know.
    """

    address: str
    user: str
    profile: str
    asked: str
    staging_database: str
    reasons: tuple[str, ...]
    version: str = ""
    replica: str = "not asked"
    grants: tuple[Grant, ...] = ()
    for_archive: tuple[Grant, ...] = ()
    nice: tuple[Grant, ...] = ()
    row_policies: str = "not asked"
    quota: str = "not asked"
    staging_tables: int | None = None
    staging_bytes: int | None = None
    lacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_readable(self) -> bool:
        """Whether the table can be looked at."""
        return bool(self.version) and not any(
            g.privilege == "SELECT" and g.on.database != self.staging_database for g in self.grants
        )


def report_of(
    connection: ServerConnection, table: TableName, staging: str, *, ignores: bool
) -> ServerReport:
    """Gather everything; what may not be seen is said to be so.

    Args:
        connection: of the user.
        table: that is to be exported.
        staging: the staging database.
        ignores: whether row policies are to be ignored.

    Raises:
        SourceError: the server cannot be asked.
    """
    standing = standing_of(connection, table, staging)
    reasons = [
        f"{standing.what}: {one}" for one in standing.forbidding(ignore_row_policies=ignores)
    ]
    if standing.missing:
        number = len(standing.missing)
        reasons.append(
            f"{standing.what}: {counted(number, 'right')} missing. Run the GRANT statements."
        )
    known = ServerReport(
        address=connection.address,
        user=standing.user,
        profile=f"readonly = {standing.profile.readonly}",
        asked=_asked(standing),
        staging_database=staging,
        reasons=tuple(reasons),
    )
    if standing.profile.readonly == "1":
        return known
    capabilities = None if standing.unreadable else probe_capabilities(connection)
    # Tables in a database on which a user has no right look as if they were not there.
    unseen = any(one.on.database == staging for one in standing.missing)
    leftovers = list_leftovers(connection, capabilities) if capabilities and not unseen else None
    policies = _policies(connection, capabilities, standing)
    asked_too = _too(connection, table, standing)
    return replace(
        known,
        version=capabilities.version if capabilities else "",
        replica=_replica(connection, table) if capabilities else "not known yet",
        grants=standing.missing,
        for_archive=tuple(g for g in asked_too if g.on.table == table.name),
        nice=tuple(g for g in asked_too if g.on.table != table.name),
        row_policies=policies.text,
        quota=_quota(connection),
        staging_tables=None if leftovers is None else len(leftovers),
        staging_bytes=None if leftovers is None else sum(one.bytes_on_disk for one in leftovers),
        lacks=_lacks(capabilities) if capabilities else (),
        reasons=(*known.reasons, *(policies.reasons if not ignores else ())),
        notes=tuple(policies.reasons) if ignores else (),
    )


@dataclass(frozen=True, slots=True)
class _Policies:
    text: str
    reasons: list[str]


def _asked(standing: Standing) -> str:
    rights = standing.rights
    if standing.profile.reasons:
        return "not asked, the profile forbids every export"
    if rights.asked is Asked.NOTHING:
        return (
            f"cannot be asked ({rights.why}); an export that lacks one says which when it meets it"
        )
    hidden = ", ".join(rights.hidden_roles)
    more = f"; what the roles {hidden} give is not shown" if hidden else ""
    none = "" if standing.missing else "OK, "
    return f"{none}checked with {rights.asked.value}{more}"


def _too(connection: ServerConnection, table: TableName, standing: Standing) -> tuple[Grant, ...]:
    """Return which rights are missing that only `archive` needs, or that nothing really needs."""
    if standing.rights.asked is Asked.NOTHING:
        return ()
    here = Target(table.database, table.name)
    wanted = (*(Grant(privilege, here, why) for privilege, why in ARCHIVE), *NICE)
    tried = [g for g in wanted if g.on.database != "system"]
    missing = list(ask_rights(connection, tuple(tried)).missing)
    for grant in wanted:
        if grant.on.database == "system":
            missing += unreadable_tables(connection, (grant,))
    if standing.policies is not None and standing.policies.are_seen:
        missing = [g for g in missing if g.privilege != "SHOW ROW POLICIES"]
    return tuple(missing)


def _policies(
    connection: ServerConnection, capabilities: Capabilities | None, standing: Standing
) -> _Policies:
    policies = standing.policies
    if policies is None or capabilities is None or standing.rights.missing:
        return _Policies("not known before the rights are there", [])
    if policies.of_user:
        return _Policies(f"hide rows from the user: {', '.join(policies.of_user)}", [])
    if not policies.must_count:
        return _Policies("none", [])
    table = standing.table
    ids = tuple(one.partition_id for one in list_partitions(connection, table))
    hidden = hidden_rows(connection, capabilities, table, ids)
    reasons = [
        refuse_hidden(table, one, what, standing.user).message for one, what in hidden.items()
    ]
    seen = "not shown to the user"
    if policies.are_seen:
        seen = f"for other users only: {', '.join(policies.of_others)}"
    found = (
        f"rows of {counted(len(hidden), 'partition')} are hidden" if hidden else "no row is hidden"
    )
    return _Policies(f"{seen}; {found}", reasons)


def _replica(connection: ServerConnection, table: TableName) -> str:
    try:
        lag = lag_of(connection, table)
    except ClickHouseError as error:
        if error.code not in NOT_SHOWN:
            raise
        return "not shown to the user"
    if lag is None:
        return "the table is not replicated"
    state = "read-only, it lost its Keeper" if lag.read_only else "writable"
    return f"{state}, {lag.delay} s behind, {lag.unread} entries of its log unread"


def _quota(connection: ServerConnection) -> str:
    columns = ", ".join(f"toFloat64(ifNull({c}, 0)), max_{c}" for c in _LIMITS)
    try:
        rows = connection.rows(
            f"SELECT quota_name, toString(end_time), {columns} FROM system.quota_usage"
        )
    except ClickHouseError as error:
        if error.code not in NOT_SHOWN:
            raise
        return "not shown to the user"
    found = []
    for row in rows:
        for at, name in enumerate(_LIMITS):
            used, most = row[2 + 2 * at], row[3 + 2 * at]
            if most is not None:
                found.append(
                    f"{text(row[0])}: {used:g} of {most:g} {name.replace('_', ' ')} until {row[1]}"
                    if isinstance(used, int | float) and isinstance(most, int | float)
                    else f"{text(row[0])}: {name.replace('_', ' ')}"
                )
    return "; ".join(found) or "no limit"


def _lacks(capabilities: Capabilities) -> tuple[str, ...]:
    found = []
    for offer in Offer:
        if offer in capabilities.offers or offer in _NO_LACK:
            continue
        sign = offer.sign
        name = f"system.{sign.name}" if sign.kind is SignKind.COLUMN else sign.name
        found.append(f"no {name}, used where {offer.use}; without it: {offer.otherwise}")
    return tuple(found)
