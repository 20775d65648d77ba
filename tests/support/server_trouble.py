"""Whole exports of the command line from a real server that gets into trouble at a chosen moment.

Two servers: the newest engine behind its front, and the oldest one. A test says what happens before
a statement is sent, or while rows stream; then it looks at the output, at the lake, and at what
is left on the server. Files are written by the real tasks, in one process that lasts.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import urllib3
from pyiceberg.exceptions import NoSuchTableError

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.settings import ServerSettings
from catalog.iceberg.catalogs import open_catalog
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tableformat.export.ports import Writing
from tableformat.export.slices import SliceTask, WritePlan
from tests.properties.task_worker import TaskWorker
from tests.services.relay import Relay
from tests.services.server_process import ServerProcess

__all__ = ["RunResult", "Trouble"]

_SECONDS: Final = 60.0
_STAGED: Final = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging' ORDER BY name"

Rows = list[tuple[int, int, str]]


@dataclass(frozen=True)
class RunResult:
    """The output of a run of the command."""

    code: int
    out: str
    err: str

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return the lines about partitions."""
        return tuple(one for one in self.out.splitlines() if one.startswith("partition "))

    @property
    def errors(self) -> tuple[str, ...]:
        """Return what stands on standard error but notes."""
        return tuple(line for line in self.err.splitlines() if not line.startswith("·"))

    @property
    def everything(self) -> str:
        """Return both outputs."""
        return self.out + self.err


@dataclass
class _Writer:
    """A `SliceWriter`: the tasks of a process that lasts, with the access of this run."""

    worker: TaskWorker
    server: ServerSettings
    before: Callable[[WritePlan, tuple[SliceTask, ...]], None]
    after: Callable[[], None]
    slots: int = 2

    def versions(self) -> tuple[tuple[str, str], ...]:
        return self.worker.versions()

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        self.before(plan, tasks)
        self.worker.server = self.server
        return (yield from self.worker.write(plan, tasks, on_rows=on_rows, should_stop=should_stop))


