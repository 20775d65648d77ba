"""What an export counts, and how it is served."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from spark_ext.actions.metrics import METRICS, CountingObserver, CountingWriter, Figures, render
from spark_ext.cli.metrics_server import MetricsAddress, parse_metrics_address, serving
from spark_ext.engine.runner import write_all
from tableformat.errors import LedgerError, RefusedError, SourceError, UsageError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Silent, SliceFailure, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.history import counted
from tableformat.receipt import Receipt
from tests.repository.source_files import ROOT
from tests.services.server_process import free_port
from tests.support.frozen_parts import PLAN

SAMPLE = re.compile(r'([a-z_]+)(?:\{[a-z]+="(\w+)"\})? ([0-9]+)')


def samples(text: str) -> dict[tuple[str, str], int]:
    """Return every sample by name and label."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            matched = SAMPLE.fullmatch(line)
            assert matched is not None, line
            found[matched[1], matched[2] or ""] = int(matched[3])
    return found


def of_one(text: str) -> dict[str, int]:
    return {name: count for (name, label), count in samples(text).items() if not label}


def file_of(size: int) -> Receipt:
    return Receipt(
        "k", "77", 1, 0, "0-0", (), "file:///nowhere", size, "", 1, 1, (), 0, None, (4,), (), 0.0, 0
    )


@dataclass
class Writer:
    """A writer with two files and one failure."""

    slots: int = 2

    def versions(self) -> tuple[tuple[str, str], ...]:
        return ()

    def write(
        self,
        _plan: WritePlan,
        _tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        del should_stop
        on_rows(5)
        yield
        on_rows(7)
        return Written(
            (file_of(100), file_of(150)), (SliceFailure(2, SourceError("Cannot. Not. Do.")),)
        )


def test_what_is_written_is_counted_as_it_happens() -> None:
    figures = Figures(lambda: 3)
    observer = CountingObserver(Silent(), figures)
    writer = CountingWriter(Writer(), figures)
    observer.begin(1, 12, 1000)
    writing = writer.write(PLAN, (), on_rows=observer.rows, should_stop=lambda: False)

    next(writing)
    during = of_one(render(figures))
    assert len(write_all(writing).failures) == 1
    observer.begin(1, 3, 10)
    observer.rows(3)
    observer.finished(Outcome("202401", Status.COMMITTED, "db.t"))
    after = of_one(render(figures))

    assert during == {
        "mergeberg_rows_planned_total": 12,
        "mergeberg_rows_written_total": 5,
        "mergeberg_files_written_total": 0,
        "mergeberg_bytes_written_total": 0,
        "mergeberg_slice_failures_total": 0,
        "mergeberg_slices": 3,
        "mergeberg_ledger_up": 0,
    }
    assert after == {
        "mergeberg_rows_planned_total": 15,
        "mergeberg_rows_written_total": 10,
        "mergeberg_files_written_total": 2,
        "mergeberg_bytes_written_total": 250,
        "mergeberg_slice_failures_total": 1,
        "mergeberg_slices": 3,
        "mergeberg_ledger_up": 0,
    }
    ended = {
        v: n for (m, v), n in samples(render(figures)).items() if m.endswith("partitions_total")
    }
    assert ended == {status.value: int(status is Status.COMMITTED) for status in Status}


def test_a_counter_never_goes_back() -> None:
    """Harm prevented: a rate that is negative, or a reset that Prometheus makes up."""
    figures = Figures(lambda: 0)
    figures.begin(100)
    seen = []
    for written in (10, 30, 20, 35):
        figures.rows(written)
        seen.append(of_one(render(figures))["mergeberg_rows_written_total"])

    assert seen == [10, 30, 30, 35]


def test_what_the_ledger_counts_is_asked_when_the_text_is() -> None:
    figures = Figures(lambda: 0)
    totals = {"PartsExports": 4, "PartsExportFailures": 1}
    figures.counters = lambda: counted(totals, 2)
    first = samples(render(figures))
    totals["PartsExports"] = 9

    assert first["mergeberg_ledger_up", ""] == 1
    assert first["mergeberg_exports_running", ""] == 2
    assert first["mergeberg_events_total", "PartsExports"] == 4
    assert first["mergeberg_events_total", "PartsExportDuplicated"] == 0
    assert samples(render(figures))["mergeberg_events_total", "PartsExports"] == 9


def test_a_ledger_that_does_not_respond_hides_nothing_else() -> None:
    def fail() -> Mapping[str, int]:
        raise LedgerError("Cannot read the ledger: it is locked. Wait.")

    found = samples(render(Figures(lambda: 4, fail)))

    assert (found["mergeberg_ledger_up", ""], found["mergeberg_slices", ""]) == (0, 4)
    assert ("mergeberg_exports_running", "") not in found


def test_every_metric_has_its_kind_and_meaning_and_is_on_the_page() -> None:
    text = render(Figures(lambda: 0, lambda: counted({}, 0)))
    page = (ROOT / "docs/reference/metrics.md").read_text()

    documented = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (?:`(\w+)`)? ?\| (.+) \|$", page, re.MULTILINE
    )
    assert documented == [(m.name, m.kind, m.label, m.meaning) for m in METRICS]
    for metric in METRICS:
        head = f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"
        assert head in text
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def asked(port: int, path: str = "/metrics") -> tuple[int, str, str]:
    """Ask as Prometheus does; return status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def test_the_text_is_served_as_long_as_the_context_is_open() -> None:
    port = free_port()
    texts = iter(["first 1\n", "second 2\n"])
    with serving(MetricsAddress("127.0.0.1", port), lambda: next(texts)):
        status, kind, body = asked(port)

        assert (status, body) == (200, "first 1\n")
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert asked(port, "/metrics?x=1")[2] == "second 2\n"
        assert asked(port, "/")[0] == 404

    with pytest.raises(ConnectionRefusedError):
        asked(port)


def test_a_scrape_that_fails_is_that_scrape_alone(caplog: pytest.LogCaptureFixture) -> None:
    def text() -> str:
        if not caplog.records:
            raise ValueError("no text")
        return "again 1\n"

    port = free_port()
    with serving(MetricsAddress("127.0.0.1", port), text):
        with pytest.raises(http.client.HTTPException):
            asked(port)
        assert asked(port)[2] == "again 1\n"

    assert "no text" in caplog.text


def test_only_this_host_gets_a_response_unless_another_address_is_set() -> None:
    assert parse_metrics_address("9464") == MetricsAddress("127.0.0.1", 9464)
    assert parse_metrics_address("0.0.0.0:9464") == MetricsAddress("0.0.0.0", 9464)  # noqa: S104
    assert parse_metrics_address("[::1]:9464").url == "http://[::1]:9464/metrics"


@pytest.mark.parametrize(
    "text", ["", "0", "65536", "x", "host:", ":9464", "::1:9464", "a b:1", "-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"Cannot serve metrics on .*not PORT or HOST:PORT"):
        parse_metrics_address(text)


def test_a_port_that_is_taken_is_refused_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(RefusedError, match=f"127.0.0.1:{port}: Address already in use"),
            serving(MetricsAddress("127.0.0.1", port), str),
        ):
            pass
