"""Runs an embedded ClickHouse on a data directory, in a child process that owns the directory.

The child is `catalog/clickhouse/child.py`. This module holds the parent's end:

- `parse_source` and `render_source` read and write the address
  `chdb:DIRECTORY[?config-file=FILE]`.
- `EmbeddedConnection` starts the child, sends statements and ends the child. It waits while
  another process has the directory open, it never creates a data directory by accident, and it
  reports the death of the child as an error.
- `OwnClickHouse` is a ClickHouse of our own that starts empty, computes something and removes
  its directory when it closes.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import catalog
from catalog.clickhouse.connection import JSON_SETTINGS, LARGE_QUERY_SETTINGS, ClickHouseError, Row
from catalog.clickhouse.staging_comment import STAGING_DATABASE
from catalog.network import without_secret
from catalog.processes import Closing, ScratchDirectory
from catalog.secret_variables import harmless_environment
from tableformat.clickhouse_codes import CANNOT_OPEN_FILE, TIMEOUT_EXCEEDED
from tableformat.errors import NotFoundError, SourceError, UnsupportedError, UsageError
from tableformat.names import quote_string

__all__ = [
    "BYTES_A_SECOND",
    "DEFAULT_WAIT",
    "LEAST_SECONDS",
    "MEMORY",
    "ROWS_A_SECOND",
    "EmbeddedConnection",
    "EmbeddedSettings",
    "OwnClickHouse",
    "parse_source",
    "render_source",
]

_SCHEME: Final = "chdb:"
_CONFIG: Final = "config-file="


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """Where an embedded ClickHouse keeps its data, and the configuration it is opened with."""

    directory: Path
    config_file: Path | None = None


def parse_source(uri: str) -> EmbeddedSettings:
    """Read `chdb:DIRECTORY` or `chdb:DIRECTORY?config-file=FILE`.

    Raises:
        UnsupportedError: it names another kind of source.
        UsageError: the directory or the file is missing, or another option stands there.
    """
    if not uri.startswith(_SCHEME):
        message = (
            f"Cannot read the source {without_secret(uri)!r}: its kind is not known. Use "
            "https://[USER@]HOST[:PORT] for a server (its HTTP interface, not port 9000), "
            "chdb:DIRECTORY or chdb:DIRECTORY?config-file=FILE for a local data directory, or "
            "parts:DIR?ddl=FILE for frozen parts."
        )
        raise UnsupportedError(message)
    directory, mark, options = uri.removeprefix(_SCHEME).partition("?")
    config = options.removeprefix(_CONFIG)
    malformed = mark and (not options.startswith(_CONFIG) or not config or "&" in config)
    if not directory or malformed:
        what = "no directory" if not directory else f"the options {options!r} after the directory"
        message = (
            f"Cannot read the source {uri!r}: it has {what}. "
            "Write chdb:DIRECTORY or chdb:DIRECTORY?config-file=FILE."
        )
        raise UsageError(message)
    return EmbeddedSettings(Path(directory), Path(config) if mark else None)


def render_source(settings: EmbeddedSettings) -> str:
    """Return the text that `parse_source` reads."""
    tail = "" if settings.config_file is None else f"?{_CONFIG}{settings.config_file}"
    return f"{_SCHEME}{settings.directory}{tail}"


DEFAULT_WAIT: Final = 60.0
_RETRY_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 30.0
_TAIL_BYTES: Final = 2000
_CLOUDS: Final = ("AWS_", "GOOGLE_")
_LOCKED: Final = ("Another server instance", "Cannot lock file")
# What ClickHouse makes in any data directory that has ever held a table.
_SIGNS_OF_DATA: Final = ("metadata", "store", "data")


class EmbeddedConnection(Closing):
    """A connection to ClickHouse's data in a directory; nobody else can open it until `close`.

    A context manager: leaving it closes. `seconds` is how long a statement may take, None for ever:
    what takes longer is ended with its process, and the connection can only be closed then.
    """

    seconds: float | None = None

    def __init__(
        self,
        directory: Path,
        *,
        wait: float = DEFAULT_WAIT,
        config_file: Path | None = None,
        create: bool = False,
        staging_database: str = STAGING_DATABASE,
        zone: str | None = None,
        scratch: Path | None = None,
    ) -> None:
        """Open the directory, waiting up to `wait` seconds while another process has it open.

        Args:
            directory: ClickHouse's data path.
            wait: seconds.
            config_file: a ClickHouse server configuration, for disks and storage policies.
            create: make a new data directory when there is none.
            staging_database: where staging tables are made.
            zone: the server's time zone, None for this machine's.
            scratch: a directory of this process, which the child removes when it ends;
                the child works in it, and it holds the configuration.

        Raises:
            NotFoundError: there is no such directory, or no ClickHouse data in it.
            SourceError: it stayed in use, ClickHouse cannot open it, or Python cannot be run.
        """
        self._directory, self._in_scratch = directory.absolute(), scratch is not None
        _check_paths(self._directory, config_file, create=create)
        self._number = 0
        self._staging_database = staging_database
        self._busy = False
        self._open = True
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        child_in, self._to_child = os.pipe()
        from_child, child_out = os.pipe()
        self._answers = os.fdopen(from_child, "rb")
        try:
            self._child = _started((child_in, child_out), self._log, zone, scratch)
        except OSError as error:
            self._open = False
            self._answers.close()
            os.close(self._to_child)
            self._log.close()
            message = (
                f"Cannot start ClickHouse for {directory}: {sys.executable} cannot be run: "
                f"{error.strerror}. Let the user of this command run it, and run again."
            )
            raise SourceError(message) from error
        finally:
            os.close(child_in)
            os.close(child_out)
        try:
            self._open_directory(config_file, wait)
            ours = (*JSON_SETTINGS, *LARGE_QUERY_SETTINGS)
            settings = ", ".join(f"{name} = {value}" for name, value in ours)
            self.command(f"SET {settings}")
        except BaseException:
            self.close()
            raise

    @property
    def process_id(self) -> int:
        """The process that has the directory open."""
        return self._child.pid

    @property
    def address(self) -> str:
        """Nothing: a ClickHouse in our own process answers no task, its files are at hand."""
        return ""

    @property
    def staging_database(self) -> str:
        """The database of our own in which staging tables are made."""
        return self._staging_database

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: the process that runs ClickHouse ended.
        """
        return tuple(tuple(row) for row in self._ask("rows", sql)["rows"])

    def command(self, sql: str) -> None:
        """Run a statement that gives no rows.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the process that runs ClickHouse ended.
        """
        self._ask("command", sql)

    def close(self) -> None:
        """Give the directory free. A statement that still runs ends with its process."""
        if not self._open:
            return
        self._open = False
        if self._busy:
            self._child.kill()
        os.close(self._to_child)
        try:
            self._child.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._answers.close()
        self._log.close()

    def _open_directory(self, config_file: Path | None, wait: float) -> None:
        path = str(self._directory)
        if config_file is not None:
            # ClickHouse takes some characters of a path for the end of it.
            named = config_file.name if self._in_scratch else config_file.absolute()
            path += f"?config-file={named}"
        deadline = time.monotonic() + wait
        while True:
            said_before = os.fstat(self._log.fileno()).st_size
            try:
                self._ask("open", path)
            except ClickHouseError as error:
                # The library prints the reason and raises another error without it.
                said = self._said(said_before)
                if not any(words in said for words in _LOCKED):
                    reason = ClickHouseError(said).reason if said else error.reason
                    message = (
                        f"Cannot open the ClickHouse directory {self._directory}: {reason}. "
                        "Check the directory and the configuration file."
                    )
                    raise SourceError(message, code=error.code) from error
                if time.monotonic() >= deadline:
                    raise _in_use(self._directory) from error
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _ask(self, what: str, argument: str) -> Mapping[str, Any]:
        if not self._open:
            message = (
                f"Cannot use ClickHouse on {self._directory}: the connection is closed. "
                "Open it again."
            )
            raise SourceError(message)
        if self._busy:
            # Its answer would be taken for the answer to this one.
            message = (
                f"Cannot use ClickHouse on {self._directory}: a statement was interrupted. "
                "Close the connection and open it again."
            )
            raise SourceError(message)
        self._number += 1
        self._busy = True
        request = json.dumps({"id": self._number, what: argument}).encode() + b"\n"
        answer = b""
        try:
            _write_all(self._to_child, request)
            self._await_answer()
            answer = self._answers.readline()
        except BrokenPipeError:
            pass  # as an empty answer: the child is gone
        if not answer.endswith(b"\n"):
            raise self._died()
        self._busy = False
        # ClickHouse strings are bytes; those that are no UTF-8 survive as surrogates.
        read: Mapping[str, Any] = json.loads(answer.decode("utf-8", "surrogateescape"))
        if "error" in read:
            raise ClickHouseError(read["error"])
        return read

    def _await_answer(self) -> None:
        """Wait until the child answers or ends, for no longer than a statement may take.

        Raises:
            ClickHouseError: it took longer (code 159).
        """
        if self.seconds is None:
            return
        answers = select.poll()
        answers.register(self._answers, select.POLLIN)
        if not answers.poll(self.seconds * 1000):
            self._child.kill()
            reason = f"it ran longer than {self.seconds:,.0f} seconds"
            raise ClickHouseError(f"Code: {TIMEOUT_EXCEEDED}. DB::Exception: {reason}")

    def _died(self) -> SourceError:
        status = self._child.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        said = " ".join(self._said(0)[-_TAIL_BYTES:].split())
        return SourceError(
            f"Cannot read ClickHouse on {self._directory}: the process that runs it ended with "
            f"{how}{f' and said {said!r}' if said else ''}. Run again; what a job left in the "
            "source is dropped by the next one."
        )

    def _said(self, since: int) -> str:
        """Return what the child printed, from a position in its log."""
        end = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), end - since, since).decode("utf-8", "replace").strip()


