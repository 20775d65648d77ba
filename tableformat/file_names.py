"""The names of data files: `<key>-<transaction>-<slice>-<attempt>.parquet` (docs/spec/files.md).

In a tree of Hive directories the transaction comes first (N-18; docs/spec/hive.md). And of the mark
at which the tasks of a job begin no further file.

A name carries the key and the transaction, so that the files of an export are told from main
itself, also when ledger and receipts are gone; it is unique for each attempt, so that no attempt
can overwrite another one's file.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "RECEIPTS",
    "data_below",
    "data_file_name",
    "exported_by",
    "is_of_key",
    "is_of_transaction",
    "is_stop_mark",
    "key_in",
    "stop_mark",
    "view_begun",
    "views_directory",
]

RECEIPTS: Final = "metadata/mergeberg"
"""Where receipts and kept digests are stored, below the table's location."""
_EXPORTED: Final = re.compile(
    r"\.?(?:(?P<key>[a-z2-7]{26})-(?P<transaction>\d+)|(?P<first>\d+)-(?P<second>[a-z2-7]{26}))"
    r"-\d+-[^./]+\.parquet(\.[a-z0-9.]*inprogress)?"
)

_STOP_MARK: Final = re.compile(r"stop-[^/]+/\.?now[^/]*")
_VIEW: Final = re.compile(r"views/(?P<milliseconds>\d+)-[^/]+/[^/]+")


def data_below(location: str, tree: str) -> str:
    """Return where the data files of a table at a location are, or those of a tree, '' for none."""
    return tree or f"{location.rstrip('/')}/data"


def stop_mark(receipts: str, job: str) -> str:
    """Return where the mark of a job is once it is told to stop, below the receipts' location."""
    return f"{receipts.rstrip('/')}/stop-{job}/now"


def is_stop_mark(location: str, receipts: str) -> bool:
    """Whether something below the receipts' location is the mark of a job, begun or finished."""
    return _STOP_MARK.fullmatch(location.removeprefix(f"{receipts.rstrip('/')}/")) is not None


def views_directory(location: str, milliseconds: int, unique: str) -> str:
    """Return where rows of a view, or of files, are while a statement works on them.

    Args:
        location: of the lake table.
        milliseconds: when it began.
        unique: tells it from others of that moment.
    """
    return f"{location.rstrip('/')}/{RECEIPTS}/views/{milliseconds}-{unique}"


def view_begun(location: str, receipts: str) -> int | None:
    """Return when the statement began whose view's rows are in a file, None for other files."""
    found = _VIEW.fullmatch(location.removeprefix(f"{receipts.rstrip('/')}/"))
    return None if found is None else int(found["milliseconds"])


def data_file_name(
    key: str,
    transaction_id: str,
    slice_number: int,
    attempt: str,
    *,
    transaction_first: bool = False,
) -> str:
    """Return the name of a data file; `key` is a hash, `attempt` unique for each attempt."""
    first, second = (transaction_id, key) if transaction_first else (key, transaction_id)
    return f"{first}-{second}-{slice_number}-{attempt}.parquet"


def is_of_key(path: str, key: str) -> bool:
    """Whether a file was written by an export of a key hash."""
    first, _, rest = path.rsplit("/", 1)[-1].partition("-")
    return first == key or (first.isdecimal() and rest.startswith(f"{key}-"))


def is_of_transaction(path: str, key: str, transaction_id: str) -> bool:
    """Whether a file was written by one export of a key hash."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith((f"{key}-{transaction_id}-", f"{transaction_id}-{key}-"))


def exported_by(path: str) -> tuple[str, str] | None:
    """Return key hash and transaction of a data file, begun or finished; None for other names."""
    found = _EXPORTED.fullmatch(path.rsplit("/", 1)[-1])
    if found is None:
        return None
    return found["key"] or found["second"], found["transaction"] or found["first"]


def key_in(path: str) -> str:
    """Return the key hash in the name of a data file of an export, '' when others named it."""
    found = exported_by(path)
    return found[0] if found is not None else ""
