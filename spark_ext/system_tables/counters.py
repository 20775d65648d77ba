"""`mergeberg.system.events` and `metrics`: what was counted, and what runs now.

By ClickHouse's names: PartsExports, PartsExportFailures and PartsExportDuplicated count source
parts since the ledger was made, Export the partitions that are being exported now (RQ…Logging,
RQ…Metrics.Export, reading 17).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from spark_ext.procedures.declared import Call, Column, Rows, SystemTable
from spark_ext.system_tables.known_ledger import known_ledger
from tableformat.history import MEANINGS, RUNNING_EXPORTS, Counter

__all__ = ["EVENTS", "METRICS"]

_VALUE: Final = Column("value", "BIGINT", "how many")
_DESCRIPTION: Final = Column("description", "STRING", "what is counted")


def _counted(call: Call, names: Collection[str]) -> Rows:
    with known_ledger(call.conf) as ledger:
        found = {} if ledger is None else ledger.counters()
    return tuple((name, value, MEANINGS[name]) for name, value in found.items() if name in names)


EVENTS: Final = SystemTable(
    name="events",
    description="What exports counted since the ledger was made, in source parts.",
    columns=(Column("event", "STRING", "the counter's name"), _VALUE, _DESCRIPTION),
    run=lambda call: _counted(call, frozenset(Counter)),
)
METRICS: Final = SystemTable(
    name="metrics",
    description="What runs now.",
    columns=(Column("metric", "STRING", "the metric's name"), _VALUE, _DESCRIPTION),
    run=lambda call: _counted(call, {RUNNING_EXPORTS}),
)