def _check_paths(directory: Path, config_file: Path | None, *, create: bool) -> None:
    if config_file is not None and not config_file.is_file():
        message = (
            f"Cannot open the ClickHouse directory {directory}: there is no configuration file "
            f"{config_file}. Check the part after config-file= in the source."
        )
        raise NotFoundError(message)
    if create:
        return
    if not directory.is_dir():
        message = (
            f"Cannot open the ClickHouse directory {directory}: there is no such directory. "
            "Name the data path of a ClickHouse, for example --source chdb:./clickhouse."
        )
        raise NotFoundError(message)
    if not any((directory / name).is_dir() for name in _SIGNS_OF_DATA):
        message = (
            f"Cannot open the ClickHouse directory {directory}: it holds no ClickHouse data "
            f"(none of {', '.join(_SIGNS_OF_DATA)}). Name the data path of a ClickHouse."
        )
        raise NotFoundError(message)


def _in_use(directory: Path) -> SourceError:
    return SourceError(
        f"Cannot open the ClickHouse directory {directory}: it is in use by another process"
        f"{_holder(directory)}. Wait for it to end, or raise --source-wait.",
        code=CANNOT_OPEN_FILE,
    )


def _holder(directory: Path) -> str:
    """Return what the owner of a directory left in its status file: its process and its start."""
    try:
        lines = (directory / "status").read_text().splitlines()
    except OSError:
        return ""
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    process = f" ({found['PID']})" if "PID" in found else ""
    return process + (f" since {found['Started at']}" if "Started at" in found else "")


