"""Runs an embedded ClickHouse on a data directory, in a child process that owns the directory.

The child is `catalog/clickhouse/child.py`. This module holds the parent's end:

- `parse_source` and `render_source` read and write the address
  `chdb:DIRECTORY[?config-file=FILE][&zone=ZONE]`.
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
from catalog.clickhouse.connection import ClickHouseError, Row, set_statement
from catalog.network import shown_address
from catalog.processes import Closing, ScratchDirectory
from catalog.secret_variables import harmless_environment
from catalog.source_defaults import DEFAULT_WAIT, STAGING_DATABASE
from tableformat.clickhouse_codes import CANNOT_OPEN_FILE, TIMEOUT_EXCEEDED
from tableformat.errors import NotFoundError, SourceError, UnsupportedError, UsageError
from tableformat.messages import Option
from tableformat.names import quote_string

__all__ = [
    "BYTES_A_SECOND",
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
_CONFIG: Final = "config-file"
_ZONE: Final = "zone"
_FORM: Final = "chdb:DIRECTORY or chdb:DIRECTORY?config-file=FILE&zone=ZONE"


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """The data directory of an embedded ClickHouse and its configuration file.

    `zone` is the time zone of the server that wrote the data ('' for this host's). The embedded
    ClickHouse ignores a `timezone` in the configuration file.
    """

    directory: Path
    config_file: Path | None = None
    zone: str = ""


def parse_source(uri: str) -> EmbeddedSettings:
    """Parse `chdb:DIRECTORY[?config-file=FILE][&zone=ZONE]`.

    Raises:
        UnsupportedError: it names another kind of source.
        UsageError: the directory or the file is missing, or there is another option.
    """
    if not uri.startswith(_SCHEME):
        message = (
            f"Cannot read the source {shown_address(uri)!r}: its kind is not known. Use "
            "https://[USER@]HOST[:PORT] for a server (its HTTP interface, not port 9000), "
            f"{_FORM} for a local data directory, or "
            "parts:DIR?ddl=FILE for frozen parts."
        )
        raise UnsupportedError(message)
    directory, mark, options = uri.removeprefix(_SCHEME).partition("?")
    pairs = [one.partition("=") for one in options.split("&")] if mark else []
    given = {name: value for name, _, value in pairs if name in (_CONFIG, _ZONE) and value}
    if not directory or len(given) < len(pairs):
        what = "no directory" if not directory else f"the options {options!r} after the directory"
        message = f"Cannot read the source {uri!r}: it has {what}. Write {_FORM}."
        raise UsageError(message)
    config = Path(given[_CONFIG]) if _CONFIG in given else None
    return EmbeddedSettings(Path(directory), config, given.get(_ZONE, ""))


def render_source(settings: EmbeddedSettings) -> str:
    """Return the text that `parse_source` parses."""
    options = ((_CONFIG, settings.config_file or ""), (_ZONE, settings.zone))
    tail = "&".join(f"{name}={value}" for name, value in options if value)
    return f"{_SCHEME}{settings.directory}{'?' if tail else ''}{tail}"


_RETRY_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 30.0
_TAIL_BYTES: Final = 2000
_CLOUDS: Final = ("AWS_", "GOOGLE_")
_NO_ZONE: Final = "Cannot load time zone"
_LOCKED: Final = ("Another server instance", "Cannot lock file")
# ClickHouse creates these in every data directory that has ever had a table.
_SIGNS_OF_DATA: Final = ("metadata", "store", "data")


class EmbeddedConnection(Closing):
    """A connection to a ClickHouse data directory, locked for other processes until `close`.

    A context manager that closes it. `seconds` limits each statement, None for no limit. A
    statement that exceeds it ends with its process; then the connection can only be closed.
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
            create: create the data directory if it does not exist.
            staging_database: the database for staging tables.
            zone: the server's time zone, None for this machine's.
            scratch: a directory of this process with the configuration. The child works in it and
                removes it when it ends.

        Raises:
            NotFoundError: the directory does not exist, or has no ClickHouse data.
            UsageError: there is no such time zone.
            SourceError: it stayed in use, or ClickHouse or Python cannot be started.
        """
        self._directory, self._in_scratch = directory.absolute(), scratch is not None
        _check_paths(self._directory, config_file, create=create)
        self._number, self._zone = 0, zone
        self._staging_database = staging_database
        self._busy = False
        self._open = True
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        child_in, self._to_child = os.pipe()
        from_child, child_out = os.pipe()
        self._responses = os.fdopen(from_child, "rb")
        try:
            self._child = _started((child_in, child_out), self._log, zone, scratch)
        except OSError as error:
            self._open = False
            self._responses.close()
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
            self.command(set_statement(self.rows))
        except BaseException:
            self.close()
            raise

    @property
    def process_id(self) -> int:
        """The id of the process that has the directory open."""
        return self._child.pid

    @property
    def address(self) -> str:
        """'': tasks read the parts as files, because this ClickHouse serves no other process."""
        return ""

    @property
    def staging_database(self) -> str:
        """The database for staging tables."""
        return self._staging_database

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: the process that runs ClickHouse ended.
        """
        return tuple(tuple(row) for row in self._request("rows", sql)["rows"])

    def command(self, sql: str) -> None:
        """Run a statement without a result.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the process that runs ClickHouse ended.
        """
        self._request("command", sql)

    def close(self) -> None:
        """Release the directory. A running statement ends with its process."""
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
        self._responses.close()
        self._log.close()

    def _open_directory(self, config_file: Path | None, wait: float) -> None:
        path = str(self._directory)
        if config_file is not None:
            # A plain file name in the scratch directory, because ClickHouse ends the path at some
            # characters.
            named = config_file.name if self._in_scratch else config_file.absolute()
            path += f"?config-file={named}"
        deadline = time.monotonic() + wait
        while True:
            log_position = os.fstat(self._log.fileno()).st_size
            try:
                self._request("open", path)
            except ClickHouseError as error:
                # The library prints the reason, and raises an error without it.
                output = self._output(log_position)
                if not any(words in output for words in _LOCKED):
                    reason = ClickHouseError(output).reason if output else error.reason
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

    def _request(self, what: str, argument: str) -> Mapping[str, Any]:
        if not self._open:
            message = (
                f"Cannot use ClickHouse on {self._directory}: the connection is closed. "
                "Open it again."
            )
            raise SourceError(message)
        if self._busy:
            # The response to that statement would be taken for the response to this one.
            message = (
                f"Cannot use ClickHouse on {self._directory}: a statement was interrupted. "
                "Close the connection and open it again."
            )
            raise SourceError(message)
        self._number += 1
        self._busy = True
        request = json.dumps({"id": self._number, what: argument}).encode() + b"\n"
        response = b""
        try:
            _write_all(self._to_child, request)
            self._wait_for_response()
            response = self._responses.readline()
        except BrokenPipeError:
            pass  # like an empty response: the child has ended
        if not response.endswith(b"\n"):
            raise self._died()
        self._busy = False
        # ClickHouse strings are bytes; surrogates keep those that are not UTF-8.
        read: Mapping[str, Any] = json.loads(response.decode("utf-8", "surrogateescape"))
        if "error" in read:
            raise ClickHouseError(read["error"])
        return read

    def _wait_for_response(self) -> None:
        """Wait until the child responds or ends, up to the time limit of a statement.

        Raises:
            ClickHouseError: the time limit is exceeded (code 159).
        """
        if self.seconds is None:
            return
        responses = select.poll()
        responses.register(self._responses, select.POLLIN)
        if not responses.poll(self.seconds * 1000):
            self._child.kill()
            reason = f"it ran longer than {self.seconds:,.0f} seconds"
            raise ClickHouseError(f"Code: {TIMEOUT_EXCEEDED}. DB::Exception: {reason}")

    def _died(self) -> SourceError | UsageError:
        status = self._child.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        output = " ".join(self._output(0)[-_TAIL_BYTES:].split())
        if self._zone and _NO_ZONE in output:
            message = (
                f"Cannot use the time zone {self._zone!r} for {self._directory}: this ClickHouse "
                "has none of that name. Name it as the server does that wrote the data, for "
                "example zone=Europe/Berlin."
            )
            return UsageError(message)
        return SourceError(
            f"Cannot read ClickHouse on {self._directory}: the process that runs it ended with "
            f"{how}{f' and printed {output!r}' if output else ''}. Run again; the next job drops "
            "what this one left in the source."
        )

    def _output(self, since: int) -> str:
        """Return the output of the child from a position in its log."""
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
            f"Name the data path of a ClickHouse, for example {Option.SOURCE} chdb:./clickhouse."
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
        f"{_holder(directory)}. Wait for it to end, or raise {Option.SOURCE_WAIT}.",
        code=CANNOT_OPEN_FILE,
    )


