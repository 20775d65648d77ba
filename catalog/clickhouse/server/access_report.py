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
from tableformat.names import TableName, quote_identifier, quote_string
from tableformat.quantities import counted

__all__ = [
    "Asked",
    "Profile",
    "Rights",
    "ServerReport",
    "Standing",
    "ask_rights",
    "check_staging_seen",
    "check_system_tables",
    "profile_of",
    "report_of",
    "standing_of",
    "unreadable_tables",
    "user_of",
]

# Rows of no table: cheap, however many parts a server has.
_NONE: Final = " WHERE database = 'system' AND table = '' LIMIT 0"
_WITHOUT_TABLE: Final = ("disks", "merge_tree_settings", "processes")
# It answers no query without a path.
_KEEPER: Final = "zookeeper"


class Asked(Enum):
    """What the server was asked."""

    CHECK_GRANT = "CHECK GRANT"
    SHOW_GRANTS = "SHOW GRANTS"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Rights:
    """Which of the wanted rights are missing, as far as can be known.

    `idle_roles` are granted to the user and not active, `hidden_roles` are active and nobody may
    look into them. `why` says why nothing could be asked.
    """

    asked: Asked
    missing: tuple[Grant, ...] = ()
    idle_roles: tuple[str, ...] = ()
    hidden_roles: tuple[str, ...] = ()
    why: str = ""


def user_of(connection: ServerConnection) -> str:
    """Return the name of the user as the server has it, or as it was given to log in.

    Raises:
        SourceError: the server cannot be asked.
    """
    try:
        return texts(connection, "SELECT currentUser()")[0]
    except ClickHouseError as error:
        if error.code != UNKNOWN_FUNCTION:
            raise
    return connection.client.settings.credentials.user or "default"


def ask_rights(connection: ServerConnection, wanted: tuple[Grant, ...]) -> Rights:
    """Return which rights the user of a connection lacks.

    Raises:
        SourceError: the server cannot be asked anything at all.
    """
    if _check_grant(connection, wanted):
        return Rights(Asked.CHECK_GRANT)
    checked = [(one, _check_grant(connection, (one,))) for one in wanted]
    seen = _seen(connection)
    # A privilege that the version does not know is not taken; then it is not needed either.
    if any(is_held is not None for _, is_held in checked):
        missing = tuple(one for one, is_held in checked if is_held is False)
        return Rights(Asked.CHECK_GRANT, missing, seen.idle, why=seen.why)
    if seen.why:
        return Rights(Asked.NOTHING, why=seen.why)
    known = _privileges(connection)
    missing = tuple(
        one
        for one in wanted
        if one.privilege in (known or {one.privilege})
        and not any(allows(_givens(held), one) for held in seen.holders)
    )
    return Rights(Asked.SHOW_GRANTS, missing, seen.idle, seen.hidden)


