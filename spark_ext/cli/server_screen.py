"""How `check` shows what is known of a server and its user: for people, and for programs."""

from __future__ import annotations

from catalog.clickhouse.server.grants import Grant, statements
from catalog.clickhouse.server.report import ServerReport
from spark_ext.cli.output import Output
from tableformat.quantities import counted, human_bytes

__all__ = ["server_record", "show_server"]


def show_server(output: Output, report: ServerReport) -> None:
    """Print a server and its user, a line for each thing, and statements that can be copied."""
    version = f"ClickHouse {report.version}" if report.version else "version not known yet"
    output.say(f"server         {report.address}, {version}, as {report.user}")
    output.say(f"replica        {report.replica}")
    output.say(f"profile        {report.profile}")
    output.say(f"rights         {_rights(report)}")
    for line in statements(report.grants, report.user):
        output.say(f"  {line}")
    if report.for_archive:
        output.say("  -- for archive also:")
        for line in statements(report.for_archive, report.user):
            output.say(f"  {line}")
    for grant in report.nice:
        (line,) = statements((grant,), report.user)
        output.say(f"  -- optional: {grant.why}:")
        output.say(f"  {line}")
    output.say(f"row policies   {report.row_policies}")
    output.say(f"quota          {report.quota}")
    output.say(f"staging        {_staging(report)}")
    if report.lacks:
        output.say(f"version        {_lacks(len(report.lacks))}")


def server_record(report: ServerReport) -> dict[str, object]:
    """Return the same as fields of an object."""
    return {
        "server": {
            "address": report.address,
            "version": report.version,
            "user": report.user,
            "replica": report.replica,
            "profile": report.profile,
            "rights": report.asked,
            "row_policies": report.row_policies,
            "quota": report.quota,
            "staging_database": report.staging_database,
            "staging_tables": report.staging_tables,
            "staging_bytes": report.staging_bytes,
            "lacks": list(report.lacks),
        },
        "grants": _records(report.grants, report.user),
        "grants_for_archive": _records(report.for_archive, report.user),
        "grants_not_needed": _records(report.nice, report.user),
    }


def _rights(report: ServerReport) -> str:
    if not report.grants:
        return report.asked
    return f"{len(report.grants)} missing, {report.asked}; an administrator gives them by"


def _lacks(number: int) -> str:
    return (
        f"{counted(number, 'thing')} of newer ones missing, done in another way "
        "(docs/reference/versions.md; --json lists them)"
    )


def _staging(report: ServerReport) -> str:
    if report.staging_tables is None or report.staging_bytes is None:
        return f"not known yet, in {report.staging_database}"
    tables = counted(report.staging_tables, "table")
    return f"{tables} in {report.staging_database}, {human_bytes(report.staging_bytes)}"


def _records(grants: tuple[Grant, ...], user: str) -> list[dict[str, object]]:
    """Return each statement with the privileges that it gives and what they are needed for."""
    found: list[dict[str, object]] = []
    for on in dict.fromkeys(grant.on for grant in grants):
        here = tuple(grant for grant in grants if grant.on == on)
        (statement,) = statements(here, user)
        why = {grant.privilege: grant.why for grant in here}
        found.append({"statement": statement, "on": on.sql, "privileges": why})
    return found
