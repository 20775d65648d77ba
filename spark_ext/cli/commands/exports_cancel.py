"""The command `mergeberg exports cancel`: cancels running or interrupted exports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from catalog.network import TimeOuts
from spark_ext.actions.cancel import (
    Cancelled,
    cancel_each,
    rows_to_cancel,
    rows_under_way,
)
from spark_ext.cli.destination import destination_name, open_destination, open_ledger_of
from spark_ext.cli.output import Output, output_for
from tableformat.errors import TableFormatError, UsageError
from tableformat.export.outcome import worst
from tableformat.ledger import Row
from tableformat.names import PartitionId, TableName
from tableformat.quantities import counted, human_bytes

__all__ = ["cancel_export"]

_CODES: Final = {"committed": 3, "unknown": 5, "in_progress": 6}
"""The exit code by status; any other is 0."""


def cancel_export(  # noqa: PLR0913  one parameter per option
    partition_ids: tuple[str, ...], source_table: str | None, to: str | None, wait: float,
    warehouse: Path, ledger: str | None, time_outs: TimeOuts, *, everything: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg exports cancel`; return the exit code."""
    output = output_for(as_json=as_json)
    table = TableName.parse(source_table) if source_table is not None else None
    name = destination_name(to) if to is not None else None
    if everything == bool(partition_ids) or (partition_ids and table is None):
        message = "Cannot cancel exports: give partition ids and --table, or --all."
        raise UsageError(message)
    ids = tuple(PartitionId(one) for one in partition_ids)
    with contextlib.closing(
        open_ledger_of(name, ledger, "cancel exports", warehouse=warehouse)
    ) as known:
        found = _Found()
        if table is not None and ids:
            for one in ids:
                with found.failing():
                    found.rows.extend(rows_to_cancel(known, one, table, name))
        else:
            found.rows.extend(rows_under_way(known, table, name))
        if not found.rows and not found.errors:
            output.say("nothing to cancel: no export is under way")
        opened = partial(open_destination, warehouse=warehouse, time_outs=time_outs)
        for row, result in cancel_each(found.rows, opened, known, wait=wait, note=output.note):
            found.report(output, row, result, as_json=as_json)
    return found.ended(output)


@dataclass(slots=True)
class _Found:
    """The exports to cancel, with their exit codes and errors."""

    rows: list[Row] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    errors: list[TableFormatError] = field(default_factory=list)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Keep an error, so that it does not stop the other cancellations."""
        try:
            yield
        except TableFormatError as error:
            self.errors.append(error)

    def report(
        self, output: Output, row: Row, result: Cancelled | TableFormatError, *, as_json: bool
    ) -> None:
        """Print the result of a cancellation, or keep its error."""
        if isinstance(result, TableFormatError):
            self.errors.append(result)
            return
        _print(output, row, result, as_json=as_json)
        self.codes.append(_CODES.get(result.status, 0))

    def ended(self, output: Output) -> int:
        """Return the exit code of all.

        Raises:
            TableFormatError: the first error, if there was one; the others are printed as notes.
        """
        if self.errors:
            for other in self.errors[1:]:
                output.note(other.message)
            raise self.errors[0]
        return worst(self.codes)


def _print(output: Output, row: Row, cancelled: Cancelled, *, as_json: bool) -> None:
    text, cleaned = cancelled.text, cancelled.cleaned
    if cleaned.files:
        text += f"; {counted(cleaned.files, 'file')} removed, {human_bytes(cleaned.bytes)}"
    if as_json:
        output.record(
            {
                "partition_id": row.key.partition_id,
                "table": row.destination_table,
                "status": cancelled.status,
                "message": text,
            }
        )
    else:
        output.say(f"partition {row.key.partition_id}: {text}")