def _started(
    pipes: tuple[int, int], log: IO[bytes], zone: str | None, scratch: Path | None
) -> subprocess.Popen[bytes]:
    """Start the child with its ends of the pipes.

    Raises:
        OSError: it cannot be started.
    """
    words = (*pipes, *(() if scratch is None else (scratch,)))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "catalog.clickhouse.child", *map(str, words)],
        pass_fds=pipes,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=scratch,
        env=_environment(alone=scratch is not None) | ({} if zone is None else {"TZ": zone}),
        # Ctrl-C goes to every process of a session; this one must end its statement first.
        start_new_session=True,
    )


def _environment(*, alone: bool) -> dict[str, str]:
    """Return an environment in which the child finds our packages, without any secret.

    One that is `alone` opens no disk of its own, and gets none of those of Amazon and Google.
    """
    ours = str(Path(catalog.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    given = harmless_environment()
    if alone:
        given = {name: text for name, text in given.items() if not name.startswith(_CLOUDS)}
    return given | {"PYTHONPATH": ours + (os.pathsep + others if others else "")}


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_RIGHTS: Final = (
    "SHOW, SELECT, INSERT, ALTER, TRUNCATE, OPTIMIZE, CHECK ON *.*",
    "CREATE DATABASE, CREATE TABLE, CREATE TEMPORARY TABLE, DROP TABLE ON *.*",
    "READ, WRITE ON FILE",
)
"""Of its only user. What it does in the background, such as a mutation, is done by no user."""
_SETTINGS: Final = (("allow_introspection_functions", "0"), ("allow_ddl", "1"))
"""Whose values no statement can change."""
MEMORY: Final = 0.5
"""The share of the machine's memory that it may have."""
LEAST_SECONDS: Final = 60.0
"""How long a statement without rows may take that others wrote, or of which they wrote a part."""
ROWS_A_SECOND: Final = 10_000
BYTES_A_SECOND: Final = 1 << 20
"""Of so many it may take a second more."""


class OwnClickHouse(EmbeddedConnection):
    """A ClickHouse without data, in a directory which goes with it. Leaving it closes."""

    def __init__(
        self,
        purpose: str,
        *,
        zone: str | None = None,
        seconds: float | None = None,
        memory: float = MEMORY,
    ) -> None:
        """Start it.

        Args:
            purpose: a word for the directory's name.
            zone: the server's time zone, None for this machine's. What ClickHouse does in the
                background (a mutation) knows no zone of a session.
            seconds: how long a statement may take, None for ever.
            memory: the share of the machine's memory that it may have.

        Raises:
            SourceError: ClickHouse does not start.
        """
        self._scratch = ScratchDirectory(purpose)
        place = self._scratch.path
        try:
            config = _configured(place, memory)
            super().__init__(
                place / "clickhouse", create=True, zone=zone, config_file=config, scratch=place
            )
        except BaseException:
            self._scratch.close()
            raise
        try:
            self._check_configured()
        except BaseException:
            self.close()
            raise
        self.seconds = seconds

    @property
    def directory(self) -> Path:
        """Where files may be put that go with it."""
        return self._scratch.path

    def allow(self, rows: int, size: int) -> None:
        """Let each of the next statements take the time that rows may need.

        Args:
            rows: that they are about.
            size: of their files, in bytes.
        """
        self.seconds = LEAST_SECONDS + rows / ROWS_A_SECOND + size / BYTES_A_SECOND

    def _check_configured(self) -> None:
        """Make sure that ClickHouse has read its configuration.

        Raises:
            SourceError: it can do what it must not.
        """
        names = ", ".join(quote_string(name) for name, _ in _SETTINGS)
        asked = f"SELECT count() FROM system.settings WHERE readonly AND name IN ({names})"
        if self.rows(asked) != ((len(_SETTINGS),),):
            message = (
                f"Cannot start ClickHouse in {self.directory}: it did not read its configuration "
                "there. Let TMPDIR be a directory with a plain name."
            )
            raise SourceError(message)

    def close(self) -> None:
        """End ClickHouse and remove its directory. Closing twice is the same as once."""
        super().close()
        self._scratch.close()


def _configured(place: Path, memory: float) -> Path:
    """Write the configuration; return its path."""
    users, config = place / "users.xml", place / "config.xml"
    rights = "".join(f"<query>GRANT {of}</query>" for of in _RIGHTS)
    values = "".join(f"<{name}>{value}</{name}>" for name, value in _SETTINGS)
    fixed = "".join(f"<{name}><readonly/></{name}>" for name, _ in _SETTINGS)
    users.write_text(
        f"<clickhouse><profiles><default>{values}<constraints>{fixed}</constraints></default>"
        "</profiles><users><default><password></password><networks><ip>::/0</ip></networks>"
        f"<profile>default</profile><quota>default</quota><grants>{rights}</grants></default>"
        "</users><quotas><default></default></quotas></clickhouse>"
    )
    config.write_text(
        f"<clickhouse><users_config>{users.name}</users_config><remote_url_allow_hosts/>"
        f"<max_server_memory_usage_to_ram_ratio>{memory}</max_server_memory_usage_to_ram_ratio>"
        "</clickhouse>"
    )
    return config
