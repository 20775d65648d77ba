"""`mergeberg exports list --watch`: what changes is shown, until nothing runs any more.

The pause is the test's: what happens during it is what happens elsewhere meanwhile.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from catalog.ledgers import uris
from catalog.processes import this_process
from spark_ext.cli.exports_screen import Records, follow
from spark_ext.cli.output import JsonOutput, TextOutput
from tableformat.errors import RefusedError
from tableformat.ledger import Lease, Ledger
from tests.wrong.places import Places

WORDS = ("export", "db.events", "--to", "lake.n.watched", "--partition-id", "202401")


@pytest.fixture
def ledger(places: Places) -> Iterator[Ledger]:
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as opened:
        yield opened


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Return what happens in the pauses of the command, one after the other."""
    happens: list[Callable[[], None]] = []

    def pause(seconds: float) -> None:
        assert seconds == 7.5
        happens.pop(0)()

    monkeypatch.setattr("spark_ext.cli.commands.exports.time", SimpleNamespace(sleep=pause))
    return happens


@pytest.fixture
def lease(places: Places, ledger: Ledger) -> Lease:
    """Return the lease of an export that was begun; nobody finished it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    places.before = interrupt
    assert places.run(*WORDS)[0] == 130
    places.before = lambda *_: None
    keys = {(r.destination_table, r.key.partition_id): r.key.hash for r in ledger.rows()}
    key = keys["lake.n.watched", "202401"]
    held = ledger.take_lease(key, this_process(), 600.0)
    assert isinstance(held, Lease)
    return held


def nothing() -> None:
    """Happen."""


def test_each_change_is_one_line_and_when_nothing_runs_it_ends(
    places: Places, ledger: Ledger, lease: Lease, pauses: list[Callable[[], None]]
) -> None:
    pauses += [nothing, nothing, lambda: ledger.release(lease)]

    code, out, _ = places.run("exports", "list", "--watch", "7.5", "--json")

    lines = [json.loads(line) for line in out.splitlines()]
    of_it = [
        one["status"]
        for one in lines
        if (one["destination_table"], one["partition_id"]) == ("lake.n.watched", "202401")
    ]
    assert (code, pauses) == (0, [])
    assert of_it == ["IN_PROGRESS", "INTERRUPTED"]
    assert len(set(out.splitlines())) == len(lines), "what did not change came twice"


def test_of_one_status_all_that_run_are_waited_for(
    places: Places, ledger: Ledger, lease: Lease, pauses: list[Callable[[], None]]
) -> None:
    """Harm prevented: who waits for failures is sent away while they may still come."""
    pauses += [nothing, lambda: ledger.release(lease)]

    _, out, _ = places.run("exports", "list", "--status", "interrupted", "--watch", "7.5", "--json")

    assert pauses == []
    found = [json.loads(line)["status"] for line in out.splitlines()]
    assert set(found) == {"INTERRUPTED"}


def test_a_person_ends_it_by_ctrl_c_and_that_is_no_failure(
    places: Places, ledger: Ledger, lease: Lease, pauses: list[Callable[[], None]]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    pauses += [nothing, interrupt]
    code, out, err = places.run("exports", "list", "--watch", "7.5")
    ledger.release(lease)

    assert (code, err, pauses) == (0, "", [])
    assert out.count("rows in the lake  since") == 1, (
        "the table was drawn again though nothing changed"
    )
    assert "IN_PROGRESS" in out


def test_an_unreachable_lake_is_reported_once_however_often_it_is_read(
    places: Places,
    ledger: Ledger,
    lease: Lease,
    pauses: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: the table is lost among notes, one for each partition every two seconds."""

    def away(*_: object, **__: object) -> None:
        raise RefusedError("Cannot open the catalog lake: it is away. Wait.")

    monkeypatch.setattr("spark_ext.cli.commands.exports.open_destination", away)
    pauses += [nothing, nothing, lambda: ledger.release(lease)]

    code, _, err = places.run("exports", "list", "--watch", "7.5")

    assert (code, pauses) == (0, [])
    assert err.count("the progress of exports to lake.n.watched is unknown") == 1, err


def test_where_nothing_runs_it_shows_what_there_is_and_ends(
    places: Places, pauses: list[Callable[[], None]]
) -> None:
    assert places.run(*WORDS[:4], "--partition-id", "202402")[0] == 0

    code, out, _ = places.run("exports", "list", "--json", "--watch")

    assert (code, pauses) == (0, [])
    assert "COMPLETED" in out


def test_a_pause_that_would_be_none_is_refused(places: Places) -> None:
    """Harm prevented: a ledger that is asked without a pause."""
    code, _, err = places.run("exports", "list", "--watch", "0")

    assert code == 2
    assert "0.0 is not in the range x>=0.1" in err


def test_what_is_gone_is_shown_too() -> None:
    """A forgotten export leaves the table."""
    looks: list[Records] = [{"a": {"n": 1}, "b": {"n": 1}}, {"a": {"n": 1}}, {"a": {"n": 1}}]
    shown: list[tuple[list[str], list[str]]] = []
    left = iter([True, True, False])
    follow(
        lambda: looks.pop(0),
        is_running=lambda: next(left),
        show=lambda now, changed: shown.append(([*now], [*changed])),
        pause=nothing,
    )

    assert shown == [(["a", "b"], ["a", "b"]), (["a"], [])]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("output", "drawn"),
    [
        (lambda out: TextOutput(out, out), "\x1b[H\x1b[2J\nn\n1\n"),
        (lambda out: JsonOutput(out, out), '{"n": 1}\n'),
    ],
)
def test_on_a_screen_a_table_takes_the_place_of_the_last_one(
    output: Callable[[io.StringIO], TextOutput | JsonOutput], drawn: str
) -> None:
    screen = Screen()
    screen_output = output(screen)
    screen_output.redraw()
    screen_output.table(["n"], [{"n": 1}])

    assert screen.getvalue() == drawn
