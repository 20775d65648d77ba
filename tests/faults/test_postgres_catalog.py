"""A catalog in a real PostgreSQL: what a network and a server do to a COMMIT, and exactly once.

The runs ask the server through a relay (tests/services/postgres_relay.py); `run` of
`tests/support/scenarios.py` checks every outcome that says "exported" against main as it is then,
and asks the server itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

from catalog.network import DEFAULT_TIME_OUTS, TimeOuts
from tableformat.effects import Step
from tableformat.errors import TableFormatError
from tableformat.ledger import State
from tests.services.postgres_relay import Exchange
from tests.support.postgres_lake import DONE, IMPATIENT, POINTER, Lake
from tests.support.scenarios import (
    ALL,
    FORCED,
    AtStep,
    Partitions,
    ledger_rows,
    run,
    statuses,
)

T = TypeVar("T")


def cut_before(_lake: Lake, _exchange: Exchange) -> bool:
    """Lose the connection before COMMIT reaches the server."""
    return False


def cut_after(_lake: Lake, exchange: Exchange) -> bool:
    """Lose the connection when COMMIT was performed, before its response arrives."""
    exchange.perform()
    return False


def silent_before(_lake: Lake, _exchange: Exchange) -> bool:
    """Lose COMMIT, and leave the client waiting."""
    return True


def silent_after(_lake: Lake, exchange: Exchange) -> bool:
    """Lose the response, and leave the client waiting."""
    exchange.perform()
    return True


def ended(lake: Lake, exchange: Exchange) -> bool:
    """End the server's process for the connection before it has COMMIT."""
    lake.server.end_connections(lake.account)
    exchange.hand_on()
    return True


def stops_before(lake: Lake, _exchange: Exchange) -> bool:
    """Stop the server before it has COMMIT; it is back before the client knows."""
    lake.server.stop()
    lake.server.start()
    return False


def stops_after(lake: Lake, exchange: Exchange) -> bool:
    """Stop the server when COMMIT was performed; it is back before the client knows."""
    exchange.perform()
    lake.server.stop()
    lake.server.start()
    return False


MOMENTS: Final = (
    cut_before, cut_after, silent_before, silent_after, ended, stops_before, stops_after,
)  # fmt: skip


def named(moment: object) -> str:
    """Return a moment's name in words."""
    return str(getattr(moment, "__name__", moment)).replace("_", " ")


def waits(moment: object) -> TimeOuts:
    """Return how long a run waits: shortly where nobody responds."""
    return IMPATIENT if moment in (silent_before, silent_after) else DEFAULT_TIME_OUTS


@pytest.mark.parametrize("moment", MOMENTS, ids=named)
def test_a_first_export_whose_commit_meets_trouble(
    lake: Lake, moment: Callable[[Lake, Exchange], bool]
) -> None:
    """Harm prevented: "failed" of rows that are in main, or rows twice after trying again."""
    source = Partitions()
    arm = AtStep(Step.SEND, lambda: lake.meets(lambda exchange: moment(lake, exchange)))
    ports = lake.ports(source, effects=arm, time_outs=waits(moment))

    first = statuses(run(lake.directory, source, ports=ports))
    again = statuses(run(lake.directory, source))

    assert lake.relay.happened
    assert first == ["committed"] * 2
    assert again == ["already_exported"] * 2
    lake.assert_exactly_once(source)


@pytest.mark.parametrize("moment", MOMENTS, ids=named)
def test_a_replacement_whose_commit_meets_trouble(
    lake: Lake, moment: Callable[[Lake, Exchange], bool]
) -> None:
    """Harm prevented: the old rows and the new ones side by side, or neither."""
    source = lake.exported_and_grown()
    arm = AtStep(Step.SEND, lambda: lake.meets(lambda exchange: moment(lake, exchange)))
    ports = lake.ports(source, effects=arm, time_outs=waits(moment))

    first = statuses(run(lake.directory, source, request=FORCED, ports=ports))
    again = statuses(run(lake.directory, source))

    assert lake.relay.happened
    assert first == ["replaced"] * 2
    assert again == ["already_exported"] * 2
    lake.assert_exactly_once(source, exports=2)


@pytest.mark.parametrize("moment", [cut_before, cut_after, silent_after, ended], ids=named)
@pytest.mark.parametrize(
    "after",
    ["INSERT INTO iceberg_namespace_properties", "INSERT INTO iceberg_tables", POINTER],
    ids=["namespace", "table", "first snapshot"],
)
def test_what_is_made_before_a_first_export_meets_trouble(
    lake: Lake, moment: Callable[[Lake, Exchange], bool], after: str
) -> None:
    """Harm prevented: a table that is half made, or a command that never succeeds."""
    source, first = Partitions(), list[str]()
    lake.meets(lambda exchange: moment(lake, exchange), after=after)
    ports = lake.ports(source, time_outs=waits(moment))

    with contextlib.suppress(TableFormatError):
        first = statuses(run(lake.directory, source, ports=ports))
    again = statuses(run(lake.directory, source))

    assert lake.relay.happened
    assert {*first, *again} <= DONE
    lake.assert_exactly_once(source)


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("replaces", [False, True], ids=["first export", "replacement"])
def test_a_server_that_stops_at_the_commit_and_stays_away_leaves_it_unknown(
    lake: Lake, *, landed: bool, replaces: bool
) -> None:
    """Harm prevented: "failed", and files deleted, of rows that are in main."""
    source = lake.exported_and_grown() if replaces else Partitions()
    request = FORCED if replaces else ALL

    def stops(exchange: Exchange) -> bool:
        if landed:
            exchange.perform()
        lake.server.stop()
        return False

    ports = lake.ports(source, effects=AtStep(Step.SEND, lambda: lake.meets(stops)))
    try:
        first = run(lake.directory, source, request=request, ports=ports)
    finally:
        lake.server.start()
    states = {r.state for r in ledger_rows(lake.directory)}
    again = statuses(run(lake.directory, source, request=ALL if landed else request))

    assert statuses(first) == ["unknown"] * 2
    assert states == {State.RUNNING}
    new = "replaced" if replaces else "committed"
    assert again == ["already_exported" if landed else new] * 2
    lake.assert_exactly_once(source, exports=1 + replaces)
