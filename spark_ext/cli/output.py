"""How commands speak: text for people, one JSON object per line for programs.

No command prints by itself. Results go to standard output; progress, notes and errors to standard
error.
"""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol, TextIO

from spark_ext.json_text import json_text
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Observer

__all__ = ["JsonOutput", "Output", "TextOutput", "counted", "human_bytes", "undo_command"]

_SAID = {
    Status.COMMITTED: "exported",
    Status.REPLACED: "replaced",
    Status.UNCHANGED: "unchanged",
    Status.ALREADY_EXPORTED: "already exported",
    Status.EMPTY: "empty",
    Status.IN_PROGRESS: "in progress elsewhere",
    Status.REFUSED: "refused",
    Status.KILLED: "killed",
    Status.FAILED: "failed",
    Status.UNKNOWN: "not known",
    Status.DIFFERS: "differs",
    Status.UNVERIFIED: "not verified",
    Status.DROPPED: "dropped",
    Status.DETACHED: "detached",
    Status.ATTACHED: "attached",
    Status.MOVED: "moved",
    Status.FETCHED: "fetched",
    Status.CHANGED: "changed",
    Status.OPTIMIZED: "optimized",
    Status.FROZEN: "frozen",
    Status.UNFROZEN: "unfrozen",
    Status.FORGOTTEN: "forgotten",
}
_OF_FILES = (
    Status.DROPPED,
    Status.DETACHED,
    Status.ATTACHED,
    Status.MOVED,
    Status.FETCHED,
    Status.CHANGED,
    Status.OPTIMIZED,
    Status.FROZEN,
)
_LEAST_SECONDS_BETWEEN_LINES: Final = 0.2
_LEAST_SECONDS_FOR_A_RATE: Final = 1.0
_STEP: Final = 1024


