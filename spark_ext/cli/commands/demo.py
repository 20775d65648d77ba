"""The command `mergeberg demo`: shows an export in four steps, with the code of `export`."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import shutil
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions.export_ports import (
    Places,
    SparkWhenNeeded,
    exit_code,
    export_all,
    open_ports,
)
from spark_ext.cli.output import Output, output_for
from spark_ext.demo.data import ENGINE, TABLE, fill
from spark_ext.demo.directory import INSTALL, LAKE_TABLE, DemoDirectory, DemoError, Found, look
from spark_ext.demo.readers import (
    DuckDB,
    Measures,
    differences,
    find_duckdb,
    query_clickhouse,
    query_duckdb,
    query_pyiceberg,
    question,
)
from spark_ext.engine.session import SparkSettings, slots
from tableformat.errors import DestinationError, NotFoundError
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import REFUSED, Status
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.quantities import counted

__all__ = ["demo"]

_CENT: Final = Decimal("0.01")
_SETTINGS: Final = SparkSettings()


def demo(directory: Path, rows: int, *, as_json: bool) -> int:
    """Run `mergeberg demo`; return the exit code."""
    output = output_for(as_json=as_json)
    place = DemoDirectory(directory)
    duckdb = find_duckdb()
    found = look(place)
    spark = _spark(found)
    _fill(place, found, rows, output)
    code = _export(place, spark, output)
    if code == 0:
        results = _results(place, duckdb, output)
        _show(place, results, output, as_json=as_json)
    return code


def _spark(found: Found) -> SparkWhenNeeded:
    """Start Spark while ClickHouse is filled; with an existing lake table, only when needed."""
    spark = SparkWhenNeeded(_SETTINGS)
    if found.table is None:
        try:
            spark.check()
        except NotFoundError as error:
            raise DemoError(str(error), next_command=INSTALL) from error
        spark.begin()
    return spark


def _fill(place: DemoDirectory, found: Found, rows: int, output: Output) -> None:
    output.step(f"1. ClickHouse: {TABLE}, the events of a web shop, in {place.clickhouse}")
    output.detail(ENGINE)
    if found.months:
        for month in found.months:
            output.detail(
                f"partition {month.partition_id}: {counted(month.rows, 'row')}, already there"
            )
        return
    place.make()
    with place.open_clickhouse(create=True) as clickhouse:
        for month in fill(clickhouse, rows=rows):
            output.detail(f"partition {month.partition_id}: {counted(month.rows, 'row')}")


def _export(place: DemoDirectory, spark: SparkWhenNeeded, output: Output) -> int:
    output.step(f"2. Spark: the partitions become one snapshot of {LAKE_TABLE}. As a command:")
    _show_command(output, _export_command(place, "--all", "--manifest-ttl", "0"))
    request = ExportRequest(
        table=TABLE,
        to=LAKE_TABLE,
        selection=AllPartitions(None),
        options=ExportOptions(force=False, manifest_ttl=0),
        conversions={},
    )
    lake = open_catalog(LAKE_TABLE.catalog, warehouse=place.warehouse)
    places = Places(SourcePlace(place.source), lake)
    ports = open_ports(places, spark, output)
    with contextlib.closing(ports.ledger):
        outcomes = export_all(request, ports, slots=slots(_SETTINGS.master))
    code = exit_code(outcomes)
    if code == REFUSED:
        message = (
            "Cannot continue the demo: partitions were refused. Remove the demo with "
            f"`{place.remove_command}` and run it again."
        )
        raise DemoError(message, next_command=place.remove_command)
    if all(outcome.status is Status.ALREADY_EXPORTED for outcome in outcomes):
        output.detail("Nothing was written: the lake has all of them.")
    return code


def _results(place: DemoDirectory, duckdb: DuckDB, output: Output) -> dict[str, Measures]:
    output.step("3. The same question to ClickHouse, PyIceberg and DuckDB")
    for line in question(str(TABLE)):
        output.detail(f"  {line}")
    table = place.lake_table()
    if table is None:
        message = (
            f"Cannot read {LAKE_TABLE}: it no longer exists. Something else removed it; "
            "run the demo again."
        )
        raise DestinationError(message)
    with place.open_clickhouse() as clickhouse:
        from_clickhouse = query_clickhouse(clickhouse, TABLE.sql)
    return {
        "ClickHouse": from_clickhouse,
        "PyIceberg": query_pyiceberg(table.loaded),
        "DuckDB": query_duckdb(duckdb, table.loaded),
    }


def _show(
    place: DemoDirectory, results: dict[str, Measures], output: Output, *, as_json: bool
) -> None:
    different = differences(results)
    commands = _next_commands(place)
    if as_json:
        output.record(
            {"equal": not different, "answers": results, "next": [str(c) for c in commands]}
        )
    else:
        output.detail("")
        measures = next(iter(results.values()))
        output.table(
            ("", *results),
            [
                {"": m} | {who: _cell(result[m]) for who, result in results.items()}
                for m in measures
            ],
        )
    if different:
        message = (
            f"Cannot confirm the export: the readers do not agree. {'; '.join(different)}. "
            f"Please report it, with the directory {place.path}."
        )
        raise DestinationError(message)
    output.detail("")
    output.detail("All three results are equal.")
    output.step("4. Try next")
    for command in commands:
        _show_command(output, command)


def _cell(value: int | Decimal | None) -> int | Decimal | None:
    return value.quantize(_CENT) if isinstance(value, Decimal) else value


def _show_command(output: Output, command: _Command) -> None:
    for line in command.shown():
        output.detail(f"  {line}")


@dataclass(frozen=True, slots=True)
class _Command:
    """A command: the words after `mergeberg`, grouped by printed line."""

    lines: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        """Return the command on one line."""
        return shlex.join((_program(), *itertools.chain.from_iterable(self.lines)))

    def shown(self) -> tuple[str, ...]:
        """Return the command on several lines, with backslashes so that it can be copied."""
        first, *more = map(shlex.join, self.lines)
        lines = (f"{shlex.quote(_program())} {first}", *(f"    {line}" for line in more))
        return (*(f"{line} \\" for line in lines[:-1]), lines[-1])


def _export_command(place: DemoDirectory, *which: str) -> _Command:
    """Return the command that exports partitions of the demo's table."""
    lake = ("--warehouse", str(place.warehouse), "--to", str(LAKE_TABLE))
    return _Command((("export", str(TABLE), *which, "--source", place.source), lake))


def _next_commands(place: DemoDirectory) -> tuple[_Command, ...]:
    """Return commands to try after the demo: list exports, list parts, repeat an export."""
    return (
        _Command((("exports", "list", "--warehouse", str(place.warehouse)),)),
        _Command((("parts", str(TABLE), "--source", place.source),)),
        _export_command(place, "--partition-id", "202402"),
    )


def _program() -> str:
    """Return `mergeberg`, or the path of this program if another one is first on PATH."""
    started = sys.argv[0]
    on_path = shutil.which("mergeberg")
    if Path(started).name != "mergeberg" or (on_path and Path(on_path).samefile(started)):
        return "mergeberg"
    return started