def unreadable_tables(connection: ServerConnection, wanted: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Return the tables among the wanted rights that the user may not read, by reading them.

    A table that the version does not have is not among them.

    Raises:
        SourceError: the server cannot be asked.
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
    """What the server shows: what the user and each active role is given; else why not."""

    holders: tuple[Lines, ...] = ()
    hidden: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    why: str = ""


def _check_grant(connection: ServerConnection, grants: Iterable[Grant]) -> bool | None:
    """Tell whether the user has rights; None where the server does not take the question."""
    asked = ", ".join(one.sql for one in grants)
    try:
        # It takes no FORMAT clause.
        said = connection.client.query(
            f"CHECK GRANT {asked}",
            settings=(*connection.settings, ("default_format", "TSV")),
            repeat=True,
        )
    except ClickHouseError as error:
        if error.code == SYNTAX_ERROR:
            return None
        raise
    if said not in (b"0\n", b"1\n"):
        message = (
            f"Cannot read an answer of ClickHouse: {said[:50]!r} is not 0 or 1. This is a bug, "
            "please report it."
        )
        raise InternalError(message)
    return said == b"1\n"


def _shown(connection: ServerConnection, who: str) -> Lines:
    """Return what the server shows of the rights of a user or role.

    Raises:
        NotUnderstoodError: something is taken away that cannot be told.
        ClickHouseError: the server does not show it.
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
    """Return the privileges that the version knows; nothing when it does not list them."""
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
    """Whether the user may run a query; `others` is what is answered on another error."""
    try:
        connection.rows(sql)
    except ClickHouseError as error:
        return others and error.code != ACCESS_DENIED
    return True


_UNASKED: Final = Rights(Asked.NOTHING)


@dataclass(frozen=True, slots=True)
class Profile:
    """What the settings of the user forbid."""

    readonly: str = "0"
    allows_ddl: bool = True

    @property
    def code(self) -> int | None:
        """ClickHouse's number for that, None when nothing is forbidden."""
        if self.readonly != "0":
            return READONLY
        return None if self.allows_ddl else QUERY_IS_PROHIBITED

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing can be exported with it; each begins behind 'the user'."""
        found = []
        if self.readonly != "0":
            found.append(
                f"has readonly = {self.readonly}, and a snapshot makes a staging table; set "
                "readonly = 0 in its profile, its grants still limit what it may change"
            )
        if not self.allows_ddl:
            found.append("has allow_ddl = 0, and a snapshot makes a staging table; set it to 1")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a user before an export of a table.

    `unreadable` are rights on system tables that are missing; `policies` None is not asked for yet,
    because the table cannot be read.
    """

    table: TableName
    user: str
    profile: Profile
    unreadable: tuple[Grant, ...]
    rights: Rights
    policies: Policies | None

    @property
    def missing(self) -> tuple[Grant, ...]:
        """All rights that are missing."""
        return (*self.rights.missing, *self.unreadable)

    @property
    def grants(self) -> tuple[str, ...]:
        """The statements that give them."""
        return statements(self.missing, self.user)

    @property
    def subject(self) -> str:
        """What a refusal is about."""
        return f"{self.table} as the user {self.user!r}"

    def forbidding(self, *, ignore_row_policies: bool) -> tuple[str, ...]:
        """Return what beside rights that are missing forbids an export, each with what to do."""
        found = [f"it {reason}." for reason in self.profile.reasons]
        policies = self.policies.of_user if self.policies else ()
        if policies and not ignore_row_policies:
            found.append(
                f"row policies hide rows from it ({', '.join(policies)}), and an export would hold "
                "all of them. Use a user to whom none applies, or give --ignore-row-policies."
            )
        idle = self.rights.idle_roles
        if self.missing and idle:
            found.append(
                f"it has the role {', '.join(idle)}, which is not active, and may need no other. "
                f"Run SET DEFAULT ROLE {', '.join(idle)} TO {self.user};"
            )
        return tuple(found)

    def refusal(self, *, ignore_row_policies: bool) -> RefusedError | None:
        """Return the refusal with all reasons at once; None when nothing forbids an export."""
        reasons = (
            *self.forbidding(ignore_row_policies=ignore_row_policies),
            *(f"a right is missing. Run {one}" for one in self.grants),
        )
        if not reasons:
            return None
        code = self.profile.code or (ACCESS_DENIED if self.missing else None)
        return RefusedError(Unable(self.subject, reasons), code=code)


def standing_of(connection: ServerConnection, table: TableName, staging: str) -> Standing:
    """Ask how the user stands.

    Args:
        connection: of the user.
        table: that is to be exported.
        staging: the staging database.

    Raises:
        SourceError: the server cannot be asked.
    """
    profile = profile_of(connection)
    if profile.readonly == "1":
        # Such a user may not even send what statements are sent with.
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
    # While it may change nothing, the server says that it has no right to.
    rights = _UNASKED if profile.reasons else ask_rights(connection, wanted)
    if rights.asked is Asked.NOTHING:
        rights = replace(rights, missing=unreadable_tables(connection, wanted[:1]))
    if not engine and wanted[0] not in rights.missing:
        # There is no such table, and whoever describes it says so.
        rights = replace(rights, missing=())
    policies = list_policies(connection, table, user) if engine else None
    return Standing(table, user, profile, unreadable, rights, policies)


def profile_of(connection: ServerConnection) -> Profile:
    """Return what the settings of the user forbid.

    Raises:
        SourceError: the server cannot be asked.
    """
    # Sent without any setting: a user that is read-only may change none.
    said = connection.client.query(
        "SELECT name, value FROM system.settings WHERE name IN ('readonly', 'allow_ddl')"
        " FORMAT TabSeparated",
        repeat=True,
    )
    found = dict(line.split("\t", 1) for line in said.decode().splitlines())
    return Profile(found.get("readonly", "0"), allows_ddl=found.get("allow_ddl", "1") != "0")


def check_system_tables(connection: ServerConnection) -> None:
    """Refuse a user that may not read the system tables, in which a table would look empty.

    Raises:
        RefusedError: some cannot be read.
        SourceError: the server cannot be asked.
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
    """Refuse a user that cannot drop staging tables: without any right on them it sees none.

    Raises:
        RefusedError: the right is missing; where nobody can say, nothing is refused.
        SourceError: the server cannot be asked.
    """
    database = Target(connection.staging_database)
    wanted = Grant("DROP TABLE", database, "staging tables are seen, and dropped")
    missing = ask_rights(connection, (wanted,)).missing
    if not missing:
        return
    user = user_of(connection)
    message = (
        f"Cannot look for staging tables in {connection.staging_database} at {connection.address} "
        f"as the user {user!r}: it may not see them. Run {' '.join(statements(missing, user))}"
    )
    raise RefusedError(message, code=ACCESS_DENIED)


def _seen_of(connection: ServerConnection, table: TableName) -> tuple[str, str]:
    """Return engine and definition of a table, '' when the user does not see it."""
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
    forbidden = standing.forbidding(ignore_row_policies=ignores)
    number = len(standing.missing)
    missing = f"{counted(number, 'right')} missing. Run the GRANT statements."
    refused = Unable(standing.subject, (*forbidden, *((missing,) if number else ())))
    known = ServerReport(
        address=connection.address,
        user=standing.user,
        profile=f"readonly = {standing.profile.readonly}",
        asked=_asked(standing),
        staging_database=staging,
        reasons=refused.each(Action.EXPORT),
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
