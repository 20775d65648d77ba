"""The command `mergeberg verify`: compares exported partitions with their source."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from catalog.network import TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace, open_source
from spark_ext.actions.export import each_table
from spark_ext.actions.export_ports import DigestSessions, SparkWhenNeeded
from spark_ext.actions.exports import open_existing
from spark_ext.actions.verify import DigestsInTasks, Verifying, VerifyRequest
from spark_ext.cli.destination import open_destination, parse_destination
from spark_ext.cli.option_values import conversions, pairs, selection, spark_settings
from spark_ext.cli.output import Output, error_printer
from spark_ext.cli.summary import Effect, Line, Summary
from tableformat.errors import Action
from tableformat.export.verification import Comparison, Verdict, exit_code
from tableformat.names import TableName
from tableformat.quantities import counted, rate_text

__all__ = ["verify"]

_WORDS = {
    Verdict.EQUAL: "equal",
    Verdict.AS_EXPORTED: "as exported",
    Verdict.DIFFERS: "differs",
    Verdict.NOT_COMPARABLE: "not comparable",
    Verdict.NOT_EXPORTED: "not exported",
    Verdict.FAILED: "failed",
}


def verify(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, partition_id: str | None, expression: str | None, to: str,
    convert: tuple[str, ...], master: str, conf: tuple[str, ...], source: SourcePlace,
    warehouse: Path, ledger: str | None, time_outs: TimeOuts,
    cluster: str | None, cluster_host: tuple[str, ...], same_as: str,
    summary: Summary, *, everything: bool
) -> int:  # fmt: skip
    """Run `mergeberg verify`; return the exit code."""
    settings, output = spark_settings(master, conf), summary.output
    name = TableName.parse(table)
    request = VerifyRequest(
        name,
        parse_destination(to, name, source, action=Action.VERIFY),
        selection(partition_id, expression, everything=everything, with_where=False),
        conversions(convert),
        same_as,
    )
    what = f"verify {name} in {request.to}"
    catalog = open_destination(
        request.to, warehouse=warehouse, time_outs=time_outs, looks_only=True
    )
    lake, known = open_existing(catalog, request.to, what, ledger=ledger)
    hosts = pairs("--cluster-host", cluster_host)
    sessions = DigestSessions(SparkWhenNeeded(settings, is_likely=False), output.note)
    progress = _Progress(output)

    def verify_one(one: LocalTable) -> int:
        found = []
        wanted = request.of_table(one.table, len(tables))
        with (
            open_source(one.place) as opened,
            DigestsInTasks(lake.storages, sessions, progress) as digests,
        ):
            comparing = Verifying(wanted, opened, lake, known, digests, progress.begin)
            for comparison in comparing.run():
                output.compared()
                summary.add(_line(summary, comparison, str(request.to), one))
                found.append(comparison)
        if not found:
            output.none_selected(
                f"no partition is selected: {one.table} has no partition with active parts, and "
                f"none was exported to {request.to}"
            )
        return exit_code(found, named=not everything)

    with summary, contextlib.closing(known):
        tables = local_tables(source, name, cluster=cluster, cluster_hosts=hosts)
        return each_table(tables, verify_one, output.note, error_printer(output), doing="verify")


@dataclass(slots=True)
class _Progress:
    """Shows the rows that are compared, of the partitions that are compared together."""

    output: Output
    rows: int = 0

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Begin with other partitions."""
        self.rows = 0
        self.output.begin_comparing(partitions, rows, size)

    def __call__(self, more: int) -> None:
        """Add rows."""
        self.rows += more
        self.output.rows(self.rows)


def _line(summary: Summary, found: Comparison, table: str, one: LocalTable) -> Line:
    """Return the line of a summary for a comparison."""
    effects = {Verdict.EQUAL: Effect.DONE, Verdict.NOT_EXPORTED: Effect.NOTHING_TO_DO}
    return Line(
        found.partition_id,
        found.verdict.value,
        _WORDS[found.verdict],
        effects.get(found.verdict, Effect.WRONG),
        partial(_show, summary.output, found, table, one, as_json=summary.as_json),
        found.rows if found.compared_with else 0,
    )


def _show(output: Output, found: Comparison, table: str, one: LocalTable, *, as_json: bool) -> None:
    if as_json:
        output.record(
            {
                **one.fields,
                **asdict(found),
                "table": table,
                "rows_per_second": found.rows_per_second,
            }
        )
        return
    text = f"partition {found.partition_id}: {_WORDS[found.verdict]}"
    if found.compared_with:
        text += (
            f" · {counted(found.rows, 'row')} · {counted(found.columns, 'column')} · "
            f"{counted(found.data_files, 'file')}"
        )
        rate = rate_text(found.rows, found.seconds)
        text += f" · {rate}" if rate else ""
    if found.message:
        text += f": {found.message}"
    output.say(text)
    for difference in found.differences:
        output.say(f"  - {difference}")
