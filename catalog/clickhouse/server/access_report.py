"""Reports which rights and settings a server user lacks for an export, before anything is created.

    profile -> system tables -> grants -> row policies

`export` refuses by this report and lists everything that is missing at once; `check` prints it
(`ServerReport`). A refusal leaves nothing behind.

Missing rights are found in the first way that works; the version number is never used:

1. CHECK GRANT, which knows roles, wildcards and revoked rights (from 24.10 on).
2. SHOW GRANTS of the user and of each active role, parsed in
   `catalog/clickhouse/server/grants.py`.
3. Neither: the oldest servers have no grants, only `readonly` and allow_databases.

Access to system tables is tried by a query as well, because the server's configuration decides
whether it needs a grant. See docs/operating/servers.md, "How it is known".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, Offer, SignKind, probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, flag, text, texts, ttl_columns
from catalog.clickhouse.server.client import NOT_SHOWN
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.grants import (
    ARCHIVE,
    NICE,
    Given,
    GivenRole,
    Grant,
    Need,
    NotUnderstoodError,
    Target,
    allows,
    export_grants,
    parse_line,
    statements,
    system_grants,
)
from catalog.clickhouse.server.policies import Policies, hidden_rows, list_policies, refuse_hidden
from catalog.clickhouse.server.replicas import lag_of
from catalog.clickhouse.snapshot.staging import list_leftovers
from catalog.clickhouse.table_description import list_partitions, of_table
from tableformat.clickhouse_codes import (
    ACCESS_DENIED,
    QUERY_IS_PROHIBITED,
    READONLY,
    SYNTAX_ERROR,
    UNKNOWN_FUNCTION,
)
from tableformat.errors import Action, InternalError, RefusedError, Unable
from tableformat.messages import Option
from tableformat.names import TableName, quote_identifier, quote_string
from tableformat.quantities import counted

__all__ = [
    "Profile",
    "Rights",
    "RightsQuery",
    "ServerReport",
    "Standing",
    "check_staging_seen",
    "check_system_tables",
    "missing_rights",
    "profile_of",
    "report_of",
    "standing_of",
    "unreadable_tables",
    "user_of",
]

# This condition selects no table, so the query is cheap on a server with many parts.
_NONE: Final = " WHERE database = 'system' AND table = '' LIMIT 0"
_WITHOUT_TABLE: Final = ("disks", "merge_tree_settings", "processes")
# This table accepts no query without a path.
_KEEPER: Final = "zookeeper"


class RightsQuery(Enum):
    """The query by which missing rights were found."""

    CHECK_GRANT = "CHECK GRANT"
    SHOW_GRANTS = "SHOW GRANTS"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Rights:
    """The missing rights, as far as they can be determined.

    `idle_roles` are granted to the user and not active; `hidden_roles` are active, but the user may
    not see their grants. `why` is the reason if nothing could be determined.
    """

    query: RightsQuery
    missing: tuple[Grant, ...] = ()
    idle_roles: tuple[str, ...] = ()
    hidden_roles: tuple[str, ...] = ()
    why: str = ""


def user_of(connection: ServerConnection) -> str:
    """Return the user's name as the server reports it, or else the name given to log in.

    Raises:
        SourceError: the server cannot be read.
    """
    try:
        return texts(connection, "SELECT currentUser()")[0]
    except ClickHouseError as error:
        if error.code != UNKNOWN_FUNCTION:
            raise
    return connection.client.settings.credentials.user or "default"


def missing_rights(connection: ServerConnection, wanted: tuple[Grant, ...]) -> Rights:
    """Return the rights that the user of a connection lacks.

    Raises:
        SourceError: the server cannot be read at all.
    """
    if _check_grant(connection, wanted):
        return Rights(RightsQuery.CHECK_GRANT)
    checked = [(one, _check_grant(connection, (one,))) for one in wanted]
    seen = _seen(connection)
    # The version does not accept an unknown privilege, and does not require it either.
    if any(is_held is not None for _, is_held in checked):
        missing = tuple(one for one, is_held in checked if is_held is False)
        return Rights(RightsQuery.CHECK_GRANT, missing, seen.idle, why=seen.why)
    if seen.why:
        return Rights(RightsQuery.NOTHING, why=seen.why)
    known = _privileges(connection)
    missing = tuple(
        one
        for one in wanted
        if one.privilege in (known or {one.privilege})
        and not any(allows(_givens(held), one) for held in seen.holders)
    )
    return Rights(RightsQuery.SHOW_GRANTS, missing, seen.idle, seen.hidden)


def unreadable_tables(connection: ServerConnection, wanted: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Return those of the wanted rights whose tables the user may not read, by reading them.

    Tables that the version does not have are left out.

    Raises:
        SourceError: the server cannot be read.
    """
    together = " UNION ALL ".join(f"SELECT 1 FROM {one.on.sql}{_nothing(one)}" for one in wanted)
    if _is_readable(connection, together, others=False):
        return ()
    return tuple(
        one
        for one in wanted
        if not _is_readable(connection, f"SELECT 1 FROM {one.on.sql}{_nothing(one)}", others=True)
    )


