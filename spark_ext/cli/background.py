"""Runs `mergeberg export --no-wait`: an export in a background process.

The command starts the same command line without `--no-wait` as a new process. The process has its
own session, so that no shell and no terminal ends it, no standard input, and its two outputs go to
two files. The command returns when the process begins to write files. Then the transactions are in
the ledger, and `mergeberg exports list` shows them. If the process ends earlier, the command prints
each output on its own stream, and ends with the exit code of the process.

The process reports the transactions that it has begun through a pipe. Until then the command waits,
and Ctrl-C stops both.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

import click

from spark_ext.actions.export import ClaimedTransactions
from spark_ext.cli.output import Output
from spark_ext.json_text import json_text
from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Observer, ObserverAround
from tableformat.quantities import counted

__all__ = [
    "NO_WAIT",
    "StartReport",
    "begin",
    "current_report",
    "report_through",
    "reporting",
]

NO_WAIT: Final = "--no-wait"
_STATE: Final = "XDG_STATE_HOME"
_BY_SIGNAL: Final = 128
"""The exit code of a process that a signal ended is this plus the signal's number, as in shells."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The report of the background process: partition and transaction of each running export."""

    transactions: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        return json_text(self.transactions)

    @classmethod
    def from_json(cls, text: str) -> _Begun:
        return cls(tuple((str(one), str(transaction)) for one, transaction in json.loads(text)))


@dataclass(slots=True)
class StartReport:
    """Sends the transactions that are running through a pipe, once."""

    pipe: int
    claimed: ClaimedTransactions = field(default_factory=ClaimedTransactions)
    ended: set[str] = field(default_factory=set)
    is_sent: bool = False

    def send(self) -> None:
        """Send the transactions that are running now; do nothing the second time."""
        if self.is_sent:
            return
        self.is_sent = True
        found = self.claimed.partitions().items()
        begun = _Begun(tuple((one, of) for of, one in found if of not in self.ended))
        # The export continues if the command that waits for the report has ended.
        with contextlib.suppress(OSError), os.fdopen(self.pipe, "w", encoding="utf-8") as pipe:
            pipe.write(begun.to_json())


@dataclass(frozen=True, slots=True)
class ReportingObserver(ObserverAround):
    """An observer that sends the report when writing begins, and passes on every call."""

    _: KW_ONLY
    report: StartReport

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Send the report."""
        self.report.send()
        self.observer.begin(partitions, rows, size)

    def finished(self, outcome: Outcome) -> None:
        """Record that a transaction has ended."""
        self.report.ended.add(outcome.transaction_id or "")
        self.observer.finished(outcome)


_REPORT: Final[ContextVar[StartReport | None]] = ContextVar("report", default=None)


def report_through(pipe: int) -> None:
    """Make this process send its report through a pipe."""
    _REPORT.set(StartReport(pipe))


def current_report() -> StartReport | None:
    """Return the report of this process; None if no command waits for one."""
    return _REPORT.get()


def reporting(observer: Observer, report: StartReport | None) -> Observer:
    """Return the observer, or one that also sends the report if there is one."""
    return observer if report is None else ReportingObserver(observer, report=report)


def begin(words: Sequence[str], output: Output, follow: str, *, as_json: bool) -> int:
    """Start a command line in the background; return when it begins to write or has ended.

    Args:
        words: the words after `mergeberg`.
        output: the output of this command.
        follow: the command that lists the exports of this ledger.
        as_json: whether the output is JSON.

    Returns:
        0 if the export has begun, else the exit code of the process, as in a shell.

    Raises:
        RefusedError: there is no directory for the output of the process.
    """
    logs = _Logs.of_new_process()
    read, write = os.pipe()
    left = [word for word in words if word != NO_WAIT]
    try:
        with logs.results.open("xb") as results, logs.errors.open("xb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "spark_ext.cli.child", str(write), *left],
                stdin=subprocess.DEVNULL,
                stdout=results,
                stderr=errors,
                pass_fds=(write,),
                start_new_session=True,
            )
    except OSError as error:
        os.close(read)
        message = f"Cannot export in the background: {error.strerror}. Leave {NO_WAIT} out."
        raise RefusedError(message) from error
    finally:
        os.close(write)
    try:
        with os.fdopen(read, encoding="utf-8") as pipe:
            text = pipe.read()
        code = 0 if text else process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    if not text:
        logs.replay(output)
        if code < 0:
            output.note(
                f"Process {process.pid} was ended by {signal.Signals(-code).name} before it wrote "
                f"a file. Run it again. Its output is in {logs}"
            )
        return code if code >= 0 else _BY_SIGNAL - code
    _report(_Begun.from_json(text), process.pid, logs, output, as_json=as_json)
    output.next(follow)
    return 0


def _report(begun: _Begun, pid: int, logs: _Logs, output: Output, *, as_json: bool) -> None:
    """Print the transactions that have begun, and the paths of the process's outputs."""
    for partition_id, transaction_id in begun.transactions:
        if as_json:
            output.record(
                {
                    "partition_id": partition_id,
                    "status": Status.IN_PROGRESS.value,
                    "transaction_id": transaction_id,
                    "process": pid,
                    "output": str(logs.results),
                    "errors": str(logs.errors),
                }
            )
        else:
            output.say(f"partition {partition_id}: begun, transaction {transaction_id}")
    if not as_json:
        number = counted(len(begun.transactions), "partition")
        output.say(f"Process {pid} exports {number}, and any that follow; its output is in {logs}")


@dataclass(frozen=True, slots=True)
class _Logs:
    """The files for the standard output and the standard error of a process."""

    results: Path
    errors: Path

    @classmethod
    def of_new_process(cls) -> _Logs:
        """Return the paths for a new process, and create their directory.

        Raises:
            RefusedError: there is no directory for them.
        """
        directory = _state_directory()
        if directory is None:
            raise _no_place("neither it nor HOME names a directory")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_place(f"{directory} cannot be made ({error.strerror})") from error
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        results = directory / f"export-{now}-{os.getpid()}.log"
        return cls(results, results.with_suffix(".err"))

    def replay(self, output: Output) -> None:
        """Print what the process has printed, each text on the stream of its own."""
        if results := self._text(self.results):
            output.document(results)
        if errors := self._text(self.errors):
            click.echo(errors, err=True)

    @staticmethod
    def _text(file: Path) -> str:
        return file.read_text(encoding="utf-8", errors="replace").rstrip("\n")

    def __str__(self) -> str:
        """Return both paths as a phrase."""
        return f"{self.results} and {self.errors} (notes and errors)"


def _state_directory() -> Path | None:
    """Return mergeberg's state directory of the user; None if no variable names one."""
    for name, below in ((_STATE, "."), ("HOME", ".local/state")):
        # A relative path would depend on the working directory; the XDG rules say to ignore it.
        root = os.environ.get(name, "")
        if Path(root).is_absolute():
            return Path(root) / below / "mergeberg"
    return None


def _no_place(why: str) -> RefusedError:
    message = (
        f"Cannot export in the background: its output has no place, {why}. Set {_STATE} to a "
        f"directory that you may write, or leave {NO_WAIT} out."
    )
    return RefusedError(message)
