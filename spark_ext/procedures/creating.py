"""The procedure that makes the lake table of a ClickHouse table, without rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Final

from spark_ext.procedures.declared import Call, Column, Parameter, Procedure, Rows
from spark_ext.procedures.naming import CallNames
from spark_ext.procedures.parameters import CONVERT, LAKE_TABLE, SOURCE
from spark_ext.sql.catalogs import session_ledger
from spark_ext.sql.refreshing import refresh
from spark_ext.sql.wording import in_call
from spark_ext.wiring import Places, RunningSpark, open_ports
from tableformat.export.claim import Wish
from tableformat.export.creating import create_table
from tableformat.export.job import ExportRequest
from tableformat.export.ports import Silent
from tableformat.export.selection import AllPartitions
from tableformat.iceberg.sort_order import SortedField
from tableformat.iceberg.spec_fields import render_spec

__all__ = ["CREATE_TABLE_LIKE"]


@dataclass(slots=True)
class _Noting(Silent):
    """Keeps what the plan has to say."""

    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a sentence."""
        self.notes.append(text)


def _create(call: Call) -> Rows:
    names = CallNames.of(call)
    named, to = names.source("source"), names.lake("table")
    dry_run, noting = call.flag("dry_run"), _Noting()
    lake = names.open(to)
    # Every shard's table is alike.
    like = named.tables()[0]
    places = Places(like.place, lake, session_ledger(names.names.settings, lake))
    request = ExportRequest(
        like.table,
        to,
        AllPartitions(),
        Wish(),
        call.pairs("convert"),
        strict=call.flag("strict"),
        partition_spec=call.text_or_none("partition_spec"),
    )
    ports = open_ports(places, RunningSpark(call.spark), noting)
    with contextlib.closing(ports.ledger), contextlib.closing(ports.source):
        made = create_table(request, ports, dry_run=dry_run)
    refresh(call.spark, to)
    status = "exists" if not made.is_new else "create" if dry_run else "created"
    return (
        (
            str(to),
            status,
            len(made.plan.columns.columns),
            render_spec(made.plan.spec.fields),
            ", ".join(map(_shown, made.plan.order)) or None,
            in_call(" ".join(noting.notes)) or None,
        ),
    )


def _shown(one: SortedField) -> str:
    nulls = "FIRST" if one.nulls_first else "LAST"
    return f"{one.field} {'DESC' if one.descending else 'ASC'} NULLS {nulls}"


CREATE_TABLE_LIKE: Final = Procedure(
    name="create_table_like",
    description="Makes the lake table of a ClickHouse table as an export would, without rows. One "
    "that is there and fits stays as it is.",
    parameters=(
        LAKE_TABLE,
        SOURCE,
        CONVERT,
        Parameter("partition_spec", "STRING", "for example month(ts); NULL to derive it", "NULL"),
        Parameter(
            "strict", "BOOLEAN", "refuse other kinds of values, columns, and orders", "false"
        ),
        Parameter("dry_run", "BOOLEAN", "say what would be made, and do nothing", "false"),
    ),
    columns=(
        Column("destination_table", "STRING", "the lake table"),
        Column("status", "STRING", "created, create (it would be), or exists"),
        Column("columns", "INT", "its columns"),
        Column("partition_spec", "STRING", "how it is divided; unpartitioned for not at all"),
        Column("sort_order", "STRING", "how files are sorted; NULL for not at all"),
        Column("message", "STRING", "what the mapping has to say"),
    ),
    run=_create,
)