@dataclass
class Trouble:
    """A server, an empty warehouse, and what happens meanwhile.

    `process` is the server's; `relay` stands between it and the exports where a test asked for one;
    `authority` signed its certificate.
    """

    url: str
    process: ServerProcess
    root: Path
    worker: TaskWorker
    patch: pytest.MonkeyPatch
    relay: Relay | None = None
    authority: Path | None = None
    before_writing: list[Callable[[WritePlan], None]] = field(default_factory=list)
    """One is taken, and called, each time that files are begun to be written."""
    after_writing: list[Callable[[], None]] = field(default_factory=list)
    """One is taken, and called, each time that no more files are to be written."""
    _when: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.patch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
        self.patch.setattr(export_ports.SparkWhenNeeded, "check", lambda _: None)
        self.patch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
        self.patch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
        self.patch.setattr(export_ports, "SparkWriter", lambda _, server, __: self._writer(server))
        self.patch.setattr(export_ports, "_back_off", lambda _: None)
        # Every run is a process of its own to the others, and ended before them.
        self.patch.setattr(export_ports, "job_may_be_alive", lambda _: False)
        self.patch.setenv("PYICEBERG_HOME", str(self.root))
        sent = ServerClient._send

        def watched(client: ServerClient, sql: str, *others: Any) -> Any:
            self._happen(sql)
            return sent(client, sql, *others)

        self.patch.setattr(ServerClient, "_send", watched)

    def ask(self, sql: str, **parameters: str) -> str:
        """Return the server's response to its administrator, without the last line end."""
        place = f"{self.url}/?{urlencode(parameters)}"
        trusted = None if self.authority is None else str(self.authority)
        with urllib3.PoolManager(timeout=_SECONDS, retries=False, ca_certs=trusted) as http:
            response = http.request("POST", place, body=sql)
        text = response.data.decode()
        assert response.status == HTTPStatus.OK, f"{text}\nin {sql}"
        return text.removesuffix("\n")

    def filled(self, name: str, *, parts: int = 1, rows: int = 100) -> str:
        """Make a table: partitions 0 and 1, and so many rows and parts in each."""
        self.ask("CREATE DATABASE IF NOT EXISTS db")
        self.ask(f"DROP TABLE IF EXISTS db.{name}")
        self.ask(
            f"CREATE TABLE db.{name} (p UInt8, k UInt64, s String) ENGINE = MergeTree"
            " PARTITION BY p ORDER BY k"
        )
        self.ask(f"SYSTEM STOP MERGES db.{name}")
        for part in range(parts):
            self.fill(name, part * 2 * rows, rows)
        return name

    def fill(self, name: str, first: int, rows: int) -> None:
        """Add a part with so many rows to each of the partitions."""
        self.ask(
            f"INSERT INTO db.{name} SELECT number % 2, number, hex(SHA256(toString(number)))"
            f" FROM numbers({first}, {2 * rows})"
        )

    def drop(self, name: str) -> None:
        """Drop a table, as its owner may at any moment."""
        self.ask(f"DROP TABLE db.{name}")

    def export(self, name: str, *options: str, source: str = "", query: str = "") -> RunResult:
        """Run the command; `source` stands in place of the server's address, `query` behind it."""
        out, err = io.StringIO(), io.StringIO()
        words = ["export", f"db.{name}", "--all", "--to", f"lake.n.{name}", "--allow-insecure"]
        words += ["--source", f"{source or self.address}{query}", "--manifest-ttl", "0"]
        words += ["--warehouse", str(self.root / "warehouse"), "--target-file-size", "1"]
        code = invoke([*words, *options], out, err)
        return RunResult(code, out.getvalue(), err.getvalue())

    @property
    def address(self) -> str:
        """Return where exports ask."""
        return self.url if self.relay is None else f"http://127.0.0.1:{self.relay.port}"

    def when(self, containing: str, act: Callable[[], None], *, times: int = 1) -> None:
        """Let something happen before exports send the next statements that hold a text."""
        self._when += [(containing, act)] * times

    def while_writing(self, act: Callable[[], None]) -> None:
        """Let something happen when everything is frozen, and no file is begun."""
        self.before_writing.append(lambda _: act())

    def in_source(self, name: str) -> Rows:
        """Return the rows of a table, sorted."""
        lines = self.ask(f"SELECT p, k, s FROM db.{name} FORMAT TSV").splitlines()
        cells = (line.split("\t") for line in lines)
        return sorted((int(p), int(k), s) for p, k, s in cells)

    def in_lake(self, name: str) -> Rows:
        """Return the rows of the lake table, sorted; none where there is no such table."""
        catalog = open_catalog("lake", warehouse=self.root / "warehouse").catalog
        try:
            found = catalog.load_table(f"n.{name}").scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return sorted((row["p"], row["k"], row["s"]) for row in found)

    def files(self) -> frozenset[str]:
        """Return the data files on disk, referred to or not."""
        return frozenset(path.name for path in (self.root / "warehouse").rglob("*.parquet"))

    def staged(self) -> tuple[str, ...]:
        """Return the staging tables on the server."""
        return tuple(self.ask(_STAGED).split())

    def restart(self) -> None:
        """End the server as a loss of power does, and start it again."""
        self.process.kill()
        self.process.start()

    def read_as_native(self) -> None:
        """Let the server be one that has no Arrow of our kind."""
        self.patch.setattr(Capabilities, "makes_wire_values", property(lambda _: False))

    @contextmanager
    def meanwhile(self, act: Callable[[], None]) -> Iterator[None]:
        """Do something in a thread of its own; it is done when the context is left."""
        failed: list[BaseException] = []

        def acting() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001  raised again by the other thread
                failed.append(error)

        thread = threading.Thread(target=acting)
        thread.start()
        yield
        thread.join(_SECONDS)
        assert not thread.is_alive()
        if failed:
            raise failed[0]

    def assert_stopped(self, result: RunResult, code: int, *texts: str) -> None:
        """Check that a run ended with cause and remedy, and the next command where there is one."""
        assert result.code == code, result.everything
        following = [one for one in result.errors if one.startswith("Next: mergeberg ")]
        error = "\n".join(one for one in result.errors if one not in following)
        for text in ("Cannot ", *texts):
            assert text in error
        # After a refusal there may be no command that helps.
        assert len(following) == 1 or (code == 3 and not following), result.everything
        assert "Traceback" not in result.everything

    def assert_failed(self, result: RunResult, code: int, partition: str, *texts: str) -> None:
        """Check that a run reported why a partition is not exported, and the next command."""
        assert result.code == code, result.everything
        (line,) = (one for one in result.partitions if one.startswith(f"partition {partition}: "))
        for text in ("Cannot ", *texts):
            assert text in line, result.everything
        # What was refused would be refused again: no next command is named for it.
        assert [one.startswith("Next: mergeberg ") for one in result.errors] == [True] * (code != 3)

    def assert_exported_once(self, name: str, *options: str, rows: Rows | None = None) -> RunResult:
        """Check that the same command exports what is left; every row is in the lake once."""
        wanted = self.in_source(name) if rows is None else rows
        result = self.export(name, *options)
        assert result.code == 0, result.everything
        assert self.in_lake(name) == wanted
        assert self.staged() == ()
        return result

    def _happen(self, sql: str) -> None:
        for number, (containing, act) in enumerate(self._when):
            if containing in sql:
                del self._when[number]
                act()
                return

    def _writer(self, server: ServerSettings) -> _Writer:
        return _Writer(self.worker, server, self._before, self._after)

    def _before(self, plan: WritePlan, _: tuple[SliceTask, ...]) -> None:
        if self.before_writing:
            self.before_writing.pop(0)(plan)

    def _after(self) -> None:
        if self.after_writing:
            self.after_writing.pop(0)()
