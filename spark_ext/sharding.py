"""Runs a command for every table that a name stands for: one, or one of each shard.

Each shard is a source of its own. One that cannot be used costs its own partitions and no others,
and the command fails with what it said, after all have had their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog.shards import LocalTable
from tableformat.errors import NotFoundError, RefusedError, SourceError, TableFormatError
from tableformat.export.exit_codes import WORSE_THAN_FAILED, worst

__all__ = ["each_table"]


def each_table(
    tables: Sequence[LocalTable],
    run_one: Callable[[LocalTable], int],
    note: Callable[[str], None],
    *,
    doing: str = "read from",
) -> int:
    """Run something for every table that a name stands for; return the exit code of all.

    A partition that was named may lie on some shards only; it is an error when none has it.

    Args:
        tables: one, or one of each shard.
        run_one: runs it for one of them, and returns its exit code.
        note: says which shard it is.
        doing: what the command does with shards, behind 'Cannot'.

    Raises:
        SourceError: shards could not be read; the others had their turn.
        RefusedError: shards refused it; the others had their turn.
        TableFormatError: what `run_one` raises for a table without shards, or beside these two.
    """
    codes: set[int] = set()
    failed: list[tuple[LocalTable, TableFormatError]] = []
    lacking: list[NotFoundError] = []
    for one in tables:
        if one.shard is None:
            codes.add(run_one(one))
            continue
        note(f"shard {one.shard}: {one.table} at {', '.join(h.place for h in one.place.hosts)}")
        try:
            codes.add(run_one(one))
        except (SourceError, RefusedError) as error:
            # A table, a database or a cluster that is not found has ClickHouse's code.
            if isinstance(error, NotFoundError) and error.code is None:
                note(f"shard {one.shard}: {error.message}")
                lacking.append(error)
            else:
                failed.append((one, error))
    if lacking and len(lacking) == len(tables):
        raise lacking[0]
    code = worst(codes)
    if not failed:
        return code
    together = _joined(failed, len(tables), doing)
    if code in WORSE_THAN_FAILED:
        note(together.message)
        return code
    raise together


def _joined(
    failed: Sequence[tuple[LocalTable, TableFormatError]], number: int, doing: str
) -> TableFormatError:
    """Return one error for all shards that failed; one that could not be read counts more."""
    said = " ".join(f"shard {one.shard}: {error.message}" for one, error in failed)
    message = f"Cannot {doing} {len(failed)} of {number} shards: {said}"
    codes = {error.code for _, error in failed}
    code = codes.pop() if len(codes) == 1 else None
    if any(isinstance(error, SourceError) for _, error in failed):
        return SourceError(message, code=code)
    return RefusedError(message, code=code)
