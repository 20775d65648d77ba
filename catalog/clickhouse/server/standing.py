"""How the user of an export stands with a server: what it lacks, and why nothing would be exported.

    profile -> system tables -> grants -> row policies

Asked before anything is made, so that a refusal leaves nothing behind and lists all that is missing
at once. `export` refuses by it, `check` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.connection import flag, text
from catalog.clickhouse.describe import of_table
from catalog.clickhouse.offers import Offer
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.grants import (
    Grant,
    Need,
    Target,
    export_grants,
    statements,
    system_grants,
)
from catalog.clickhouse.server.policies import Policies, list_policies
from catalog.clickhouse.server.rights import (
    Asked,
    Rights,
    ask_rights,
    unreadable_tables,
    user_of,
)
from catalog.clickhouse.table_text import ttl_columns
from tableformat.clickhouse_codes import ACCESS_DENIED, QUERY_IS_PROHIBITED, READONLY
from tableformat.errors import RefusedError
from tableformat.names import TableName, quote_string

__all__ = [
    "Profile",
    "Standing",
    "check_staging_seen",
    "check_system_tables",
    "profile_of",
    "standing_of",
]

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
    def what(self) -> str:
        """How a refusal begins."""
        return f"Cannot export {self.table} as the user {self.user!r}"

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
        reasons = [
            *self.forbidding(ignore_row_policies=ignore_row_policies),
            *(f"a right is missing. Run {one}" for one in self.grants),
        ]
        if not reasons:
            return None
        code = self.profile.code or (ACCESS_DENIED if self.missing else None)
        if len(reasons) == 1:
            return RefusedError(f"{self.what}: {reasons[0]}", code=code)
        listed = "\n".join(f"  - {reason}" for reason in reasons)
        return RefusedError(f"{self.what}: {len(reasons)} reasons.\n{listed}", code=code)


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
