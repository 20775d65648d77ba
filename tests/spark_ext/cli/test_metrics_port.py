"""`mergeberg export --metrics-port`: what an export that runs tells, and when it does not run."""

from __future__ import annotations

import http.client
import socket

import pytest

from tests.services.server_process import free_port
from tests.wrong.places import Places

WORDS = ("export", "db.other", "--all")


def scraped(port: int) -> dict[str, int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: int(count) for name, _, count in lines}


def test_an_export_is_scraped_while_it_runs_and_no_longer(places: Places) -> None:
    port = free_port()
    seen: list[dict[str, int]] = []
    places.before = lambda *_: seen.append(scraped(port))

    code, _, err = places.run(*WORDS, "--to", "lake.n.scraped", "--metrics-port", str(port))

    (during,) = seen
    assert code == 0
    assert f"metrics at http://127.0.0.1:{port}/metrics" in err
    assert during["mergeberg_rows_planned_total"] == 3
    assert during["mergeberg_rows_written_total"] == 0
    assert during["mergeberg_slices"] == 2
    assert during["mergeberg_exports_running"] == 2
    assert during["mergeberg_ledger_up"] == 1
    assert during['mergeberg_partitions_total{status="committed"}'] == 0
    with pytest.raises(ConnectionRefusedError):
        scraped(port)


def test_tries_and_files_are_counted_from_zero_in_the_next_export(places: Places) -> None:
    """The second of two files is looked at when the first partition is committed already."""
    port = free_port()
    seen: list[dict[str, int]] = []
    places.before = lambda *_: seen.append(scraped(port))
    words = ("--commit-every", "1", "--metrics-port", str(port))
    assert places.run(*WORDS, "--to", "lake.n.counted", *words)[0] == 0
    first = seen[0]['mergeberg_events_total{event="PartsExports"}']

    assert places.run(*WORDS, "--to", "lake.n.counted2", *words)[0] == 0

    assert seen[1]["mergeberg_rows_planned_total"] == 3
    assert seen[1]['mergeberg_events_total{event="PartsExports"}'] == first + 2


def test_a_port_that_is_taken_is_refused_before_anything_is_done(places: Places) -> None:
    before = places.files()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--to", "lake.new.refused", "--metrics-port", f"127.0.0.1:{port}")
        code, _, err = places.run(*WORDS, *words)

    assert code == 3
    assert f"Cannot serve metrics on 127.0.0.1:{port}: Address already in use" in err
    assert places.files() == before
