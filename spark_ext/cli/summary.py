"""Prints the results of many partitions, and a summary.

Text output shows successful partitions at once, then those that are wrong, then the summary. JSON
output has every partition at once, and the summary as the last object.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self

from spark_ext.cli.output import Output, output_for, status_word
from tableformat.errors import UsageError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import ObserverAround
from tableformat.quantities import counted, duration_text, human_bytes

__all__ = ["Detail", "Effect", "Line", "SummarizedObserver", "Summary", "summary_of"]

_MOST_UNCHANGED: Final = 5
"""The maximum number of partitions without work that are printed one by one."""
_DONE: Final = frozenset((Status.COMMITTED, Status.REPLACED))


class Detail(Enum):
    """The level of detail of text output."""

    QUIET = auto()
    NORMAL = auto()
    VERBOSE = auto()


class Effect(Enum):
    """The kind of result of a partition, for the order of the output."""

    DONE = auto()
    NOTHING_TO_DO = auto()
    WRONG = auto()


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one partition: `status` for JSON, and `word` for text.

    The summary adds up `rows` and `size`. `show` prints the result.
    """

    partition_id: str
    status: str
    word: str
    effect: Effect
    show: Callable[[], None]
    rows: int = 0
    size: int = 0


@dataclass(slots=True)
class Summary:
    """The results of one command; a context that prints held lines and the summary at its end.

    Args:
        output: the output of the command.
        detail: the level of detail.
        of_all: whether the command is about all partitions; a named one has no summary.
        as_json: whether the output is JSON.
    """

    output: Output
    detail: Detail
    of_all: bool
    as_json: bool
    began: float = field(default_factory=time.monotonic)
    lines: list[Line] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Return the summary itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Print the held lines and the summary, also after an error."""
        if not self.of_all or not self.lines:
            return
        if not self.as_json:
            self._show_held()
        self._show_summary()

    @property
    def is_terse(self) -> bool:
        """Whether only results are printed, without intermediate lines."""
        return self.as_json or self.detail is Detail.QUIET

    def add(self, line: Line) -> None:
        """Print a line at once, or hold it until the end."""
        self.lines.append(line)
        if not self.of_all or self.as_json:
            line.show()
        elif self.detail is Detail.VERBOSE:
            if line.effect is not Effect.WRONG:
                line.show()
        elif line.effect is Effect.DONE and self.detail is Detail.NORMAL:
            line.show()

    def _show_held(self) -> None:
        if self.detail is Detail.NORMAL:
            idle = [one for one in self.lines if one.effect is Effect.NOTHING_TO_DO]
            for word in dict.fromkeys(one.word for one in idle):
                self._show_idle(word, [one for one in idle if one.word == word])
        for one in self.lines:
            if one.effect is Effect.WRONG:
                one.show()

    def _show_idle(self, word: str, lines: Sequence[Line]) -> None:
        if len(lines) <= _MOST_UNCHANGED:
            for one in lines:
                one.show()
            return
        first, last = lines[0].partition_id, lines[-1].partition_id
        self.output.say(
            f"{counted(len(lines), 'partition')} {word}: {first} … {last} (-v lists them)"
        )

    def _show_summary(self) -> None:
        rows, size = sum(one.rows for one in self.lines), sum(one.size for one in self.lines)
        seconds = time.monotonic() - self.began
        if self.as_json:
            statuses = [one.status for one in self.lines]
            figures = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
            summary = {"partitions": figures, "rows": rows, "bytes": size}
            self.output.record({"summary": {**summary, "seconds": round(seconds, 3)}})
            return
        words = [one.word for one in sorted(self.lines, key=lambda one: _ORDER[one.effect])]
        numbers = ", ".join(f"{words.count(word):,} {word}" for word in dict.fromkeys(words))
        totals = [counted(rows, "row")] if rows else []
        totals += [human_bytes(size)] if size else []
        self.output.say(" · ".join((numbers, *totals, duration_text(seconds))))


_ORDER: Final = {Effect.NOTHING_TO_DO: 0, Effect.DONE: 1, Effect.WRONG: 2}


@dataclass(frozen=True, slots=True)
class SummarizedObserver(ObserverAround):
    """An observer that adds outcomes to a summary, which prints them."""

    summary: Summary

    def finished(self, outcome: Outcome) -> None:
        """Add the outcome of one partition."""
        is_done = outcome.status in _DONE
        self.summary.add(
            Line(
                outcome.partition_id,
                outcome.status.value,
                status_word(outcome.status),
                Effect.WRONG if outcome.status.exit_code else _effect(is_done=is_done),
                lambda: self.observer.finished(outcome),
                outcome.rows if is_done else 0,
                outcome.bytes if is_done else 0,
            )
        )


def _effect(*, is_done: bool) -> Effect:
    return Effect.DONE if is_done else Effect.NOTHING_TO_DO


def summary_of(*, quiet: bool, verbose: bool, as_json: bool, of_all: bool) -> Summary:
    """Return the summary that the options ask for, with the output of the command.

    Raises:
        UsageError: they exclude each other.
    """
    if quiet and verbose:
        message = (
            "Cannot print both less and more: --quiet and --verbose are given. Leave one of them "
            "out."
        )
        raise UsageError(message)
    detail = Detail.QUIET if quiet else Detail.VERBOSE if verbose else Detail.NORMAL
    return Summary(output_for(as_json=as_json, quiet=quiet), detail, of_all, as_json)
