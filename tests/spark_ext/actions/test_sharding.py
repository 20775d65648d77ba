"""A command on several shards: each has its turn, and the exit code is that of the worst."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from catalog.clickhouse.server.settings import Host
from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.actions.export import each_table
from spark_ext.cli.output import JsonOutput, error_printer
from tableformat.errors import (
    InternalError,
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
)
from tableformat.names import TableName

Did = int | TableFormatError

DOWN = SourceError("Cannot reach ClickHouse at https://h2:8443: Connection refused. Start it.")
MISSING = RefusedError("Cannot export db.t as the user 'x': a right is missing.", code=497)
NO_TABLE = NotFoundError("Cannot find the table db.t: there is none.", code=60)
NO_PARTITION = NotFoundError("Cannot export partition 7 of db.t: it has no active parts.")


class Run:
    """A command that does the given act on each shard."""

    def __init__(self, *does: Did) -> None:
        self.does, self.turns = does, 0
        self.notes: list[str] = []

    def code(self, report: Callable[[TableFormatError], None] | None = None) -> int:
        tables = tuple(
            LocalTable(
                SourcePlace("https://h1", hosts=(Host("https", f"h{number}", 8443),)),
                TableName("db", "t"),
                number,
            )
            for number, _ in enumerate(self.does, 1)
        )
        return each_table(tables, self._one, self.notes.append, report, doing="export from")

    def _one(self, table: LocalTable) -> int:
        self.turns += 1
        assert table.shard is not None
        done = self.does[table.shard - 1]
        if isinstance(done, TableFormatError):
            raise done
        return done


@pytest.mark.parametrize(
    ("does", "code"),
    [((0, 0), 0), ((0, 3), 3), ((3, 4), 4), ((4, 1), 1), ((0, NO_PARTITION), 0)],
)
def test_the_exit_code_is_that_of_the_worst_shard(does: tuple[Did, ...], code: int) -> None:
    """A partition that only some shards have is exported from those."""
    run = Run(*does)

    assert run.code() == code
    assert run.turns == len(does)
    assert run.notes[0] == "shard 1: db.t at h1:8443"


@pytest.mark.parametrize(
    ("does", "kind", "message", "code"),
    [
        (
            (DOWN, 0, 0),
            SourceError,
            "Cannot export from 1 of 3 shards: shard 1: Cannot reach",
            None,
        ),
        ((0, MISSING), RefusedError, "Cannot export from 1 of 2 shards: shard 2: Cannot", 497),
        ((MISSING, MISSING), RefusedError, "Cannot export from 2 of 2 shards", 497),
        ((MISSING, DOWN), SourceError, "shard 1: .* shard 2: Cannot reach", None),
        ((0, NO_TABLE), RefusedError, "shard 2: Cannot find the table db.t", 60),
        ((NO_PARTITION, NO_PARTITION), NotFoundError, "Cannot export partition 7 of db.t", None),
    ],
)
def test_an_unusable_shard_is_reported_after_all_shards_were_tried(
    does: tuple[Did, ...], kind: type[TableFormatError], message: str, code: int | None
) -> None:
    run = Run(*does)

    with pytest.raises(kind, match=message) as raised:
        run.code()

    assert type(raised.value) is kind
    assert raised.value.code == code
    assert run.turns == len(does)


def test_a_difference_in_the_lake_counts_more_than_a_shard_that_is_down() -> None:
    run = Run(1, DOWN)

    assert run.code() == 1
    assert run.notes[-1].startswith("Cannot export from 1 of 2 shards: shard 2: Cannot reach")


def test_an_error_that_does_not_end_the_command_is_reported_as_an_error() -> None:
    """Harm prevented: programs, and users of --quiet, see a difference and not the shard down."""
    run, errors = Run(1, DOWN), list[TableFormatError]()

    assert run.code(errors.append) == 1
    assert [type(one) for one in errors] == [SourceError]
    assert "shard 2: Cannot reach" in errors[0].message
    assert len(run.notes) == 2
    err = io.StringIO()
    assert Run(1, DOWN).code(error_printer(JsonOutput(io.StringIO(), err))) == 1
    assert json.loads(err.getvalue())["error"] == errors[0].message


def test_what_is_wrong_with_us_ends_the_command_at_once() -> None:
    run = Run(InternalError("this is a bug"), 0)

    with pytest.raises(InternalError, match="bug"):
        run.code()
    assert run.turns == 1
