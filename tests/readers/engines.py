"""The readers, and how one is asked: by a program in a process, or an environment, of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.readers.canonical import Cell
from tests.readers.filters import Filter
from tests.readers.store import ObjectStore

__all__ = [
    "ENGINES",
    "Engine",
    "Matches",
    "Reader",
    "ReaderResult",
    "environment_packages",
    "environment_python",
]

_ROOT: Final = Path(__file__).resolve().parents[2]
_TAIL: Final = 2000
_JAVA_TRUSTS: Final = "`-Djavax.net.ssl.trustStore=…`"


@dataclass(frozen=True, slots=True)
class Engine:
    """A reading engine: its name in tables, its program, and which environment has it.

    `of_files` says whether it reads local files; every engine reads an object store. `far` is what
    its settings are there; `trusts` is how it learns of the store's own authority.
    """

    name: str
    program: str
    far: str
    trusts: str = "`SSL_CERT_FILE`"
    of_our_environment: bool = True
    of_files: bool = True

    @property
    def python(self) -> str:
        """The Python that runs the program."""
        return sys.executable if self.of_our_environment else str(environment_python())


ENGINES: Final = (
    Engine("PyIceberg", "pyiceberg", "`s3.endpoint` and so on, as properties of the catalog"),
    Engine(
        "DuckDB",
        "duckdb",
        "its extension httpfs; `CREATE SECRET (TYPE s3, ENDPOINT …, URL_STYLE 'path')`",
        "`SET ca_cert_file = …`",
    ),
    Engine(
        "ClickHouse",
        "clickhouse",
        "`iceberg('https://HOST:PORT/BUCKET/PATH', KEY, SECRET)`",
        "`<openSSL><client><caConfig>` of the server's configuration",
    ),
    Engine(
        "Spark",
        "spark",
        "iceberg-aws-bundle; `io-impl` S3FileIO, `s3.path-style-access` of the catalog",
        _JAVA_TRUSTS,
    ),
    Engine("Polars", "polars", "`storage_options`, as PyIceberg's", of_our_environment=False),
    Engine("Daft", "daft", "as PyIceberg", of_our_environment=False),
    Engine(
        "DataFusion",
        "datafusion",
        "as PyIceberg, and `s3.path-style-access`",
        of_our_environment=False,
    ),
    Engine(
        "Trino",
        "trino",
        "`fs.native-s3.enabled`, `s3.path-style-access` of the catalog",
        _JAVA_TRUSTS,
        of_our_environment=False,
        of_files=False,
    ),
)


def environment_python() -> Path:
    """Return the Python of the environment with the readers that are not in ours.

    Raises:
        FileNotFoundError: it was not made.
    """
    python = _ROOT / ".readers" / "venv" / "bin" / "python"
    if not python.exists():
        message = f"Cannot ask a reader: there is no {python}. Make it: make readers"
        raise FileNotFoundError(message)
    return python


def environment_packages() -> Path:
    """Return the directory of the packages that are in that environment.

    Raises:
        FileNotFoundError: it was not made.
    """
    (packages,) = environment_python().parents[1].glob("lib/python3.*/site-packages")
    return packages


@dataclass(frozen=True, slots=True)
class ReaderResult:
    """The result of a reader: rows with canonical values and the types it showed, or an error."""

    rows: tuple[tuple[Cell, ...], ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Matches:
    """For which rows a reader says that a filter holds, by `id`, or its error."""

    ids: tuple[int, ...] = ()
    error: str = ""


class Reader:
    """An engine's process. The first question starts it, and the next one after its end."""

    def __init__(self, engine: Engine, store: ObjectStore | None = None) -> None:
        """Take an engine, and the object store that it reads, when it reads no local files."""
        self.engine = engine
        self._environment = {} if store is None else store.environment
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()

    def read(
        self, metadata: str, columns: Sequence[str], where: Filter | None = None
    ) -> ReaderResult:
        """Return columns of the rows for which a filter holds, in the reader's order."""
        response = self._ask({"metadata": metadata, "columns": list(columns), "where": where})
        if "error" in response:
            return ReaderResult(error=response["error"])
        return ReaderResult(tuple(map(tuple, response["rows"])), tuple(response["shown"].items()))

    def matching(self, metadata: str, filters: Sequence[Filter]) -> list[Matches]:
        """Return for which rows each filter holds."""
        response = self._ask({"metadata": metadata, "filters": list(filters)})
        if "error" in response:
            return [Matches(error=response["error"])] * len(filters)
        return [
            Matches(tuple(sorted(found.get("ids", ()))), found.get("error", ""))
            for found in response["found"]
        ]

    def version(self) -> str:
        """Return the engine's version."""
        return str(self._ask({"version": True})["version"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        line = ""
        try:
            process.stdin.write(f"{json.dumps(request)}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            pass  # as an empty result: the process is gone
        if not line.endswith("\n"):
            status = _end(process)
            self._process = None
            return {"error": f"the process ended with {status}: {self._last_output()}"}
        response: dict[str, Any] = json.loads(line)
        return response

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [self.engine.python, "-m", f"tests.readers.programs.{self.engine.program}"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=os.environ
                | {"PYTHONWARNINGS": "ignore", "TZ": "UTC", "DAFT_ANALYTICS_ENABLED": "0"}
                | self._environment,
            )
        return self._process

    def _last_output(self) -> str:
        self._log.seek(0, os.SEEK_END)
        end = self._log.tell()
        return os.pread(self._log.fileno(), _TAIL, max(0, end - _TAIL)).decode(errors="replace")


def _end(process: subprocess.Popen[str]) -> int:
    """Let a process end, whose input then ends, and return its exit status."""
    assert process.stdin is not None
    assert process.stdout is not None
    # What could not be written to a dead process is in its buffer still.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    return process.wait()
