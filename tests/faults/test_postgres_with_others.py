"""A catalog in a real PostgreSQL with other users: late commits, locks, refusals, other engines.

As `test_postgres_catalog.py`, which is about what a network and a server do to a COMMIT.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import pytest

from catalog.network import TimeOuts
from tableformat.effects import Step
from tests.faults.test_operator_actions import ALONGSIDE, FOREIGN, append
from tests.services.postgres import ADMINISTRATOR
from tests.services.postgres_relay import Exchange, Fault
from tests.support.postgres_lake import DONE, IMPATIENT, POINTER, Lake
from tests.support.scenarios import (
    AtStep,
    Partitions,
    ledger_rows,
    rows_by_key,
    rows_in_main,
    run,
    state,
    statuses,
)

T = TypeVar("T")


class _GivenUp:
    """Effects of a run that gives its first COMMIT up; it arrives before an effect after that."""

    def __init__(self, lake: Lake, arrives: Step) -> None:
        self._lake, self._arrives = lake, arrives
        self._kept: list[Callable[[], bool]] = []
        self.performed: list[bool] = []

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if self._kept and step is self._arrives and not self.performed:
            self.performed.append(self._kept[0]())
        elif step is Step.SEND and not self._kept:
            self._lake.meets(self._keeps)
        return act()

    def _keeps(self, exchange: Exchange) -> bool:
        self._kept.append(exchange.keep())
        return False


@pytest.mark.parametrize("arrives", [Step.LOAD_METADATA, Step.READ_LEDGER, Step.STAGE, Step.SEND])
def test_a_commit_that_arrives_after_its_client_gave_it_up(lake: Lake, arrives: Step) -> None:
    """Harm prevented: the request that was given up and its repetition both land."""
    source, effects = Partitions(), _GivenUp(lake, arrives)

    first = statuses(run(lake.directory, source, ports=lake.ports(source, effects=effects)))
    again = statuses(run(lake.directory, source))

    assert effects.performed == [True]
    assert first == ["committed"] * 2
    assert again == ["already_exported"] * 2
    assert len(state(lake.directory).snapshots) == 2
    lake.assert_exactly_once(source)


def test_a_commit_that_never_arrives_delays_its_repeat_for_a_while_only(lake: Lake) -> None:
    """Harm prevented: the lock of a transaction that nobody will ever end stops every export."""
    source, effects = Partitions(), _GivenUp(lake, Step.RELEASE_LEASE)
    ports = lake.ports(source, effects=effects, time_outs=IMPATIENT)

    first = statuses(run(lake.directory, source, ports=ports))
    again = statuses(run(lake.directory, source))

    assert effects.performed == [False]
    assert {*first} <= {"committed", "unknown"}
    assert {*again} <= DONE
    lake.assert_exactly_once(source)


def refuses_once(lake: Lake, code: str, *, deferred: bool) -> None:
    """Let the server refuse the next change of a table's pointer, at once or at COMMIT."""
    kind = "CONSTRAINT TRIGGER once AFTER" if deferred else "TRIGGER once BEFORE"
    late = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
    lake.server.execute(
        lake.account,
        "CREATE SEQUENCE times",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('times') = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END IF;"
        " RETURN NEW; END $$",
        f"CREATE {kind} UPDATE ON iceberg_tables {late} FOR EACH ROW EXECUTE FUNCTION refuse()",
    )


@pytest.mark.parametrize("deferred", [False, True], ids=["statement", "commit"])
@pytest.mark.parametrize(
    "code",
    ["40001", "40P01", "55P03", "57014", "53100"],
    ids=["serialization", "deadlock", "lock", "cancelled", "disk full"],
)
def test_a_server_that_refuses_a_commit_for_a_reason_of_its_own(
    lake: Lake, code: str, *, deferred: bool
) -> None:
    """Harm prevented: an export that fails, or lands twice, because of others' transactions."""
    source = Partitions()
    arm = AtStep(Step.SEND, lambda: refuses_once(lake, code, deferred=deferred))

    first = statuses(run(lake.directory, source, ports=lake.ports(source, effects=arm)))

    assert lake.server.execute(lake.account, "SELECT last_value FROM times") >= [(2,)]
    assert first == ["committed"] * 2
    lake.assert_exactly_once(source)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_another_engine_commits_between_our_reading_and_our_writing(
    lake: Lake, isolation: str
) -> None:
    """Harm prevented: rows of others are taken out of main by who read it before they came."""
    source = Partitions()
    setting = f"default_transaction_isolation = '{isolation}'"
    lake.server.execute(ADMINISTRATOR, f"ALTER ROLE {lake.account} SET {setting}")

    def another(exchange: Exchange) -> bool:
        append(lake.directory)
        exchange.hand_on()
        return True

    arm = AtStep(Step.SEND, lambda: lake.relay.arm(Fault(POINTER, another)))
    ports = lake.ports(source, effects=arm)
    first = statuses(run(lake.directory, source, request=ALONGSIDE, ports=ports))

    assert lake.relay.happened
    assert first == ["committed"] * 2
    assert rows_in_main(lake.directory) == sum(source.rows.values()) + FOREIGN
    assert all(rows_by_key(lake.directory)[row.key.hash] for row in ledger_rows(lake.directory))


def test_a_row_that_another_program_locked_is_waited_for_for_a_bounded_time(
    lake: Lake,
) -> None:
    """Harm prevented: an export that hangs as long as somebody has forgotten a transaction."""
    source = Partitions()
    with contextlib.ExitStack() as held:

        def lock() -> None:
            other = held.enter_context(lake.server.connected(lake.account))
            other.cursor().execute("SELECT 1 FROM iceberg_tables FOR UPDATE")

        shortly = TimeOuts(connect=10, read=0.1)
        ports = lake.ports(source, effects=AtStep(Step.SEND, lock), time_outs=shortly)
        first = run(lake.directory, source, ports=ports)
    again = statuses(run(lake.directory, source))

    assert statuses(first) == ["unknown"] * 2
    assert "statement timeout" in first[0].message
    assert "\n" not in first[0].message
    assert again == ["committed"] * 2
    lake.assert_exactly_once(source)


@pytest.mark.parametrize("what", ["connections end", "server restarts"])
def test_what_happens_to_the_server_while_files_are_written_does_not_matter(
    lake: Lake, what: str
) -> None:
    """Harm prevented: an export of hours that fails at its end, on its first connection."""
    source = Partitions()

    def trouble() -> None:
        if what == "connections end":
            lake.server.end_connections(lake.account)
        else:
            lake.server.stop()
            lake.server.start()

    ports = lake.ports(source, effects=AtStep(Step.WRITE_FILES, trouble))

    assert statuses(run(lake.directory, source, ports=ports)) == ["committed"] * 2
    lake.assert_exactly_once(source)
