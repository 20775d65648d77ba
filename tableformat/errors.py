"""The error tree. Every message reads "Cannot <do>: <why, with the value>. <What to do.>".

    TableFormatError
      UsageError(ValueError)     the caller asked for something that cannot be said like this
        RefusedError             it can be said, but would be wrong or unsafe here; nothing changed
          UnsupportedError       a type, key, operation or destination that is not mapped
          NotFoundError          table, partition, part, column, catalog
      SourceError                ClickHouse could not be read, or what it gave cannot be trusted
        SourceGoneError          its host is gone: another replica may go on
      DestinationError           the lake table, its catalog or its storage could not be used
        MissingError             its storage answered that there is no such file or object
        LastingError             and nothing that this run does will mend it
        EndedCredentialsError    its credentials have ended: loading the table may bring new ones
      LedgerError                the record could not be read or moved
      StoppedError               told to stop from outside; what is left was not begun, or is kept
        NotBegunError            before it began what this is about
      InternalError              an invariant broke: a bug, please report

Outcomes that are expected (a commit that conflicted, a partition already exported) are values, not
errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Self

__all__ = [
    "Advice",
    "DestinationError",
    "EndedCredentialsError",
    "InternalError",
    "LastingError",
    "LedgerError",
    "MissingError",
    "NotBegunError",
    "NotFoundError",
    "RefusedError",
    "SourceError",
    "SourceGoneError",
    "StoppedError",
    "TableFormatError",
    "UnsupportedError",
    "UsageError",
    "reason_first",
    "reason_of",
    "refuse_all",
]

_MESSAGE: Final = re.compile(
    r"Cannot (?P<what>[^\n]+?): (?P<why>[^\n]+?)(?P<more>\. [A-Z][\s\S]*|\.?)"
)


class Advice(StrEnum):
    """What a message advises, for programs: nothing is decided on the message itself."""

    EVOLVE_SCHEMA = "EVOLVE_SCHEMA"
    """Export with the option that adds what the lake table lacks."""
    LIST_PARTITIONS = "LIST_PARTITIONS"
    """Look at the partitions that the source has."""


class TableFormatError(Exception):
    """The base of every error that mergeberg raises on purpose.

    `code` is ClickHouse's number for the same situation (`clickhouse_codes.py`), where it has one;
    `advice` is what the message advises.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        advice: frozenset[Advice] = frozenset(),
        reasons: tuple[str, ...] = (),
    ) -> None:
        """Keep the message, its advice, its reasons and ClickHouse's error code, where it has one.

        Args:
            message: what cannot be done, why, and what to do.
            code: ClickHouse's error code.
            advice: what the message advises.
            reasons: a message for each reason, where there are several.
        """
        super().__init__(message)
        self.message = message
        self.code = code
        self.advice = advice
        self._reasons = reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """A message for each reason: the message itself, where it does not list several."""
        return self._reasons or (self.message,)

    def reword(self, words: Callable[[str], str]) -> Self:
        """Put the message and its reasons into other words, as an interface has them; return it."""
        self.message = words(self.message)
        self.args = (self.message,)
        self._reasons = tuple(words(one) for one in self._reasons)
        return self


class UsageError(TableFormatError, ValueError):
    """The request is malformed: a name, an expression or an option cannot be read."""


class RefusedError(UsageError):
    """The request is understood and would be wrong or unsafe here. Nothing was changed."""


class UnsupportedError(RefusedError):
    """A type, key, operation or destination has no mapping; the message says the way round."""


class NotFoundError(RefusedError):
    """What was named does not exist: a table, partition, part, column or catalog.

    `named` was probably meant to be `similar`; both are '' where nothing else is like it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        advice: frozenset[Advice] = frozenset(),
        named: str = "",
        similar: str = "",
    ) -> None:
        """Keep the message, its advice and code, and the one name that was probably meant."""
        super().__init__(message, code=code, advice=advice)
        self.named = named
        self.similar = similar


class SourceError(TableFormatError):
    """ClickHouse could not be read, or what it answered cannot be trusted.

    `why` is the reason as another message can have it: neither what could not be done stands in it,
    nor that it is to be tried again.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        advice: frozenset[Advice] = frozenset(),
        reasons: tuple[str, ...] = (),
        why: str = "",
    ) -> None:
        """Keep the message, its advice, its reasons and its code; `why` is '' for the message."""
        super().__init__(message, code=code, advice=advice, reasons=reasons)
        self.why = why or message.rstrip(".")


class SourceGoneError(SourceError):
    """The host that was asked takes no connection, gives no answer in time, or shuts down.

    It says nothing of the table or of its rows: another replica has the same.
    """


class DestinationError(TableFormatError):
    """The lake table, its catalog or its storage could not be used."""


class MissingError(DestinationError):
    """There is no such file or object; the storage said so. No outage and no refusal is one."""


class LastingError(DestinationError):
    """Trying it again in the same run is in vain.

    It was refused for good, for a right, a key or a bucket that is not there; or it was waited for
    as long as the user allows.
    """


class EndedCredentialsError(DestinationError):
    """The credentials have ended. A catalog that lends them lends new ones with its table."""


class LedgerError(TableFormatError):
    """The ledger could not be read or moved, or is not the ledger of this table."""


class StoppedError(TableFormatError):
    """The process was told to stop, and did; running the same command again goes on."""


class NotBegunError(StoppedError):
    """The process was told to stop before it began a file."""


class InternalError(TableFormatError):
    """An invariant broke. This is a bug: please report it with the message."""


def refuse_all(
    what: str,
    reasons: tuple[str, ...],
    *,
    code: int | None = None,
    advice: frozenset[Advice] = frozenset(),
) -> RefusedError:
    """Return one refusal that lists every reason, so that nobody fixes them one run at a time.

    Args:
        what: what cannot be done, without the leading "Cannot", e.g. "export db.t".
        reasons: one sentence each; at least one.
        code: ClickHouse's error code, when the reasons share one.
        advice: what the reasons advise.
    """
    if not reasons:
        message = (
            f"refuse_all({what!r}) was called without a reason; this is a bug, please report it."
        )
        raise InternalError(message)
    each = tuple(f"Cannot {what}: {_sentence(reason)}" for reason in reasons)
    if len(each) == 1:
        return RefusedError(each[0], code=code, advice=advice)
    lines = "\n".join(f"  - {_sentence(reason)}" for reason in reasons)
    message = f"Cannot {what}: {len(reasons)} reasons.\n{lines}"
    return RefusedError(message, code=code, advice=advice, reasons=each)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def reason_of(message: str) -> str:
    """Return why something could not be done, and what that was; without what to do."""
    found = _MESSAGE.fullmatch(message)
    return message if found is None else f"{found['why']}: cannot {found['what']}"


def reason_first(message: str) -> str:
    """Return a message that begins with why something could not be done; nothing is left out."""
    found = _MESSAGE.fullmatch(message)
    return message if found is None else f"{reason_of(message)}{found['more']}"
