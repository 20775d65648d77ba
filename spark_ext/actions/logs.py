"""Writes structured log records of an export to the logger `mergeberg`.

The message of a record is one word: claimed, resumed, written, sent, landed, settled, given_up,
and at the end the status of the partition. At debug level, `step` records each effect with its
duration. Every record has `transaction_id` and `partition_id`, empty if it is about no partition.

An application configures the logger like any other. `writing_logs` writes one JSON object per line.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from spark_ext.json_text import json_text
from tableformat.committer import Commit, Sent, Staged
from tableformat.effects import Effects, Step
from tableformat.errors import UsageError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import ObserverAround
from tableformat.ledger import Row
from tableformat.messages import plain

__all__ = ["LoggedEffects", "LoggedObserver", "log_note", "writing_logs"]

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("mergeberg")
# Without a handler Python would print warnings to standard error, where mergeberg prints its own.
_LOGGER.addHandler(logging.NullHandler())
_LEVELS: Final = {
    Status.REFUSED: logging.WARNING,
    Status.STOPPED: logging.WARNING,
    Status.FAILED: logging.ERROR,
    Status.KILLED: logging.ERROR,
    Status.UNKNOWN: logging.ERROR,
    Status.DIFFERS: logging.ERROR,
    Status.UNVERIFIED: logging.ERROR,
}
_OF_PYTHON: Final = frozenset((*logging.makeLogRecord({}).__dict__, "message", "asctime"))
"""The attributes of every Python log record; the others are mergeberg's fields."""


