"""What an Iceberg catalog fails with, as errors of ours: what was tried, why, and what to do."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError as InvalidMetadata

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import DestinationError, TableFormatError, UnsupportedError
from tableformat.names import LakeName

__all__ = ["first_line", "unreachable", "unreadable", "what_failed"]

_MOST_REASONS: Final = 3


def unreadable(name: LakeName, error: Exception) -> UnsupportedError:
    """Return the refusal of a table whose metadata cannot be read, with the reasons in it.

    Catalogs that answer over HTTP raise the parser's own error, the others wrap it.
    """
    cause = error if isinstance(error, InvalidMetadata) else error.__cause__
    said = cause.errors() if isinstance(cause, InvalidMetadata) else []
    reasons = dict.fromkeys(str(one["msg"]).removeprefix("Value error, ") for one in said)
    why = "; ".join([*reasons][:_MOST_REASONS]) or str(error)
    return UnsupportedError(
        f"Cannot use {name} as a destination: its metadata holds what only newer versions of "
        f"Iceberg have, or is damaged ({why}). Export into a new table: a name that nothing has "
        "is created.",
        code=NOT_IMPLEMENTED,
    )


def first_line(error: Exception) -> str:
    """Return the first line: what databases add is the statement, with its values."""
    return next(iter(str(error).splitlines()), "")


def what_failed(error: Exception) -> str:
    """Return what a request failed with, in one line without a full stop.

    An error of ours says all of it, as the one of a storage below a catalog.
    """
    if isinstance(error, TableFormatError):
        return error.message.rstrip(".")
    return f"{type(error).__name__}: {first_line(error)}"


def unreachable(catalog: str, what: str, error: Exception) -> TableFormatError:
    """Return the error of a catalog, or of its storage, that failed while `what` was tried."""
    if isinstance(error, TableFormatError):
        # Our own storage below the catalog has said it.
        return type(error)(error.message, code=error.code)
    said = first_line(error).rstrip(". ")
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("psycopg"):
        return DestinationError(
            f"Cannot {what}: the URI of the catalog {catalog!r} asks for the driver {error.name}, "
            "which is not installed. Run: pip install 'mergeberg[postgres]', and let the URI begin "
            "with postgresql+psycopg2://."
        )
    return DestinationError(
        f"Cannot {what}: the catalog {catalog!r} or its storage failed with "
        f"{type(error).__name__}: {said}. Check its configuration, rights and network; running the "
        "command again is safe."
    )
