"""Prints the output of commands: text for people, or one JSON object per line for programs.

Commands print only through this module. Results go to standard output; progress, notes and errors
go to standard error. Text output is fitted to the terminal, and status words are coloured.
`status_word` has the words for the status of a partition, and `undo_command` a command to copy.

The progress line of an export is never wider than the terminal:

████████▌        3/19 partitions · 41 % · 1.2 GiB · 130 k rows/s · 2 min left
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol, TextIO

import click

from spark_ext.cli.options import UndoOptions
from spark_ext.json_text import json_text
from tableformat.errors import TableFormatError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Observer
from tableformat.messages import plain
from tableformat.quantities import (
    counted,
    duration_text,
    human_bytes,
    human_count,
    left_text,
    rate_text,
)

__all__ = [
    "OF_FILES",
    "JsonOutput",
    "Output",
    "ProgressLine",
    "TextOutput",
    "coloured",
    "error_printer",
    "fitting",
    "has_colours",
    "in_colour",
    "output_for",
    "quoted",
    "shortened",
    "status_word",
    "terminal_width",
    "undo_command",
]

_WORDS: Final = {
    Status.COMMITTED: "exported",
    Status.REPLACED: "replaced",
    Status.UNCHANGED: "unchanged",
    Status.ALREADY_EXPORTED: "already exported",
    Status.EMPTY: "empty",
    Status.IN_PROGRESS: "in progress elsewhere",
    Status.REFUSED: "refused",
    Status.KILLED: "killed",
    Status.FAILED: "failed",
    Status.STOPPED: "stopped",
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
OF_FILES: Final = (
    Status.DROPPED,
    Status.DETACHED,
    Status.ATTACHED,
    Status.MOVED,
    Status.FETCHED,
    Status.CHANGED,
    Status.OPTIMIZED,
    Status.FROZEN,
)
"""Statuses of statements that move, write or remove files."""


def status_word(status: Status) -> str:
    """Return the word for a status in text output."""
    return _WORDS[status]


def undo_command(statement: str, options: UndoOptions) -> str:
    """Return the command that runs an undo statement."""
    words = ("mergeberg", *options.before, "alter", statement, *options.after)
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """Return a word quoted for a shell, in double quotes if it contains single quotes."""
    plain = shlex.quote(word)
    in_double = "'" in word and not any(c in word for c in '"$`\\!')
    return f'"{word}"' if in_double else plain


_LEAST_BAR: Final = 8
_MOST_BAR: Final = 24
_USUAL_TEXT: Final = 62
_SECONDS_BEFORE_A_RATE: Final = 1.0
_LEAST_WINDOW: Final = 30.0
_SECONDS_BETWEEN_SAMPLES: Final = 0.5
_FEWEST_SAMPLES: Final = 2
_PAUSE: Final = 10.0
_PARTIAL: Final = " ▏▎▍▌▋▊▉"


@dataclass(slots=True)
class ProgressLine:
    """The progress of the files that are being written; times are of a monotonic clock.

    The rate is that of the last half of the time, at least of 30 seconds: files end in bursts, and
    the time that tasks need to start does not predict the rest.

    `partitions`, `rows` and `size` are totals; `size` is in bytes of the source, or of the lake's
    files that are compared. `finished` is the number of partitions with an outcome. `verb` is the
    verb for the rows in the last line, '' for no such line.
    """

    partitions: int
    rows: int
    size: int
    began: float
    verb: str = "written"
    finished: int = 0
    written: int = 0
    shown: float = 0.0
    grown: float = 0.0
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def moved(self, written: int, now: float) -> None:
        """Set the number of rows that are written so far."""
        if written > self.written:
            self.grown = now
        self.written = written
        samples = self.samples
        if not samples or now - samples[-1][0] >= _SECONDS_BETWEEN_SAMPLES:
            samples.append((now, written))
        window = max(_LEAST_WINDOW, (now - self.began) / 2)
        while len(samples) > _FEWEST_SAMPLES and samples[0][0] < now - window:
            samples.popleft()

    def rate(self, now: float) -> float | None:
        """Return rows per second; None if it is too early for a rate.

        A pause of up to ten seconds between two bursts does not lower the rate.
        """
        since, before = self.samples[0] if self.samples else (now, self.written)
        rows, seconds = self.written - before, max(self.grown, now - _PAUSE) - since
        return rows / seconds if rows > 0 and seconds >= _SECONDS_BEFORE_A_RATE else None

    def text(self, now: float) -> str:
        """Return the line without its bar."""
        return " · ".join(self._pieces(now))

    def line(self, now: float, width: int) -> str:
        """Return the line for a terminal of that width, without using its last column.

        Pieces that do not fit are left out: the bar first, then bytes, rate and partitions.
        """
        room = max(width - 1, 1)
        pieces = self._pieces(now)
        for left_out in (None, "B", "rows/s", "partition"):
            if left_out is not None:
                pieces = [p for p in pieces if left_out not in p]
            if len(" · ".join(pieces)) <= room:
                break
        text = " · ".join(pieces)[:room]
        # The bar leaves room for the usual length of the text, so that its own length is stable.
        columns = min(room - max(len(text), _USUAL_TEXT) - 2, _MOST_BAR)
        return f"{_bar(self._share, columns)}  {text}" if columns >= _LEAST_BAR else text

    @property
    def _share(self) -> float:
        return min(self.written / self.rows, 1.0) if self.rows else 1.0

    def _pieces(self, now: float) -> list[str]:
        of = f"{self.finished}/{self.partitions} partition{'' if self.partitions == 1 else 's'}"
        pieces = [of, f"{int(self._share * 100)} %", human_bytes(int(self._share * self.size))]
        rate = self.rate(now)
        if rate is None:
            return pieces
        left = left_text((self.rows - self.written) / rate)
        return [*pieces, f"{human_count(rate)} rows/s", left]


def _bar(share: float, columns: int) -> str:
    """Return a bar of this width, filled to a share."""
    eighths = int(share * columns * 8)
    whole, part = divmod(eighths, 8)
    return f"{'█' * whole}{_PARTIAL[part] if part else ''}".ljust(columns)


_DEFAULT_WIDTH: Final = 80
_LEAST_COLUMN: Final = 8
_GREEN, _YELLOW, _RED, _FAINT = "32", "33", "31", "2"
_COLOURS: Final = {
    **dict.fromkeys(("exported", "replaced", "equal", "verified", "COMPLETED"), _GREEN),
    **dict.fromkeys(("archived", "detached", "dropped", "attached", "moved", "fetched"), _GREEN),
    **dict.fromkeys(("updated", "deleted", "cleared", "optimized", "ARCHIVED"), _GREEN),
    **dict.fromkeys(("refused", "kept", "in progress elsewhere", "not comparable"), _YELLOW),
    **dict.fromkeys(("IN_PROGRESS", "INTERRUPTED"), _YELLOW),
    **dict.fromkeys(("stopped", "stopped before it began", "stopped when"), _YELLOW),
    **dict.fromkeys(("failed", "killed", "differs", "not known", "not verified"), _RED),
    **dict.fromkeys(("FAILED", "KILLED"), _RED),
    **dict.fromkeys(("unchanged", "already exported", "empty", "not exported"), _FAINT),
}
_OF_PARTITION: Final = re.compile(r"(partition \S+: )([a-z]+(?: [a-z]+)*)")


def terminal_width(stream: TextIO) -> int:
    """Return the width of a stream's terminal: COLUMNS, its own width, or 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def fitting(widths: Sequence[int], fixed: Sequence[bool], room: int) -> list[int]:
    """Return column widths, with gaps of two, so that a line fits; the widest shrink first.

    Args:
        widths: the preferred widths.
        fixed: which columns keep their width.
        room: the width of the terminal.
    """
    found = [*widths]
    while sum(found) + 2 * (len(found) - 1) > room:
        width, at = max(
            (0 if keeps else w, i) for i, (w, keeps) in enumerate(zip(found, fixed, strict=True))
        )
        if width <= _LEAST_COLUMN:
            break
        found[at] -= 1
    return found