def _holder(directory: Path) -> str:
    """Return the process and start time in a directory's status file, as text for a message."""
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
        # A terminal sends Ctrl-C to all processes of a session; the child must end its statement
        # first.
        start_new_session=True,
    )


def _environment(*, alone: bool) -> dict[str, str]:
    """Return an environment in which the child finds our packages, without secrets.

    With `alone`, the child opens no disk of the user and gets no variables of Amazon and Google.
    """
    packages = str(Path(catalog.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    given = harmless_environment()
    if alone:
        given = {name: text for name, text in given.items() if not name.startswith(_CLOUDS)}
    return given | {"PYTHONPATH": packages + (os.pathsep + others if others else "")}


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_RIGHTS: Final = (
    "SHOW, SELECT, INSERT, ALTER, TRUNCATE, OPTIMIZE, CHECK ON *.*",
    "CREATE DATABASE, CREATE TABLE, CREATE TEMPORARY TABLE, DROP TABLE ON *.*",
    "READ, WRITE ON FILE",
)
"""The rights of its only user. Background work, such as mutations, runs without a user."""
_SETTINGS: Final = (("allow_introspection_functions", "0"), ("allow_ddl", "1"))
"""Settings that no statement can change."""
MEMORY: Final = 0.5
"""The share of the machine's memory that it may use."""
LEAST_SECONDS: Final = 60.0
"""Seconds that a statement with text of others may take, before time for its rows is added."""
ROWS_A_SECOND: Final = 10_000
BYTES_A_SECOND: Final = 1 << 20
"""Each of these adds a second to the limit."""


class OwnClickHouse(EmbeddedConnection):
    """An empty ClickHouse in a temporary directory, which `close` removes with it."""

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
            zone: the server's time zone, None for this machine's. Background work (a mutation) uses
                it, not the zone of a session.
            seconds: the time limit of a statement, None for no limit.
            memory: the share of the machine's memory that it may use.

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
        """The directory, removed by `close`; callers may put files there."""
        return self._scratch.path

    def allow(self, rows: int, size: int) -> None:
        """Set the time limit of the following statements to what their rows may need.

        Args:
            rows: their number of rows.
            size: the size of the files with the rows, in bytes.
        """
        self.seconds = LEAST_SECONDS + rows / ROWS_A_SECOND + size / BYTES_A_SECOND

    def _check_configured(self) -> None:
        """Check that ClickHouse has read its configuration.

        Raises:
            SourceError: it has not, so it has rights that it must not have.
        """
        names = ", ".join(quote_string(name) for name, _ in _SETTINGS)
        query = f"SELECT count() FROM system.settings WHERE readonly AND name IN ({names})"
        if self.rows(query) != ((len(_SETTINGS),),):
            message = (
                f"Cannot start ClickHouse in {self.directory}: it did not read its configuration "
                "there. Let TMPDIR be a directory with a plain name."
            )
            raise SourceError(message)

    def close(self) -> None:
        """End ClickHouse and remove its directory; closing again does nothing."""
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
