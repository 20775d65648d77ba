"""Puts a job's ports together from what the user said: here all parts of the house meet."""

from __future__ import annotations

import random
import secrets
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from catalog.iceberg import TimeOuts, open_catalog
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.processes import job_may_be_alive, may_be_alive, new_job, this_process
from catalog.sources import open_source
from spark_ext.session import SparkSettings, open_session
from spark_ext.writer import SparkWriter
from tableformat.effects import Direct
from tableformat.export.ports import JobPorts
from tableformat.names import TransactionId, new_transaction_id

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tableformat.effects import Effects
    from tableformat.export.ports import Observer, SliceWriter

__all__ = ["Places", "open_ports", "start_spark"]


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is, as the user said. `wait` is in seconds; `ledger` None is the default."""

    source: str
    catalog: str
    warehouse: Path
    ledger: str | None = None
    wait: float = 60.0
    time_outs: TimeOuts = field(default_factory=TimeOuts)


def start_spark(settings: SparkSettings) -> Future[SparkSession]:
    """Begin to start Spark; the source is described and frozen meanwhile."""
    starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark-start")
    future = starter.submit(open_session, settings)
    starter.shutdown(wait=False)
    return future


def open_ports(
    places: Places,
    spark: Future[SparkSession],
    observer: Observer,
    *,
    effects: Effects | None = None,
) -> JobPorts:
    """Open source, catalog and ledger.

    Args:
        places: where they are.
        spark: the session that will write; waited for when the first file is to be written.
        observer: who hears how the job goes.
        effects: the port to the outside; the ordinary one when None.

    Raises:
        TableFormatError: one of them cannot be opened.
    """
    catalog = open_catalog(places.catalog, warehouse=places.warehouse, time_outs=places.time_outs)
    ledger = open_ledger(places.ledger, local_warehouse=catalog.local_warehouse)

    def writer() -> SliceWriter:
        if not spark.done():
            observer.note("waiting for Spark to start")
        return SparkWriter(spark.result())

    return JobPorts(
        effects=effects or Direct(),
        source=open_source(places.source, wait=places.wait),
        lake=catalog,
        ledger=ledger,
        writer=writer,
        owner=this_process(),
        is_alive=may_be_alive,
        clock=milliseconds,
        pause=_back_off,
        new_transaction=_transaction,
        job=new_job(),
        job_is_alive=job_may_be_alive,
        observer=observer,
    )


def _back_off(attempt: int) -> None:
    time.sleep(random.uniform(0, min(5.0, 0.05 * 2 ** min(attempt, 8))))  # noqa: S311  jitter, not a secret


def _transaction() -> TransactionId:
    return new_transaction_id(milliseconds(), secrets.randbits(10), secrets.randbits(12))