class LoggedEffects:
    """Effects that log each step; an instance serves one job."""

    def __init__(self, effects: Effects) -> None:
        """Wrap `effects`, which performs the steps."""
        self._effects = effects
        self._partitions: dict[str, str] = {}
        self._transactions: dict[str, str] = {}

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform an effect, and log it."""
        begun = time.monotonic()
        ended = "failed"
        try:
            result = self._effects(step, act)
            ended = "done"
        finally:
            seconds = round(time.monotonic() - begun, 6)
            _log(logging.DEBUG, "step", step=step.value, ended=ended, seconds=seconds)
        for row in result if isinstance(result, tuple) else (result,):
            if isinstance(row, Row):
                self._moved(step, row)
        if isinstance(result, Sent):
            self._sent(result, act)
        return result

    def _moved(self, step: Step, row: Row) -> None:
        """Log the change of a ledger row, depending on the step that made it."""
        key, transaction_id = row.key.hash, row.claim.transaction_id
        self._partitions[key] = row.key.partition_id
        match step:
            case Step.CLAIM:
                resumed = self._transactions.get(key) == transaction_id
                _log_row("resumed" if resumed else "claimed", row, epoch=row.claim.epoch)
            case Step.NOTE_WRITTEN:
                figures = {"rows": row.claim.rows, "data_files": row.claim.data_files}
                _log_row("written", row, **figures, bytes=row.claim.bytes)
            case Step.SETTLE if row.done is not None:
                landed = row.done.landed
                _log_row(
                    "settled",
                    row,
                    transaction_id=landed.transaction_id,
                    epoch=landed.epoch,
                    snapshot_id=landed.snapshot_id,
                    rows=landed.rows,
                )
            case Step.GIVE_UP:
                _log_row("given_up", row, state=row.state.value, epoch=row.claim.epoch)
            case _:
                pass
        self._transactions[key] = transaction_id

    def _sent(self, sent: Sent, act: Callable[[], object]) -> None:
        """Log a commit request once for each partition in it."""
        given = act.args if isinstance(act, partial) else ()
        staged = next((a for a in given if isinstance(a, Staged)), None)
        commit = next((a for a in given if isinstance(a, Commit)), None)
        for key in commit.keys if commit is not None else ():
            about = {
                "transaction_id": key.transaction_id,
                "partition_id": self._partitions.get(key.key, ""),
                "epoch": key.epoch,
                "snapshot_id": staged.snapshot_id if staged is not None else None,
            }
            _log(logging.INFO, "sent", **about, error=sent.error)
            if sent.applied:
                _log(logging.INFO, "landed", **about)


class LoggedObserver(ObserverAround):
    """An observer that logs notices and outcomes, and passes every call to another observer."""

    __slots__ = ()

    def note(self, text: str) -> None:
        """Log a notice."""
        _log(logging.INFO, "note", text=text)
        self.observer.note(text)

    def none_selected(self, text: str) -> None:
        """Log that no partition is selected."""
        _log(logging.INFO, "none_selected", text=text)
        self.observer.none_selected(text)

    def finished(self, outcome: Outcome) -> None:
        """Log the outcome of a partition; the message is its status."""
        _log(
            _LEVELS.get(outcome.status, logging.INFO),
            outcome.status.value,
            transaction_id=outcome.transaction_id or "",
            partition_id=outcome.partition_id,
            table=outcome.table,
            rows=outcome.rows,
            seconds=outcome.seconds,
            error=outcome.message,
        )
        self.observer.finished(outcome)


@contextlib.contextmanager
def writing_logs(where: str, level: str = "debug") -> Iterator[None]:
    """Write log records as JSON, one object per line, while the context is open.

    Args:
        where: `json` for standard error, `json:PATH` to append to a file, '' for no log.
        level: the name of the lowest level to write, as in Python's logging.

    Raises:
        UsageError: `where` has another form, or the file cannot be opened.
    """
    if not where:
        yield
        return
    handler = _handler(where)
    handler.setFormatter(_Json())
    before = _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(level.upper())
    try:
        yield
    finally:
        _LOGGER.setLevel(before)
        _LOGGER.removeHandler(handler)
        handler.close()


class _LogFile(logging.FileHandler):
    """A log file that drops records after a write error, such as a full disk.

    The first error is reported once on standard error.
    """

    _is_full = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; drop it after a write error."""
        if not self._is_full:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is logging's
        """Report an operating system error once; leave every other error to logging."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._is_full = True
        sys.stderr.write(
            f"Cannot write logs to {self.baseFilename}: {error.strerror}. The command continues "
            "without them.\n"
        )

    def close(self) -> None:
        """Close the file; ignore an error for records that could not be written."""
        with contextlib.suppress(OSError):
            super().close()


class _Json(logging.Formatter):
    """Formats a record as one JSON object: time, level, event and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object as text."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": at,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        found |= {k: v for k, v in record.__dict__.items() if k not in _OF_PYTHON}
        return json_text(found)


def _handler(where: str) -> logging.Handler:
    kind, _, path = where.partition(":")
    if kind != "json" or where == "json:":
        message = (
            f"Cannot write logs to {where!r}: it is neither json nor json:PATH. Write for example "
            "--log json:/var/log/mergeberg.json."
        )
        raise UsageError(message)
    if not path:
        return logging.StreamHandler()
    try:
        return _LogFile(Path(path), encoding="utf-8")
    except OSError as error:
        message = (
            f"Cannot write logs to {path}: {error.strerror}. Name a file that you may write, in a "
            "directory that is there."
        )
        raise UsageError(message) from error


def log_note(text: str) -> None:
    """Log a notice of a statement, which has no other place for it."""
    _LOGGER.info("%s", plain(text))


def _log_row(event: str, row: Row, **about: object) -> None:
    known = {"transaction_id": row.claim.transaction_id, "partition_id": row.key.partition_id}
    named = {"table": row.source_table, "destination": row.destination_table}
    _log(logging.INFO, event, **{**known, **named, **about})


def _log(level: int, event: str, **about: object) -> None:
    if _LOGGER.isEnabledFor(level):
        texts = {name: plain(value) for name, value in about.items() if isinstance(value, str)}
        extra = {"transaction_id": "", "partition_id": "", **about, **texts}
        _LOGGER.log(level, event, extra=extra)