Lines = tuple[Given | GivenRole, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The grants of the user and of each active role, or the reason why they are hidden."""

    holders: tuple[Lines, ...] = ()
    hidden: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    why: str = ""


def _check_grant(connection: ServerConnection, grants: Iterable[Grant]) -> bool | None:
    """Return whether the user has rights, None if the version has no CHECK GRANT."""
    rights = ", ".join(one.sql for one in grants)
    try:
        # CHECK GRANT has no FORMAT clause.
        result = connection.client.query(
            f"CHECK GRANT {rights}",
            settings=(*connection.settings, ("default_format", "TSV")),
            repeat=True,
        )
    except ClickHouseError as error:
        if error.code == SYNTAX_ERROR:
            return None
        raise
    if result not in (b"0\n", b"1\n"):
        message = (
            f"Cannot read a response of ClickHouse: {result[:50]!r} is not 0 or 1. This is a bug, "
            "please report it."
        )
        raise InternalError(message)
    return result == b"1\n"


def _shown(connection: ServerConnection, who: str) -> Lines:
    """Return the grants that the server shows for a user or role.

    Raises:
        NotUnderstoodError: a line revokes something that cannot be determined.
        ClickHouseError: the server does not show them.
    """
    read = (parse_line(line) for line in texts(connection, f"SHOW GRANTS FOR {who}"))
    return tuple(one for one in read if one is not None)


def _seen(connection: ServerConnection) -> _Seen:
    try:
        lines = _shown(connection, "CURRENT_USER")
        active = [text(row[0]) for row in connection.rows("SELECT arrayJoin(enabledRoles())")]
    except NotUnderstoodError as error:
        return _Seen(why=str(error))
    except ClickHouseError as error:
        if error.code == SYNTAX_ERROR:
            return _Seen(why="this version has no GRANT")
        if error.code not in (ACCESS_DENIED, UNKNOWN_FUNCTION):
            raise
        return _Seen(why=error.reason)
    granted = {role for one in lines if isinstance(one, GivenRole) for role in one.roles}
    holders, hidden = [lines], []
    for role in active:
        try:
            holders.append(_shown(connection, quote_identifier(role)))
        except (ClickHouseError, NotUnderstoodError) as error:
            if isinstance(error, ClickHouseError) and error.code != ACCESS_DENIED:
                raise
            hidden.append(role)
    return _Seen(tuple(holders), tuple(hidden), tuple(sorted(granted - set(active))))


def _givens(lines: Lines) -> list[Given]:
    return [one for one in lines if isinstance(one, Given)]


def _privileges(connection: ServerConnection) -> frozenset[str]:
    """Return the privileges that the version has, none if it does not list them."""
    try:
        return frozenset(
            texts(connection, "SELECT DISTINCT toString(privilege) FROM system.privileges")
        )
    except ClickHouseError:
        return frozenset()


def _nothing(grant: Grant) -> str:
    if grant.on == Target("system", _KEEPER):
        return " WHERE path = '/' LIMIT 0"
    of_system = grant.on.database == "system" and grant.on.table not in _WITHOUT_TABLE
    return _NONE if of_system else " LIMIT 0"


def _is_readable(connection: ServerConnection, sql: str, *, others: bool) -> bool:
    """Whether the user may run a query; `others` is the result for other errors."""
    try:
        connection.rows(sql)
    except ClickHouseError as error:
        return others and error.code != ACCESS_DENIED
    return True


_UNASKED: Final = Rights(RightsQuery.NOTHING)


@dataclass(frozen=True, slots=True)
class Profile:
    """The restrictions in the user's settings profile."""

    readonly: str = "0"
    allows_ddl: bool = True

    @property
    def code(self) -> int | None:
        """ClickHouse's error code for the restriction, None if there is none."""
        if self.readonly != "0":
            return READONLY
        return None if self.allows_ddl else QUERY_IS_PROHIBITED

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why the profile prevents an export; each continues 'the user'."""
        found = []
        if self.readonly != "0":
            found.append(
                f"has readonly = {self.readonly}, and a snapshot creates a staging table; set "
                "readonly = 0 in its profile: its grants still limit what it may change"
            )
        if not self.allows_ddl:
            found.append("has allow_ddl = 0, and a snapshot creates a staging table; set it to 1")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Standing:
    """The rights and restrictions of a user before an export of a table.

    `unreadable` are missing rights on system tables. `policies` is None while the table cannot be
    read.
    """

    table: TableName
    user: str
    profile: Profile
    unreadable: tuple[Grant, ...]
    rights: Rights
    policies: Policies | None

    @property
    def missing(self) -> tuple[Grant, ...]:
        """All missing rights."""
        return (*self.rights.missing, *self.unreadable)

    @property
    def grants(self) -> tuple[str, ...]:
        """The GRANT statements for the missing rights."""
        return statements(self.missing, self.user)

    @property
    def subject(self) -> str:
        """The table and the user, as a refusal names them."""
        return f"{self.table} as the user {self.user!r}"

    def forbidding(self, *, ignore_row_policies: bool) -> tuple[str, ...]:
        """Return the other reasons than missing rights that prevent an export, with remedies."""
        found = [f"it {reason}." for reason in self.profile.reasons]
        policies = self.policies.of_user if self.policies else ()
        if policies and not ignore_row_policies:
            found.append(
                f"row policies hide rows from it ({', '.join(policies)}), but an export must "
                "contain all rows. Use a user to whom none applies, or give "
                f"{Option.IGNORE_ROW_POLICIES}."
            )
        idle = self.rights.idle_roles
        if self.missing and idle:
            found.append(
                f"it has the role {', '.join(idle)}, which is not active, and may need no other. "
                f"Run SET DEFAULT ROLE {', '.join(idle)} TO {self.user};"
            )
        return tuple(found)

    def refusal(self, *, ignore_row_policies: bool) -> RefusedError | None:
        """Return a refusal with all reasons, None if an export is possible."""
        reasons = (
            *self.forbidding(ignore_row_policies=ignore_row_policies),
            *(f"a right is missing. Run {one}" for one in self.grants),
        )
        if not reasons:
            return None
        code = self.profile.code or (ACCESS_DENIED if self.missing else None)
        return RefusedError(Unable(self.subject, reasons), code=code)


def standing_of(connection: ServerConnection, table: TableName, staging: str) -> Standing:
    """Determine the rights and restrictions of a user.

    Args:
        connection: of the user.
        table: the table to export.
        staging: the staging database.

    Raises:
        SourceError: the server cannot be read.
    """
    profile = profile_of(connection)
    if profile.readonly == "1":
        # Such a user may not send the settings of our statements.
        user = connection.client.settings.credentials.user or "default"
        return Standing(table, user, profile, (), _UNASKED, None)
    user = user_of(connection)
    engine, query = _seen_of(connection, table)
    unreadable = unreadable_tables(
        connection, system_grants(is_replicated=not engine or engine.startswith("Replicated"))
    )
    names = {grant.on.table for grant in unreadable}
    need = Need(
        table,
        staging,
        makes_database=not _has_database(connection, staging),
        closes_tables="merge_tree_settings" in names or _closes_tables(connection),
        has_column_ttl=not engine or bool(ttl_columns(query)),
        is_replicated=not engine or engine.startswith("Replicated"),
    )
    wanted = export_grants(need)
    # For a read-only user the server reports every right as missing.
    rights = _UNASKED if profile.reasons else missing_rights(connection, wanted)
    if rights.query is RightsQuery.NOTHING:
        rights = replace(rights, missing=unreadable_tables(connection, wanted[:1]))
    if not engine and wanted[0] not in rights.missing:
        # The table does not exist; the next description of it reports that.
        rights = replace(rights, missing=())
    policies = list_policies(connection, table, user) if engine else None
    return Standing(table, user, profile, unreadable, rights, policies)


def profile_of(connection: ServerConnection) -> Profile:
    """Return the restrictions in the user's settings profile.

    Raises:
        SourceError: the server cannot be read.
    """
    # Sent without settings, because a read-only user may change none.
    result = connection.client.query(
        "SELECT name, value FROM system.settings WHERE name IN ('readonly', 'allow_ddl')"
        " FORMAT TabSeparated",
        repeat=True,
    )
    found = dict(line.split("\t", 1) for line in result.decode().splitlines())
    return Profile(found.get("readonly", "0"), allows_ddl=found.get("allow_ddl", "1") != "0")


def check_system_tables(connection: ServerConnection) -> None:
    """Refuse a user that may not read the system tables, because a table would look empty.

    Raises:
        RefusedError: some cannot be read.
        SourceError: the server cannot be read.
    """
    missing = unreadable_tables(connection, system_grants(is_replicated=False))
    if not missing:
        return
    user = user_of(connection)
    message = (
        f"Cannot read from ClickHouse at {connection.address} as the user {user!r}: it may not "
        f"read system tables. Run {' '.join(statements(missing, user))}"
    )
    raise RefusedError(message, code=ACCESS_DENIED)


def check_staging_seen(connection: ServerConnection) -> None:
    """Refuse a user that may not drop staging tables, because without rights on them it sees none.

    If the rights cannot be determined, nothing is refused.

    Raises:
        RefusedError: the right is missing.
        SourceError: the server cannot be read.
    """
    database = Target(connection.staging_database)
    wanted = Grant("DROP TABLE", database, "staging tables are seen, and dropped")
    missing = missing_rights(connection, (wanted,)).missing
    if not missing:
        return
    user = user_of(connection)
    message = (
        f"Cannot look for staging tables in {connection.staging_database} at {connection.address} "
        f"as the user {user!r}: it may not see them. Run {' '.join(statements(missing, user))}"
    )
    raise RefusedError(message, code=ACCESS_DENIED)


def _seen_of(connection: ServerConnection, table: TableName) -> tuple[str, str]:
    """Return the engine and definition of a table, '' if the user does not see it."""
    rows = connection.rows(
        "SELECT engine, create_table_query FROM system.tables"
        f" WHERE {of_table(table, column='name')}"
    )
    return (text(rows[0][0]), text(rows[0][1])) if rows else ("", "")


def _has_database(connection: ServerConnection, name: str) -> bool:
    rows = connection.rows(
        f"SELECT count() > 0 FROM system.databases WHERE name = {quote_string(name)}"
    )
    return flag(rows[0][0])


def _closes_tables(connection: ServerConnection) -> bool:
    sign = Offer.READONLY_TABLES.sign
    rows = connection.rows(
        f"SELECT count() > 0 FROM {sign.kind.value} WHERE name = {quote_string(sign.name)}"
    )
    return flag(rows[0][0])


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
# DATA_PATH is replaced by DATA_PATHS; row policies have a line of their own.
_NO_LACK: Final = (Offer.DATA_PATH, Offer.ROW_POLICIES)


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The facts about a server and its user before an export.

    `grants` are the missing rights, `for_archive` those that only `archive` needs, `nice` those
    without which something is slower. While the user may not read the system tables, `version` is
    '', `lacks` is empty, and the figures of staging tables are None. `reasons` prevent the export;
    `notes` are information for the user.
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
        """Whether the table can be read."""
        return bool(self.version) and not any(
            g.privilege == "SELECT" and g.on.database != self.staging_database for g in self.grants
        )


def report_of(
    connection: ServerConnection, table: TableName, staging: str, *, ignores: bool
) -> ServerReport:
    """Return all facts; those that the user may not see are reported as such.

    Args:
        connection: of the user.
        table: the table to export.
        staging: the staging database.
        ignores: whether row policies are to be ignored.

    Raises:
        SourceError: the server cannot be read.
    """
    standing = standing_of(connection, table, staging)
    forbidden = standing.forbidding(ignore_row_policies=ignores)
    number = len(standing.missing)
    missing = f"{counted(number, 'right')} missing. Run the GRANT statements."
    refused = Unable(standing.subject, (*forbidden, *((missing,) if number else ())))
    known = ServerReport(
        address=connection.address,
        user=standing.user,
        profile=f"readonly = {standing.profile.readonly}",
        asked=_rights_text(standing),
        staging_database=staging,
        reasons=refused.each(Action.EXPORT),
    )
    if standing.profile.readonly == "1":
        return known
    capabilities = None if standing.unreadable else probe_capabilities(connection)
    # Tables in a database without any right look as if they did not exist.
    unseen = any(one.on.database == staging for one in standing.missing)
    leftovers = list_leftovers(connection, capabilities) if capabilities and not unseen else None
    policies = _policies(connection, capabilities, standing)
    optional = _too(connection, table, standing)
    return replace(
        known,
        version=capabilities.version if capabilities else "",
        replica=_replica(connection, table) if capabilities else "not known yet",
        grants=standing.missing,
        for_archive=tuple(g for g in optional if g.on.table == table.name),
        nice=tuple(g for g in optional if g.on.table != table.name),
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


def _rights_text(standing: Standing) -> str:
    rights = standing.rights
    if standing.profile.reasons:
        return "not checked, because the profile forbids every export"
    if rights.query is RightsQuery.NOTHING:
        return (
            f"cannot be checked ({rights.why}); an export without a right reports it when it needs "
            "it"
        )
    hidden = ", ".join(rights.hidden_roles)
    more = f"; the rights of the roles {hidden} are not shown" if hidden else ""
    none = "" if standing.missing else "OK, "
    return f"{none}checked with {rights.query.value}{more}"


def _too(connection: ServerConnection, table: TableName, standing: Standing) -> tuple[Grant, ...]:
    """Return the missing rights that only `archive` needs, or that only save time."""
    if standing.rights.query is RightsQuery.NOTHING:
        return ()
    here = Target(table.database, table.name)
    wanted = (*(Grant(privilege, here, why) for privilege, why in ARCHIVE), *NICE)
    tried = [g for g in wanted if g.on.database != "system"]
    missing = list(missing_rights(connection, tuple(tried)).missing)
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
        return _Policies("unknown until the rights are granted", [])
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
