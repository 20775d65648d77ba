"""The procedure that compares an exported partition with its source."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Final

from catalog.clickhouse.digests import FileDigests
from catalog.shards import LocalTable
from catalog.sources import open_source
from spark_ext.procedures.declared import Call, Column, Parameter, Procedure, Rows
from spark_ext.procedures.naming import CallNames
from spark_ext.procedures.parameters import CLUSTER, DESTINATION, PARTITION_ID, SHARD, SOURCE
from spark_ext.sharding import each_table
from spark_ext.sql.told import joined
from spark_ext.sql.wording import in_call
from spark_ext.verifying import Comparison, Verdict, Verifying, VerifyRequest
from tableformat.errors import DestinationError, RefusedError, TableFormatError
from tableformat.export.selection import ById
from tableformat.names import PartitionId

__all__ = ["VERIFY_PARTITION"]

_LOGGER: Final = logging.getLogger("mergeberg")


def _verify(call: Call) -> Rows:
    names = CallNames.of(call)
    named, to = names.source("source"), names.destination("table")
    one_id = PartitionId(call.text("partition_id"))
    request = VerifyRequest(named.table, to, ById(one_id), call.pairs("convert"))
    lake = names.existing_destination("table", to, f"verify {named.table} in {to}")
    found: list[tuple[Comparison, int | None]] = []
    errors: list[TableFormatError] = []
    with contextlib.closing(names.open_ledger(to)) as ledger:

        def verify_one(one: LocalTable) -> int:
            wanted = replace(request, table=one.table)
            with open_source(one.place) as source, FileDigests(lake.storages) as digests:
                compared = Verifying(wanted, source, lake, ledger, digests).run()
                found.extend((comparison, one.shard) for comparison in compared)
            return 0

        tables = named.tables(cluster=call.text_or_none("cluster"))
        try:
            each_table(tables, verify_one, _LOGGER.info, doing="verify")
        except TableFormatError as error:
            errors.append(error)
    _check_equal(request, found, errors)
    return tuple(
        (
            one.partition_id, one.verdict.value, one.compared_with or None, one.rows, one.columns,
            one.data_files, one.rows_per_second, in_call(one.message) or None, shard,
        )
        for one, shard in found
    )  # fmt: skip


def _check_equal(
    request: VerifyRequest,
    found: list[tuple[Comparison, int | None]],
    errors: list[TableFormatError],
) -> None:
    """Check that the lake holds what the source holds: a script must not go on when it does not.

    Raises:
        DestinationError: it does not; every difference is named. Or a side cannot be read.
        RefusedError: nothing can be said.
        TableFormatError: one of `errors`, behind what was found.
    """
    unequal = [(one, shard) for one, shard in found if one.verdict is not Verdict.EQUAL]
    wrong = [_unequal(request, unequal), *errors] if unequal else errors
    if wrong:
        raise joined(wrong, "")


def _unequal(
    request: VerifyRequest, wrong: list[tuple[Comparison, int | None]]
) -> TableFormatError:
    """Return the error about what is not equal; differences say more than that nobody can tell."""
    differs = [one for one in wrong if one[0].verdict is Verdict.DIFFERS]
    worst = (differs or wrong)[0][0]
    what = f"find {request.table} equal in" if differs else f"compare {request.table} with"
    said = " ".join(_said(one, shard) for one, shard in differs or wrong)
    is_outside = worst.verdict in (Verdict.DIFFERS, Verdict.FAILED)
    kind = DestinationError if is_outside else RefusedError
    message = f"Cannot {what} {request.to}: {said}"
    return kind(message, code=worst.code)


def _said(one: Comparison, shard: int | None) -> str:
    at = "" if shard is None else f" of shard {shard}"
    reasons = [one.message.rstrip(".")] if one.message else []
    reasons += [str(difference) for difference in one.differences]
    return f"partition {one.partition_id}{at}: {one.verdict.value}: {'; '.join(reasons)}."


VERIFY_PARTITION: Final = Procedure(
    name="verify_partition",
    description="Compares an exported partition with its source: rows, and of each column NULLs, "
    "least, greatest and a checksum. It is an error when they are not equal.",
    parameters=(
        DESTINATION,
        SOURCE,
        PARTITION_ID,
        Parameter(
            "convert", "MAP<STRING, STRING>", "conversions that the lake table lost", "map()"
        ),
        CLUSTER,
    ),
    columns=(
        Column("partition_id", "STRING", "the partition"),
        Column("status", "STRING", "equal"),
        Column("compared_with", "STRING", "source, or the digest that the export kept"),
        Column("rows", "BIGINT", "rows that were compared"),
        Column("columns", "BIGINT", "columns that were compared"),
        Column("data_files", "BIGINT", "files that were read"),
        Column("rows_per_second", "BIGINT", "how fast the lake was read"),
        Column("message", "STRING", "what the source did since, where it did"),
        SHARD,
    ),
    run=_verify,
)
