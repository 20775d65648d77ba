"""Defines the error tree. A message reads "Cannot <do>: <why, with the value>. <What to do.>".

    TableFormatError
      UsageError(ValueError)     the request is malformed
        RefusedError             the request would be wrong or unsafe; nothing was changed
          UnsupportedError       a type, key, operation or destination that has no mapping
          NotFoundError          a table, partition, part, column or catalog does not exist
      SourceError                ClickHouse cannot be read, or its response cannot be trusted
        SourceGoneError          its host cannot be reached: another replica may continue
      DestinationError           the lake table, its catalog or its storage cannot be used
        MissingError             the storage reported that a file or object does not exist
        LastingError             a retry in the same run cannot succeed
          DeniedError            the storage does not allow the request
        EndedCredentialsError    the credentials have expired: loading the table may renew them
      LedgerError                the ledger cannot be read or written
      StoppedError               the process was stopped from outside; finished work is kept
        KilledError              KILL QUERY ended the whole statement: nothing else of it begins
        NotBegunError            before it started the file that this is about
      InternalError              an invariant does not hold: a bug, please report

Outcomes that are expected (a commit that conflicted, a partition already exported) are values, not
errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from tableformat.messages import plain

__all__ = [
    "Action",
    "Advice",
    "DeniedError",
    "DestinationError",
    "EndedCredentialsError",
    "InternalError",
    "KilledError",
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
    "Unable",
    "UnsupportedError",
    "UsageError",
    "during",
    "reason_first",
    "reason_of",
    "refuse_all",
]

_MESSAGE: Final = re.compile(
    r"Cannot (?P<what>[^\n]+?): (?P<why>[^\n]+?)(?P<more>\. [A-Z][\s\S]*|\.?)"
)


class Advice(StrEnum):
    """The advice of a message as a value; no program decides by the text of a message."""

    EVOLVE_SCHEMA = "EVOLVE_SCHEMA"
    """Export with the option that adds missing columns to the lake table."""
    LIST_PARTITIONS = "LIST_PARTITIONS"
    """List the partitions of the source."""


class Action(StrEnum):
    """What a command does with a partition: the verb of messages about what it shares with export.

    The code that lists, snapshots and reads a source does not know for which of them it runs.
    """

    EXPORT = "export"
    VERIFY = "verify"
    ARCHIVE = "archive"
    FETCH = "fetch"
    ATTACH = "attach"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Unable:
    """A message without its verb: what it is about, and each reason with what to do."""

    subject: str
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, subject: str, why: str) -> Self:
        """Return a message with one reason: why, and what to do."""
        return cls(subject, (why,))

    def each(self, action: Action) -> tuple[str, ...]:
        """Return a message for each reason."""
        return tuple(f"Cannot {action} {self.subject}: {_sentence(one)}" for one in self.reasons)

    def text(self, action: Action) -> str:
        """Return the message of a command."""
        if len(self.reasons) == 1:
            return self.each(action)[0]
        return _listed(f"{action} {self.subject}", self.reasons)


class TableFormatError(Exception):
    """The base of all errors that mergeberg raises itself.

    `code` is ClickHouse's code for the same situation (`clickhouse_codes.py`), None for none.
    `advice` is the advice of the message. `message` can name options as values; the text of the
    error has the names of the command line (`tableformat/messages.py`).
    """

    def __init__(
        self,
        message: str | Unable,
        *,
        code: int | None = None,
        advice: frozenset[Advice] = frozenset(),
        reasons: tuple[str, ...] = (),
    ) -> None:
        """Store the message and its values.

        Args:
            message: what cannot be done, why, and what to do. One without a verb is that of an
                export until `during` says another command.
            code: ClickHouse's error code.
            advice: the advice of the message.
            reasons: a message for each reason, if there are several.
        """
        text = message if isinstance(message, str) else message.text(Action.EXPORT)
        super().__init__(text)
        self.message = text
        self.code = code
        self.advice = advice
        self._reasons = reasons
        self._unable = None if isinstance(message, str) else message
        self.during(Action.EXPORT)

    def __str__(self) -> str:
        """Return the message with the names of the command line."""
        return plain(self.message)

    def __repr__(self) -> str:
        """Return the class and the text; the marks of the values would be escaped."""
        return f"{type(self).__name__}({str(self)!r})"

    def __format__(self, format_spec: str) -> str:
        """Return the message as it is, so that a message about the error keeps its values."""
        return format(self.message, format_spec)

    def during(self, action: Action) -> Self:
        """Give the message the verb of a command, unless it has one of its own; return it."""
        if self._unable is not None:
            self.message = self._unable.text(action)
            self.args = (self.message,)
            self._reasons = self._unable.each(action)
        return self

    @property
    def reasons(self) -> tuple[str, ...]:
        """A message for each reason; the message itself if it has one reason."""
        return self._reasons or (self.message,)

    def reword(self, words: Callable[[str], str]) -> Self:
        """Replace the message and its reasons by the wording of an interface; return the error."""
        self.message = words(self.message)
        self.args = (self.message,)
        self._reasons = tuple(words(one) for one in self._reasons)
        return self


class UsageError(TableFormatError, ValueError):
    """The request is malformed: a name, an expression or an option cannot be parsed."""


class RefusedError(UsageError):
    """The request is well formed, but would be wrong or unsafe. Nothing was changed."""


class UnsupportedError(RefusedError):
    """A type, key, operation or destination has no mapping; the message names an alternative."""


class NotFoundError(RefusedError):
    """A named table, partition, part, column or catalog does not exist.

    `similar` is an existing name that is similar to `named`; both are '' if there is none.
    """

    def __init__(
        self,
        message: str | Unable,
        *,
        code: int | None = None,
        advice: frozenset[Advice] = frozenset(),
        named: str = "",
        similar: str = "",
    ) -> None:
        """Store the message and its values, and the similar name."""
        super().__init__(message, code=code, advice=advice)
        self.named = named
        self.similar = similar


class SourceError(TableFormatError):
    """ClickHouse cannot be read, or its response cannot be trusted.

    `why` is the reason alone, for use in another message: without the failed action and without the
    advice to retry.
    """

    def __init__(
        self,
        message: str | Unable,
        *,
        code: int | None = None,
        advice: frozenset[Advice] = frozenset(),
        reasons: tuple[str, ...] = (),
        why: str = "",
    ) -> None:
        """Store the message and its values, and the reason if it is not the message."""
        super().__init__(message, code=code, advice=advice, reasons=reasons)
        self._why = why

    @property
    def why(self) -> str:
        """The reason alone; the message if there is no other text."""
        return self._why or self.message.rstrip(".")


class SourceGoneError(SourceError):
    """The host accepts no connection, does not respond in time, or shuts down.

    The table and its rows are not affected: another replica has the same rows.
    """


class DestinationError(TableFormatError):
    """The lake table, its catalog or its storage cannot be used."""


class MissingError(DestinationError):
    """The storage reported that a file or object does not exist; never an outage or a refusal."""


class LastingError(DestinationError):
    """A retry in the same run cannot succeed.

    The request was refused for a missing permission, key or bucket, or the run has already waited
    as long as the user allows.
    """


class DeniedError(LastingError):
    """The storage does not allow the request: a right is missing, or it has no such operation.

    Amazon's S3 gives this response for a missing object, too, to an account that may not list
    objects.
    """


class EndedCredentialsError(DestinationError):
    """The credentials have expired. A catalog that vends credentials vends new ones on a load."""


class LedgerError(TableFormatError):
    """The ledger cannot be read or written, or is not the ledger of this table."""


class StoppedError(TableFormatError):
    """The process was stopped from outside; the same command resumes the work."""


class KilledError(StoppedError):
    """KILL QUERY ended the whole statement: it begins no other export (RQ…QueryCancellation)."""


class NotBegunError(StoppedError):
    """The process was stopped from outside before it started a file."""


class InternalError(TableFormatError):
    """An invariant does not hold. This is a bug: please report it with the message."""


@contextlib.contextmanager
def during(action: Action) -> Iterator[None]:
    """Give every error that leaves the context the verb of a command."""
    try:
        yield
    except TableFormatError as error:
        error.during(action)
        raise


def refuse_all(
    what: str,
    reasons: tuple[str, ...],
    *,
    code: int | None = None,
    advice: frozenset[Advice] = frozenset(),
) -> RefusedError:
    """Return one refusal with all reasons, so that a user can fix all of them before the next run.

    Args:
        what: the refused action without the leading "Cannot", e.g. "export db.t".
        reasons: one sentence each; at least one.
        code: ClickHouse's error code, if the reasons share one.
        advice: the advice of the reasons.

    Raises:
        InternalError: there is no reason.
    """
    if not reasons:
        message = (
            f"refuse_all({what!r}) was called without a reason; this is a bug, please report it."
        )
        raise InternalError(message)
    each = tuple(f"Cannot {what}: {_sentence(reason)}" for reason in reasons)
    if len(each) == 1:
        return RefusedError(each[0], code=code, advice=advice)
    return RefusedError(_listed(what, reasons), code=code, advice=advice, reasons=each)


def _listed(what: str, reasons: tuple[str, ...]) -> str:
    lines = "\n".join(f"  - {_sentence(reason)}" for reason in reasons)
    return f"Cannot {what}: {len(reasons)} reasons.\n{lines}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!", ";")) else f"{text}."


def reason_of(message: str) -> str:
    """Return the reason and the action of a message, without its advice."""
    found = _MESSAGE.fullmatch(message)
    return message if found is None else f"{found['why']}: cannot {found['what']}"


def reason_first(message: str) -> str:
    """Return a message with its reason first; nothing is left out."""
    found = _MESSAGE.fullmatch(message)
    return message if found is None else f"{reason_of(message)}{found['more']}"
