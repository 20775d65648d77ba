"""`mergeberg export` in a process of its own, of which everything is kept that others could see.

Watched while it runs: the command line and the environment of every process that it starts, and
the files of Spark's temporary directory. Left afterwards: outputs, logs, the lake, the ledger.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Record

from tests.repository.source_files import ROOT
from tests.services.server_process import wait_until
from tests.support.processes import command_line, descendants, environment, has_ended

__all__ = ["WatchedExport"]

_SECONDS: Final = 240.0
_LOOK_SECONDS: Final = 0.2
_RUN: Final = "from spark_ext.cli.main import run; run()"
_SPARK: Final = (
    "spark.eventLog.enabled=true",
    "spark.eventLog.compress=false",
    # The texts of the plans, as the tab SQL / DataFrame shows them.
    "spark.sql.ui.explainMode=extended",
    "spark.eventLog.logStageExecutorMetrics=true",
)


@dataclass
class WatchedExport:
    """One run in a directory, and what of it could be seen; `secret` is looked for."""

    root: Path
    secret: bytes
    code: int = -1
    out: str = ""
    err: str = ""
    command_lines: set[bytes] = field(default_factory=set)
    environments: dict[int, bytes] = field(default_factory=dict)
    """Of every process but the export itself."""
    broadcast_modes: set[tuple[int, int]] = field(default_factory=set)
    """Modes of a file that held the secret, and of the directory of its Spark, above it."""

    def run(self, *words: str, environment: dict[str, str], conf: tuple[str, ...] = ()) -> None:
        """Run it to its end, and wait for the end of everything that it started."""
        for name in ("events", "spark", "temporary", "warehouse"):
            (self.root / name).mkdir(exist_ok=True)
        settings = (
            *_SPARK,
            f"spark.eventLog.dir=file://{self.root}/events",
            f"spark.local.dir={self.root}/spark",
            *conf,
        )
        command = [
            sys.executable,
            "-c",
            _RUN,
            "--log",
            f"json:{self.root}/log.json",
            "--log-level",
            "debug",
            "export",
        ]
        command += [*words, "--warehouse", f"{self.root}/warehouse", "--master", "local[2]"]
        command += ["--verify", "--debug", "--max-retries", "0", "--allow-insecure"]
        command += [word for setting in settings for word in ("--conf", setting)]
        self.watch(command, environment)

    def watch(self, command: list[str], environment: dict[str, str]) -> None:
        """Run a command to its end, and wait for the end of everything that it started."""
        (self.root / "temporary").mkdir(exist_ok=True)
        inherited = {n: v for n, v in os.environ.items() if not n.startswith("MERGEBERG_")}
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env={
                **inherited,
                "PYTHONPATH": str(ROOT),
                "TMPDIR": f"{self.root}/temporary",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with self._watching(process.pid):
            self.out, self.err = process.communicate(timeout=_SECONDS)
        self.code = process.returncode
        wait_until(self._all_ended, "all that was started had ended")

    def everything(self) -> Iterator[tuple[str, bytes]]:
        """Yield, with a name, what is left of the run, and what could be seen of its processes."""
        yield "stdout", self.out.encode()
        yield "stderr", self.err.encode()
        yield "ps", b"\n".join(self.command_lines)
        yield from ((f"environment of {pid}", e) for pid, e in self.environments.items())
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.root)), _contents(path)

    def shows(self) -> list[str]:
        """Return the names of what shows the secret."""
        return [name for name, content in self.everything() if self.secret in content]

    def _all_ended(self) -> bool:
        return all(map(has_ended, self.environments))

    @contextlib.contextmanager
    def _watching(self, pid: int) -> Iterator[None]:
        ends = threading.Event()

        def watch() -> None:
            while not ends.wait(_LOOK_SECONDS):
                self._look(pid)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _look(self, pid: int) -> None:
        own = command_line(pid)
        for one in {pid} | descendants(pid):
            line = command_line(one)
            self.command_lines.add(os.fsencode("\0".join(line)))
            # A child that is just forked still has command line and environment of the export. It
            # gets both of its own at one moment, so the command line is read first.
            if line != own:
                seen = "\0".join(map("=".join, environment(one).items()))
                self.environments[one] = os.fsencode(seen) or self.environments.get(one, b"")
        spark = self.root / "spark"
        for path in spark.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and self.secret in path.read_bytes():
                    above = spark / path.relative_to(spark).parts[0]
                    modes = (path.stat().st_mode & 0o777, above.stat().st_mode & 0o777)
                    self.broadcast_modes.add(modes)


def _contents(path: Path) -> bytes:
    """Return the bytes of a file, and for a compressed one also what stands in it."""
    content = path.read_bytes()
    if path.suffix == ".parquet":
        return content + repr(pq.read_table(path).to_pylist()).encode()
    if path.suffix == ".avro":
        with AvroFile[Record](PyArrowFileIO().new_input(str(path))) as records:
            return content + repr(list(records)).encode()
    return content