def shortened(text: str, width: int) -> str:
    """Return a text of at most this width; a longer one loses its beginning."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def has_colours(stream: TextIO) -> bool:
    """Whether to use colours: on a terminal or with FORCE_COLOR, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def in_colour(text: str, word: str) -> str:
    """Return a text in the colour of a word, or unchanged if the word has no colour."""
    code = _COLOURS.get(word.strip())
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def coloured(line: str) -> str:
    """Return a line about a partition with its status word in colour."""
    found = _OF_PARTITION.match(line)
    if found is None:
        return line
    return f"{found[1]}{in_colour(found[2], found[2])}{line[found.end() :]}"


_LEAST_SECONDS_BETWEEN_LINES: Final = 0.2
_SECONDS_BETWEEN_NOTES: Final = 10.0
_LONG: Final = 1_000_000


class Output(Observer, Protocol):
    """The output of a command; also the observer of an export."""

    def begin_comparing(self, partitions: int, rows: int, size: int) -> None:
        """Start the progress line of rows that are compared; `size` is that of the lake's files."""
        ...

    def compared(self) -> None:
        """Count a partition that is compared, before its result is printed."""
        ...

    def table(
        self,
        columns: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        below: str | None = None,
    ) -> None:
        """Print records under these column names.

        With `below`, the name of a field to print below each line, lines fit the terminal.
        """
        ...

    def redraw(self) -> None:
        """Prepare to print the next table in place of the last one."""
        ...

    def screen(self) -> AbstractContextManager[bool]:
        """Return a context for tables on a separate screen; its value is whether there is one."""
        ...

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one record, field by field."""
        ...

    def page(self, fields: Iterable[tuple[str, str | tuple[str, ...]]]) -> None:
        """Print a page of fields: names with a text or with several lines."""
        ...

    def document(self, text: str) -> None:
        """Print a document of several lines unchanged."""
        ...

    def say(self, text: str) -> None:
        """Print a sentence that is a result."""
        ...

    def step(self, title: str) -> None:
        """Print the title of a step; only for people."""
        ...

    def detail(self, text: str) -> None:
        """Print one line of a step; only for people."""
        ...

    def error(self, message: str, next_command: str, *, code: int | None = None) -> None:
        """Print an error, and the next command unless it is ''."""
        ...

    def next(self, command: str) -> None:
        """Print the next command, after results that give the reason."""
        ...


class TextOutput:
    """Text for people: a progress line on a terminal, plain lines elsewhere."""

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        quiet: bool = False,
        undo: UndoOptions | None = None,
    ) -> None:
        """Create an output; the default streams are those of the process.

        Args:
            out: the stream for results.
            err: the stream for notes, progress and errors.
            quiet: print neither notes nor progress.
            undo: the options of printed undo commands; None for none.
        """
        self._undo = undo or UndoOptions()
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._quiet = quiet
        self._colours = has_colours(self._out)
        self._live = self._err.isatty()
        self._progress: ProgressLine | None = None
        self._drawn = 0

    def note(self, text: str) -> None:
        """Print a notice."""
        if self._quiet:
            return
        self._clear()
        print(f"· {text}", file=self._err, flush=True)

    def none_selected(self, text: str) -> None:
        """Print the notice as a result."""
        self.say(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Start the progress line."""
        self._progress = ProgressLine(partitions, rows, size, began=time.monotonic())
        self.note(
            f"writing {counted(partitions, 'partition')}, {counted(rows, 'row')} "
            f"({human_bytes(size)} in ClickHouse)"
        )
        self._draw()

    def begin_comparing(self, partitions: int, rows: int, size: int) -> None:
        """Start the progress line."""
        began = time.monotonic()
        self._progress = ProgressLine(partitions, rows, size, began=began, verb="")
        self._draw()

    def compared(self) -> None:
        """Clear the progress line for the result."""
        self._clear()
        if self._progress is not None:
            self._progress.finished += 1

    def rows(self, written: int) -> None:
        """Update the progress line; without a terminal, print a line at most every ten seconds."""
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
            if written >= progress.rows and progress.verb:
                seconds = now - progress.began
                rate = rate_text(written, seconds)
                self.note(
                    f"{counted(written, 'row')} {progress.verb} in {duration_text(seconds)}"
                    f"{f', {rate}' if rate else ''}"
                )
            elif self._live:
                self._draw()
            elif written < progress.rows:
                self.note(progress.text(now))

    def finished(self, outcome: Outcome) -> None:
        """Print one line: rows, files, bytes and snapshot id, or the reason of a failure."""
        self._clear()
        if self._progress is not None:
            self._progress.finished += 1
        word = outcome.verb or status_word(outcome.status)
        what = f"partition {outcome.partition_id}: {word}"
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
        elif outcome.message.startswith(f"{word} "):
            what = f"partition {outcome.partition_id}: {outcome.message}"
        elif outcome.message:
            what += f": {outcome.message.removeprefix(f'{word}: ')}"
        self.say(what)
        if outcome.change:
            print(f"  {outcome.change}", file=self._out, flush=True)
        if outcome.undo:
            print(f"  Undo: {undo_command(outcome.undo, self._undo)}", file=self._out, flush=True)

    def table(
        self,
        columns: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        below: str | None = None,
    ) -> None:
        """Print records in aligned columns, with numbers aligned right."""
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
        """Clear the screen of a terminal; otherwise print an empty line."""
        print("\x1b[H\x1b[2J" if self._out.isatty() else "", file=self._out)

    @contextlib.contextmanager
    def screen(self) -> Iterator[bool]:
        """Switch to the terminal's alternate screen and back; otherwise do nothing."""
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
        """Print each name with its text; print several lines indented below the name."""
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
        """Draw the progress line over the previous one, on a terminal."""
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
        """Create an output; the default streams are those of the process."""
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    def note(self, text: str) -> None:
        """Print nothing: programs read results."""

    def none_selected(self, text: str) -> None:
        """Print the notice as one object, so that the result is not empty."""
        self.say(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Print nothing."""

    def rows(self, written: int) -> None:
        """Print nothing."""

    def begin_comparing(self, partitions: int, rows: int, size: int) -> None:
        """Print nothing."""

    def compared(self) -> None:
        """Print nothing."""

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
        """Print nothing: steps are for people."""

    def detail(self, text: str) -> None:
        """Print nothing."""

    def error(self, message: str, next_command: str, *, code: int | None = None) -> None:
        """Print the error as one object on standard error; `code` is ClickHouse's."""
        record = {"error": message, "code": code, "next": next_command or None}
        print(json_text(record), file=self._err, flush=True)

    def next(self, command: str) -> None:
        """Print the next command as one object on standard error."""
        print(json_text({"next": command}), file=self._err, flush=True)

    def _print(self, value: object) -> None:
        print(json_text(value), file=self._out, flush=True)


def error_printer(output: Output) -> Callable[[TableFormatError], None]:
    """Return a function that prints an error which does not end the command."""
    return lambda error: output.error(error.message, "", code=error.code)


def _shown(value: object, name: str) -> str:
    """Return a value as text, with thousands separators in numbers that are not ids."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal) and not name.endswith("_id"):
        return f"{value:,}"
    # Before the layout, which counts characters and breaks lines.
    return plain(str(value))


def output_for(*, as_json: bool, quiet: bool = False) -> Output:
    """Return the output that the user asked for; a log on standard error has its notes."""
    context = click.get_current_context(silent=True)
    is_logged = context is not None and context.find_root().params.get("log") == "json"
    if as_json:
        return JsonOutput()
    return TextOutput(quiet=quiet or is_logged, undo=UndoOptions.of(context))
