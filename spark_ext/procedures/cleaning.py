"""The procedure that removes what dead exports left behind."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Final

from catalog.ledgers.memory import milliseconds
from spark_ext.procedures.declared import Call, Column, Parameter, Procedure, Rows
from spark_ext.procedures.naming import CallNames
from spark_ext.sql.wording import in_call
from spark_ext.sweeping import sweep, sweep_sources
from tableformat.errors import UsageError

__all__ = ["GC"]


def _gc(call: Call) -> Rows:
    names = CallNames.of(call)
    if call.text_or_none("table") is None and call.text_or_none("source") is None:
        message = "Cannot clean up: name the lake table by `table`, or a `source`, or both."
        raise UsageError(message)
    age, removes = _age(call), not call.flag("dry_run")
    cluster = call.text_or_none("cluster")
    if cluster is not None and call.text_or_none("source") is None:
        message = (
            f"Cannot look on the hosts of {cluster}: nobody says which server knows them. Name one "
            "by `source`."
        )
        raise UsageError(message)
    places = names.hosts("source", cluster=cluster)
    if call.text_or_none("table") is None:
        with contextlib.closing(names.open_ledger()) as ledger:
            swept = sweep_sources(ledger, places, older_than=age, removes=removes)
    else:
        name = names.destination("table")
        lake = names.existing_destination("table", name, f"clean up {name}")
        with contextlib.closing(names.open_ledger(name)) as ledger:
            swept = sweep(lake, ledger, places, older_than=age, removes=removes)
    swept.check_every_host()
    action = "removed" if removes else "remove"
    return tuple(
        (
            action if one.may_go else "keep",
            one.kind.value,
            one.partition_id or None,
            one.bytes,
            one.location,
            in_call(one.why),
        )
        for one in swept.things
    )


def _age(call: Call) -> int:
    """Return how old something has to be, in milliseconds; 0 when nobody says it.

    Raises:
        UsageError: the time is not over.
    """
    text = call.text_or_none("older_than")
    if text is None:
        return 0
    age = milliseconds() - int(datetime.fromisoformat(text).timestamp() * 1000)
    if age <= 0:
        message = (
            f"Cannot clean up what is older than {text}: that time is not over. Give `older_than` "
            "one in the past, or leave it out."
        )
        raise UsageError(message)
    return age


GC: Final = Procedure(
    name="gc",
    description="Tells what dead exports left behind, in a lake table and in a source, with the "
    "proof of each, and with dry_run => false removes it.",
    parameters=(
        Parameter(
            "table",
            "STRING",
            "the lake table: [catalog.]namespace.table, or hive.`uri`; without it only `source` is "
            "looked at",
            "NULL",
        ),
        Parameter(
            "source",
            "STRING",
            "look for staging tables there: a source, or a table of it",
            "NULL",
        ),
        Parameter("cluster", "STRING", "on every host of this cluster of the source", "NULL"),
        Parameter("older_than", "TIMESTAMP", "only what was begun before it", "NULL"),
        Parameter("dry_run", "BOOLEAN", "only tell", "true"),
    ),
    columns=(
        Column("action", "STRING", "remove (it would be), removed, or keep"),
        Column("kind", "STRING", "data file, receipt, manifest, staging table, ..."),
        Column("partition_id", "STRING", "of whose export"),
        Column("bytes", "BIGINT", "its size"),
        Column("location", "STRING", "where it is"),
        Column("why", "STRING", "why it may go, or stays"),
    ),
    run=_gc,
)
