"""What a statement says when not everything that it asked for is exported: one error about all.

It says which partitions are not in the lake, why, and which are: whoever reads it must not have to
look the rest up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_ext.sql.asked import SessionExport
from tableformat.errors import (
    DestinationError,
    InternalError,
    LedgerError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tableformat.export.outcome import Outcome, Status
from tableformat.quantities import counted

__all__ = ["Ended", "check_all_exported", "joined"]

_SHOWN: Final = 3
# The first that fits: an error of several is of the kind that the first of them is.
_KINDS: Final[tuple[type[TableFormatError], ...]] = (
    InternalError,
    StoppedError,
    NotFoundError,
    UnsupportedError,
    RefusedError,
    UsageError,
    SourceError,
    DestinationError,
    LedgerError,
)
_OF_STATUS: Final = {
    Status.REFUSED: RefusedError,
    Status.IN_PROGRESS: RefusedError,
    Status.KILLED: StoppedError,
    Status.STOPPED: StoppedError,
    Status.FAILED: SourceError,
}
_IN_LAKE: Final = frozenset(
    (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.ALREADY_EXPORTED)
)


@dataclass(frozen=True, slots=True)
class Ended:
    """One export that a statement asked for, and what became of it.

    `errors` ended it, or befell shards of it. With `is_stopped` it was told to stop: what has no
    outcome was not begun.
    """

    asked: SessionExport
    outcomes: tuple[Outcome, ...]
    errors: tuple[TableFormatError, ...]
    is_stopped: bool = False

    @property
    def wrong(self) -> tuple[Outcome, ...]:
        """Outcomes of partitions that are not in the lake as they are in the source."""
        return tuple(one for one in self.outcomes if one.status.exit_code)

    @property
    def is_good(self) -> bool:
        """Whether everything of it is exported."""
        return not (self.wrong or self.errors or self.is_stopped)


def check_all_exported(ended: Sequence[Ended]) -> None:
    """Check that everything that a statement asked for is in the lake now.

    Raises:
        TableFormatError: some is not; the message says what, why, and what is there.
    """
    bad = tuple(one for one in ended if not one.is_good)
    if not bad:
        return
    errors = [error for one in bad for error in one.errors]
    wrong = [outcome for one in bad for outcome in one.wrong]
    if len(errors) == 1 and not any(one.outcomes or one.is_stopped for one in ended):
        raise errors[0]
    message = (
        f"Cannot export everything: {' '.join(_said(one) for one in bad)}{_in_lake(ended)} The "
        "same statement again is safe: it goes on with what is left."
    )
    kind, code = _kind_and_code(errors, wrong, is_stopped=any(one.is_stopped for one in bad))
    raise kind(message, code=code) from (errors[0] if errors else None)


def joined(errors: Sequence[TableFormatError], more: str) -> TableFormatError:
    """Return several errors, at least one, as one, and a sentence behind it ('' for none)."""
    if len(errors) == 1 and not more:
        return errors[0]
    kind, code = _kind_and_code(errors, (), is_stopped=False)
    said = " ".join(error.message for error in errors)
    return kind(f"{said} {more}".strip(), code=code)


def _said(one: Ended) -> str:
    """Return what is not exported of one export, and why."""
    request = one.asked.request
    parts = [
        f"partition {each.partition_id} of {request.table}: {each.status.value}: "
        f"{each.message.rstrip('. ') or 'no reason was given'}."
        for each in one.wrong[:_SHOWN]
    ]
    if len(one.wrong) > _SHOWN:
        parts.append(
            f"So are {len(one.wrong) - _SHOWN} more of {counted(len(one.outcomes), 'partition')}."
        )
    parts.extend(error.message for error in one.errors)
    if not parts:
        parts.append(f"the export of {request.table} to {request.to} was not begun.")
    return " ".join(parts)


def _in_lake(ended: Iterable[Ended]) -> str:
    """Return which partitions are in the lake, as a sentence; it begins with a space."""
    there = [
        f"{o.partition_id} of {one.asked.request.table}"
        for one in ended
        for o in one.outcomes
        if o.status in _IN_LAKE
    ]
    if not there:
        return " Nothing of it is in the lake."
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f" In the lake: {', '.join(there[:_SHOWN])}{more}."


def _kind_and_code(
    errors: Sequence[TableFormatError], wrong: Sequence[Outcome], *, is_stopped: bool
) -> tuple[type[TableFormatError], int | None]:
    """Return the class and ClickHouse's code for all; a bug counts most, then who stopped it."""
    kinds = [next(k for k in (*_KINDS, TableFormatError) if isinstance(e, k)) for e in errors]
    if InternalError in kinds:
        return InternalError, None
    if is_stopped:
        return StoppedError, None
    if errors:
        return kinds[0], errors[0].code
    # Where one can be tried again as it is, this says more than that another was refused.
    worst = max(wrong, key=lambda one: one.status is not Status.REFUSED)
    return _OF_STATUS.get(worst.status, DestinationError), worst.code