class Output(Observer, Protocol):
    """What a command may say. It is also the observer of an export."""

    def table(self, columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
        """Print records under these column names."""
        ...

    def redraw(self) -> None:
        """Let the next table take the place of the last one, where there is a screen."""
        ...

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one record, field by field."""
        ...

    def document(self, text: str) -> None:
        """Print a document as it is, over several lines."""
        ...

    def say(self, text: str) -> None:
        """Print a sentence that is a result."""
        ...

    def step(self, title: str) -> None:
        """Begin a step of a story for people."""
        ...

    def detail(self, text: str) -> None:
        """Tell one line of the step."""
        ...

    def error(self, message: str, next_command: str, *, code: int | None = None) -> None:
        """Print why the command ended without doing what was asked, and what to run next."""
        ...

    def next(self, command: str) -> None:
        """Print what to run next, after results that say why."""
        ...


@dataclass(slots=True)
class _Progress:
    """The state of one progress line."""

    total: int = 0
    done: int = 0
    began: float = 0.0
    shown: float = 0.0
    first: tuple[float, int] | None = None
    width: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class TextOutput:
    """Text for people: a progress line on a terminal, plain lines elsewhere."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        """Write results to `out` and everything else to `err`; the process's own by default."""
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._live = self._err.isatty()
        self._progress = _Progress()

    def note(self, text: str) -> None:
        """Say what is going on."""
        self._clear()
        print(f"· {text}", file=self._err, flush=True)

    def none_selected(self, text: str) -> None:
        """Print it: that there was nothing to do is a result."""
        self.say(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Begin a progress line."""
        self._progress = _Progress(total=rows, began=time.monotonic())
        self.note(
            f"writing {counted(partitions, 'partition')}, {rows:,} rows "
            f"({human_bytes(size)} in ClickHouse)"
        )
        if self._live:
            self._draw(_progress_line(self._progress))

    def rows(self, written: int) -> None:
        """Move the progress line; without a terminal, one line at most every ten seconds."""
        progress = self._progress
        with progress.lock:
            now = time.monotonic()
            pause = _LEAST_SECONDS_BETWEEN_LINES if self._live else 10.0
            if now - max(progress.shown, progress.began) < pause and written < progress.total:
                return
            if written == progress.done:
                return
            progress.done, progress.shown = written, now
            progress.first = progress.first or (now, written)
            if written >= progress.total:
                seconds = now - progress.began
                rate = f"{written / seconds:,.0f} rows/s" if seconds else "at once"
                self.note(f"{written:,} rows written in {seconds:.1f} s, {rate}")
            elif self._live:
                self._draw(_progress_line(progress))
            else:
                self.note(_progress_line(progress).lstrip("█ "))

    def finished(self, outcome: Outcome) -> None:
        """Print one line: rows, files, bytes, snapshot id; or why not."""
        self._clear()
        said = _SAID[outcome.status]
        what = f"partition {outcome.partition_id}: {said}"
        if outcome.status in (Status.COMMITTED, Status.REPLACED):
            what += (
                f" · {outcome.rows:,} rows · {counted(outcome.data_files, 'file')} · "
                f"{human_bytes(outcome.bytes)} · snapshot {outcome.snapshot_id}"
                f"{' · verified' if outcome.verified else ''}"
                f"{f' · {outcome.message}' if outcome.message else ''}"
            )
        elif outcome.status in _OF_FILES:
            what += (
                f" · {outcome.rows:,} rows · {counted(outcome.data_files, 'file')}"
                f"{f' · snapshot {outcome.snapshot_id}' if outcome.snapshot_id else ''}"
                f"{f' · {outcome.message}' if outcome.message else ''}"
            )
        elif outcome.message:
            what += f": {outcome.message.removeprefix(f'{said}: ')}"
        print(what, file=self._out, flush=True)
        if outcome.change:
            print(f"  {outcome.change}", file=self._out, flush=True)
        if outcome.undo:
            print(f"  Undo: {undo_command(outcome.undo)}", file=self._out, flush=True)

    def table(self, columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
        """Print records in aligned columns, numbers to the right."""
        cells = [[_shown(record.get(c)) for c in columns] for record in records]
        widths = [max(len(row[i]) for row in [list(columns), *cells]) for i in range(len(columns))]
        numeric = [
            all(isinstance(r.get(c), int | float | Decimal | None) for r in records)
            for c in columns
        ]
        for row in [list(columns), *cells]:
            line = "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            )
            print(line.rstrip(), file=self._out)
        self._out.flush()

    def redraw(self) -> None:
        """Clear the screen; elsewhere leave a line empty."""
        print("\x1b[H\x1b[2J" if self._out.isatty() else "", file=self._out)

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one field per line."""
        width = max(len(name) for name in record)
        for name, value in record.items():
            print(f"{name.ljust(width)}  {_shown(value)}", file=self._out)

    def document(self, text: str) -> None:
        """Print the document."""
        print(text, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Print a sentence."""
        print(text, file=self._out, flush=True)

    def step(self, title: str) -> None:
        """Print the title after an empty line."""
        print(f"\n{title}", file=self._out, flush=True)

    def detail(self, text: str) -> None:
        """Print the line."""
        self._clear()
        print(text, file=self._out, flush=True)

    def error(self, message: str, next_command: str, *, code: int | None = None) -> None:  # noqa: ARG002  for programs
        """Print the message, and the next command on a line of its own."""
        self._clear()
        print(message, file=self._err)
        self.next(next_command)

    def next(self, command: str) -> None:
        """Print the next command on a line of its own."""
        print(f"Next: {command}", file=self._err, flush=True)

    def _draw(self, line: str) -> None:
        self._err.write("\r" + line.ljust(self._progress.width))
        self._err.flush()
        self._progress.width = len(line)

    def _clear(self) -> None:
        if self._live and self._progress.width:
            self._err.write("\r" + " " * self._progress.width + "\r")
            self._progress.width = 0


class JsonOutput:
    """One JSON object per line on standard output and nothing else there."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        """Write objects to `out` and errors to `err`; the process's own by default."""
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    def note(self, text: str) -> None:
        """Say nothing: programs read results."""

    def none_selected(self, text: str) -> None:
        """Print it as one object, so that a program can tell it from no answer."""
        self.say(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Say nothing."""

    def rows(self, written: int) -> None:
        """Say nothing."""

    def finished(self, outcome: Outcome) -> None:
        """Print the outcome as one object."""
        self._print(asdict(outcome))

    def table(self, columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
        """Print each record as one object."""
        for record in records:
            self._print({c: record.get(c) for c in columns})

    def redraw(self) -> None:
        """Do nothing: a program reads every line."""

    def record(self, record: Mapping[str, Any]) -> None:
        """Print the record as one object."""
        self._print(record)

    def document(self, text: str) -> None:
        """Print the document, which is itself JSON."""
        print(text, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Print the sentence as one object."""
        self._print({"message": text})

    def step(self, title: str) -> None:
        """Say nothing: steps are for people."""

    def detail(self, text: str) -> None:
        """Say nothing."""

    def error(self, message: str, next_command: str, *, code: int | None = None) -> None:
        """Print the error as one object on standard error; `code` is ClickHouse's."""
        said = {"error": message, "code": code, "next": next_command}
        print(json_text(said), file=self._err, flush=True)

    def next(self, command: str) -> None:
        """Print the next command as one object on standard error."""
        print(json_text({"next": command}), file=self._err, flush=True)

    def _print(self, value: object) -> None:
        print(json_text(value), file=self._out, flush=True)


def undo_command(statement: str) -> str:
    """Return the command that runs a statement that undoes another."""
    return f"mergeberg alter {_in_quotes(statement)}"


def _in_quotes(text: str) -> str:
    """Return a word as a shell reads it, in double quotes where only single ones are inside."""
    return shlex.quote(text) if any(c in text for c in '"$`\\!') else f'"{text}"'


def human_bytes(size: int) -> str:
    """Return a size as people read it, in powers of 1,024."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= _STEP and len(units) > 1:
        value /= _STEP
        units.pop(0)
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def counted(number: int, thing: str) -> str:
    """Return "1 file", "2 files"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _progress_line(progress: _Progress) -> str:
    """Return bar, share and rows; rate and what is left only when they can be told.

    They count from the first rows: the time that workers take to start says nothing about them.
    """
    done, total = progress.done, progress.total
    share = done / total if total else 1.0
    text = f"{'█' * int(share * 24):<24} {share:4.0%}  {done:,} of {total:,} rows"
    since, before = progress.first or (0.0, done)
    if done == before or progress.shown - since < _LEAST_SECONDS_FOR_A_RATE:
        return text
    rate = (done - before) / (progress.shown - since)
    return f"{text}  {rate:,.0f} rows/s  {(total - done) / rate:.0f} s left"


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal):
        return f"{value:,}"
    return str(value)
