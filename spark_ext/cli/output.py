"""How commands speak: text for people, one JSON object per line for programs.

No command prints by itself. Results go to standard output; progress, notes and errors to standard
error.
"""

from __future__ import annotations

import contextlib
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Final, Protocol, TextIO

from spark_ext.cli.outcome_words import OF_FILES, status_word, undo_command
from spark_ext.cli.progress_line import ProgressLine
from spark_ext.cli.terminal import (
    coloured,
    fitting,
    has_colours,
    in_colour,
    shortened,
    terminal_width,
)
from spark_ext.json_text import json_text
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Observer
from tableformat.quantities import counted, duration_text, human_bytes, rate_text

__all__ = ["JsonOutput", "Output", "TextOutput"]

_LEAST_SECONDS_BETWEEN_LINES: Final = 0.2
_SECONDS_BETWEEN_NOTES: Final = 10.0
_LONG: Final = 1_000_000


class Output(Observer, Protocol):
    """What a command may say. It is also the observer of an export."""

    def table(
        self,
        columns: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        below: str | None = None,
    ) -> None:
        """Print records under these column names.

        With `below`, the name of what stands below each line, no line is wider than the terminal.
        """
        ...

    def redraw(self) -> None:
        """Let the next table take the place of the last one, where there is a screen."""
        ...

    def screen(self) -> AbstractContextManager[bool]:
        """Return a context in which tables have a screen of their own; whether there is one."""
        ...

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one record, field by field."""
        ...

    def page(self, fields: Iterable[tuple[str, str | tuple[str, ...]]]) -> None:
        """Print a page about one thing: names with a text, or with lines of their own."""
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
        """Print what went wrong, and what to run next, unless that is ''."""
        ...

    def next(self, command: str) -> None:
        """Print what to run next, after results that say why."""
        ...


class TextOutput:
    """Text for people: a progress line on a terminal, plain lines elsewhere."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, *, quiet: bool = False
    ) -> None:
        """Write results to `out` and everything else to `err`; the process's own by default.

        Args:
            out: gets results.
            err: gets notes, progress and errors.
            quiet: neither notes nor progress.
        """
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._quiet = quiet
        self._colours = has_colours(self._out)
        self._live = self._err.isatty()
        self._progress: ProgressLine | None = None
        self._drawn = 0

    def note(self, text: str) -> None:
        """Say what is going on."""
        if self._quiet:
            return
        self._clear()
        print(f"· {text}", file=self._err, flush=True)

    def none_selected(self, text: str) -> None:
        """Print it: that there was nothing to do is a result."""
        self.say(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Begin a progress line."""
        self._progress = ProgressLine(partitions, rows, size, began=time.monotonic())
        self.note(
            f"writing {counted(partitions, 'partition')}, {counted(rows, 'row')} "
            f"({human_bytes(size)} in ClickHouse)"
        )
        self._draw()

    def rows(self, written: int) -> None:
        """Move the progress line; without a terminal, one line at most every ten seconds."""
        progress = self._progress
        if progress is None:
            return
        with progress.lock:
            now = time.monotonic()
            pause = _LEAST_SECONDS_BETWEEN_LINES if self._live else _SECONDS_BETWEEN_NOTES
            if now - max(progress.shown, progress.began) < pause and written < progress.rows:
                return
            if written == progress.written:
                return
            progress.moved(written, now)
            progress.shown = now
            if written >= progress.rows:
                seconds = now - progress.began
                rate = rate_text(written, seconds)
                self.note(
                    f"{counted(written, 'row')} written in {duration_text(seconds)}"
                    f"{f', {rate}' if rate else ''}"
                )
            elif self._live:
                self._draw()
            else:
                self.note(progress.text(now))

    def finished(self, outcome: Outcome) -> None:
        """Print one line: rows, files, bytes, snapshot id; or why not."""
        self._clear()
        if self._progress is not None:
            self._progress.finished += 1
        said = outcome.verb or status_word(outcome.status)
        what = f"partition {outcome.partition_id}: {said}"
        size = f" · {human_bytes(outcome.bytes)}" if outcome.bytes else ""
        if outcome.status in (Status.COMMITTED, Status.REPLACED):
            what += (
                f" · {counted(outcome.rows, 'row')} · {counted(outcome.data_files, 'file')}"
                f"{size} · snapshot {outcome.snapshot_id}"
                f"{' · verified' if outcome.verified else ''}"
                f"{f' · {outcome.message}' if outcome.message else ''}"
            )
        elif outcome.status in OF_FILES:
            what += (
                f" · {counted(outcome.rows, 'row')} · {counted(outcome.data_files, 'file')}{size}"
                f"{f' · snapshot {outcome.snapshot_id}' if outcome.snapshot_id else ''}"
                f"{f' · {outcome.message}' if outcome.message else ''}"
            )
        elif outcome.message.startswith(f"{said} "):
            what = f"partition {outcome.partition_id}: {outcome.message}"
        elif outcome.message:
            what += f": {outcome.message.removeprefix(f'{said}: ')}"
        self.say(what)
        if outcome.change:
            print(f"  {outcome.change}", file=self._out, flush=True)
        if outcome.undo:
            print(f"  Undo: {undo_command(outcome.undo)}", file=self._out, flush=True)

    def table(
        self,
        columns: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        below: str | None = None,
    ) -> None:
        """Print records in aligned columns, numbers to the right."""
        numeric = [
            all(isinstance(r.get(c), int | float | Decimal | None) for r in records)
            for c in columns
        ]
        cells = [[_shown(record.get(c), c) for c in columns] for record in records]
        widths = [max(len(row[i]) for row in [list(columns), *cells]) for i in range(len(columns))]
        room = terminal_width(self._out) if below and self._out.isatty() else None
        if room is not None:
            widths = fitting(widths, numeric, room)
        self._row(list(columns), widths, numeric)
        for row, record in zip(cells, records, strict=True):
            self._row(row, widths, numeric)
            if below and record.get(below):
                text = textwrap.wrap(
                    _shown(record[below], below), (room or _LONG) - 2, break_on_hyphens=False
                )
                print(textwrap.indent("\n".join(text), "  "), file=self._out)
        self._out.flush()

    def _row(self, cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> None:
        shown = []
        for cell, width, right in zip(cells, widths, numeric, strict=True):
            text = shortened(cell, width)
            padded = text.rjust(width) if right else text.ljust(width)
            shown.append(in_colour(padded, text) if self._colours else padded)
        print("  ".join(shown).rstrip(), file=self._out)

    def redraw(self) -> None:
        """Clear the screen; elsewhere leave a line empty."""
        print("\x1b[H\x1b[2J" if self._out.isatty() else "", file=self._out)

    @contextlib.contextmanager
    def screen(self) -> Iterator[bool]:
        """Turn to the terminal's alternate screen and back; elsewhere do nothing."""
        if not self._out.isatty():
            yield False
            return
        self._out.write("\x1b[?1049h")
        try:
            yield True
        finally:
            self._out.write("\x1b[?1049l")
            self._out.flush()

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one field per line."""
        width = max(len(name) for name in record)
        for name, value in record.items():
            print(f"{name.ljust(width)}  {_shown(value, name)}", file=self._out)

    def page(self, fields: Iterable[tuple[str, str | tuple[str, ...]]]) -> None:
        """Print each name beside its text; lines stand below it, indented."""
        found = [*fields]
        width = max(len(name) for name, _ in found)
        for name, text in found:
            if isinstance(text, str):
                print(f"{name.ljust(width)}  {text}", file=self._out)
            else:
                print("\n".join((name, *(f"  {line}" for line in text))), file=self._out)
        self._out.flush()

    def document(self, text: str) -> None:
        """Print the document."""
        print(text, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Print a sentence."""
        print(coloured(text) if self._colours else text, file=self._out, flush=True)

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
        print(message, file=self._err, flush=True)
        if next_command:
            self.next(next_command)

    def next(self, command: str) -> None:
        """Print the next command on a line of its own."""
        print(f"Next: {command}", file=self._err, flush=True)

    def _draw(self) -> None:
        """Draw the progress line in the place of what stands there, on a terminal."""
        if not self._live or self._quiet or self._progress is None:
            return
        width = terminal_width(self._err)
        line = self._progress.line(time.monotonic(), width)
        self._err.write("\r" + line.ljust(min(self._drawn, max(width - 1, 1))))
        self._err.flush()
        self._drawn = len(line)

    def _clear(self) -> None:
        if self._live and self._drawn:
            blank = min(self._drawn, max(terminal_width(self._err) - 1, 1))
            self._err.write("\r" + " " * blank + "\r")
            self._drawn = 0


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

    def table(
        self,
        columns: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        below: str | None = None,  # noqa: ARG002  objects have no lines
    ) -> None:
        """Print each record as one object."""
        for record in records:
            self._print({c: record.get(c) for c in columns})

    def redraw(self) -> None:
        """Do nothing: a program reads every line."""

    def screen(self) -> AbstractContextManager[bool]:
        """Do nothing."""
        return contextlib.nullcontext(enter_result=False)

    def page(self, fields: Iterable[tuple[str, str | tuple[str, ...]]]) -> None:
        """Print the fields as one object."""
        self._print(dict(fields))

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
        said = {"error": message, "code": code, "next": next_command or None}
        print(json_text(said), file=self._err, flush=True)

    def next(self, command: str) -> None:
        """Print the next command as one object on standard error."""
        print(json_text({"next": command}), file=self._err, flush=True)

    def _print(self, value: object) -> None:
        print(json_text(value), file=self._out, flush=True)


def _shown(value: object, name: str) -> str:
    """Return a value as people read it: numbers in groups of three, but for ids."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal) and not name.endswith("_id"):
        return f"{value:,}"
    return str(value)
