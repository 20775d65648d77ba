"""The command `mergeberg check`: reports whether a table can be exported, and how.

It shows the mapping of each column, the partitions, the free space, and the server with the
rights of its user, as text or as JSON.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from catalog.clickhouse.server.access_report import ServerReport
from catalog.clickhouse.server.grants import Grant, statements
from catalog.ledgers.uris import open_ledger
from catalog.network import TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace, open_source
from catalog.storages.local import local_directory
from spark_ext.actions.check import (
    Check,
    CheckRequest,
    Space,
    check_export,
    checked_spaces,
)
from spark_ext.actions.export import each_table
from spark_ext.cli.destination import open_iceberg, parse_destination
from spark_ext.cli.export_run import show_space
from spark_ext.cli.option_values import conversions, pairs
from spark_ext.cli.output import Output, error_printer, output_for
from spark_ext.engine.session import TASK_MEMORY, slots
from tableformat.export.outcome import REFUSED
from tableformat.names import TableName
from tableformat.quantities import counted, human_bytes

__all__ = ["check", "server_record", "show_server"]


def show_server(output: Output, report: ServerReport) -> None:
    """Print the report of a server and its user, with GRANT statements for copying."""
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
    """Return the report of a server as JSON fields."""
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
        f"{counted(number, 'feature')} of newer versions missing, done in another way "
        "(docs/reference/versions.md; --json lists them)"
    )


def _staging(report: ServerReport) -> str:
    if report.staging_tables is None or report.staging_bytes is None:
        return f"not known yet, in {report.staging_database}"
    tables = counted(report.staging_tables, "table")
    return f"{tables} in {report.staging_database}, {human_bytes(report.staging_bytes)}"


def _records(grants: tuple[Grant, ...], user: str) -> list[dict[str, object]]:
    """Return GRANT statements, each with its privileges and their purpose."""
    found: list[dict[str, object]] = []
    for on in dict.fromkeys(grant.on for grant in grants):
        here = tuple(grant for grant in grants if grant.on == on)
        (statement,) = statements(here, user)
        why = {grant.privilege: grant.why for grant in here}
        found.append({"statement": statement, "on": on.sql, "privileges": why})
    return found


_KINDS: Final = {
    "A": "the same values",
    "B": "another kind of value (--strict refuses it)",
    "C": "checked on the data",
    "-": "refused",
}
_COLUMNS: Final = ("column", "clickhouse", "iceberg", "kind", "note")


def check(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, to: str | None, partition_spec: str | None, convert: tuple[str, ...],
    source: SourcePlace, warehouse: Path, ledger: str | None,
    time_outs: TimeOuts, cluster: str | None,
    cluster_host: tuple[str, ...], *, evolve_schema: bool, strict: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg check`; return the exit code."""
    output = output_for(as_json=as_json)
    name = TableName.parse(table)
    destination = parse_destination(to, name, source) if to is not None else None
    request = CheckRequest(
        name, destination, conversions(convert), strict, partition_spec, evolve_schema
    )
    lake = (
        open_iceberg(
            destination, f"check {name} for {destination}", warehouse=warehouse, time_outs=time_outs
        )
        if destination
        else None
    )
    known = (
        open_ledger(ledger, local_warehouse=lake.ledger_directory)
        if lake and (ledger or lake.ledger_directory)
        else None
    )
    hosts = pairs("--cluster-host", cluster_host)

    def check_one(one: LocalTable) -> int:
        wanted = replace(request, table=one.table)
        with open_source(one.place) as opened:
            found = check_export(wanted, opened, lake, known)
        location = lake.ledger_directory if lake else local_directory(warehouse)
        spaces = checked_spaces(wanted, found, location)
        if as_json:
            output.record({**one.fields, **_record(found, spaces)})
        else:
            _show(output, found, spaces, str(one.table))
        return REFUSED if found.reasons else 0

    with contextlib.closing(known) if known else contextlib.nullcontext():
        tables = local_tables(source, name, cluster=cluster, cluster_hosts=hosts)
        return each_table(tables, check_one, output.note, error_printer(output), doing="check")


def _record(found: Check, spaces: tuple[Space, ...]) -> dict[str, object]:
    """Return the result of a check as one JSON object."""
    partitions = [{**asdict(p), "partition_id": p.partition_id.value} for p in found.partitions]
    return {
        **(server_record(found.server) if found.server else {}),
        "works": not found.reasons,
        "reasons": found.reasons,
        "warnings": found.warnings,
        "columns": [asdict(c) for c in found.columns],
        "partition_key": found.partition_key,
        "partition_spec": found.spec,
        "sorting_key": found.sorting_key,
        "sort_order": found.sort_order,
        "destination": found.destination,
        "partitions": partitions,
        "space": [asdict(s) for s in spaces],
        "versions": found.versions,
        "task_memory": TASK_MEMORY,
    }


def _show(output: Output, found: Check, spaces: tuple[Space, ...], name: str) -> None:
    rows = sum(p.rows for p in found.partitions)
    size = sum(p.bytes_on_disk for p in found.partitions)
    if found.server is not None:
        show_server(output, found.server)
    if found.partition_key:
        number = counted(len(found.partitions), "partition")
        output.say(f"{name}: {number}, {counted(rows, 'row')}, {human_bytes(size)}")
        _show_table(output, found)
        show_space(output, spaces, as_json=False)
    for warning in found.warnings:
        output.say(f"note: {warning}")
    if not found.reasons:
        output.say(f"OK: {name} can be exported.")
        return
    output.say(f"{name} cannot be exported ({counted(len(found.reasons), 'problem')}):")
    for reason in found.reasons:
        output.say(f"  - {reason}")


def _show_table(output: Output, found: Check) -> None:
    output.table(_COLUMNS, [asdict(c) for c in found.columns])
    kinds = {c.kind for c in found.columns}
    legend = ", ".join(f"{kind} {meaning}" for kind, meaning in _KINDS.items() if kind in kinds)
    output.say(f"kinds          {legend}")
    output.say(f"partition key  {found.partition_key} -> {found.spec or 'not known'}")
    output.say(f"sorting key    {found.sorting_key} -> {found.sort_order or 'not known'}")
    if found.destination:
        output.say(f"destination    {found.destination}")
    output.say("versions       " + ", ".join(f"{k} {v}" for k, v in found.versions.items()))
    number = slots("local[*]")
    output.say(
        f"memory         {human_bytes(TASK_MEMORY)} for each task slot outside the JVM, "
        f"{human_bytes(TASK_MEMORY * number)} for the {number} of local[*]; on a cluster raise "
        f"spark.executor.memoryOverhead to {TASK_MEMORY // 1024**2}m for each core"
    )
