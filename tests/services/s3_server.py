"""An S3 server of tests: a process with its own authority, which boto3 reaches over TLS."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.services.certificates import Authority, Identity
from tests.services.server_process import ServerProcess, free_port

__all__ = ["Account", "S3Server", "running"]

_ONCE: Final = Config(
    connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1, "mode": "standard"}
)
"""So that a test sees every response itself."""


@dataclass(frozen=True, slots=True)
class Account:
    """Credentials as a client has them; a token belongs to those that end by themselves."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class S3Server(ServerProcess, ABC):
    """An object store with one administrator; what it has stored outlives its end."""

    region = "us-east-1"

    def __init__(self, name: str, directory: Path, *, seconds: float) -> None:
        """Choose a port and make certificates; nothing is started yet.

        Args:
            name: of the program, for messages.
            directory: where all of it is kept.
            seconds: in which it must start.
        """
        self._numbers = itertools.count()
        self.port = free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}"
        self.root = Account("administrator", "administrator's secret")
        self.access_key, self.secret_key = self.root.access_key, self.root.secret_key
        authority = Authority(directory)
        self.ca_file = authority.file
        """The authority's certificate, as PEM."""
        command = self._prepared(directory, authority.sign())
        super().__init__(name, command, directory, self._responds, seconds=seconds)

    @abstractmethod
    def _prepared(self, directory: Path, identity: Identity) -> list[str]:
        """Write what the program reads when it starts; return the command that starts it."""

    def make_bucket(self, name: str = "lake") -> str:
        """Make a bucket that no other test has; return its name, which begins with `name`."""
        made = f"{name}-{next(self._numbers)}"
        self.client().create_bucket(Bucket=made)
        return made

    def client(self, account: Account | None = None, *, endpoint: str | None = None) -> Any:
        """Return boto3's client for an account, the administrator's else; it never retries.

        Args:
            account: whose credentials it uses.
            endpoint: where it asks instead, as the proxy of a network fault.
        """
        return self._client("s3", account, endpoint)

    def _client(
        self, service: str, account: Account | None = None, endpoint: str | None = None
    ) -> Any:
        whose = account or self.root
        # A session of its own: boto3's common one is not for several threads.
        return boto3.session.Session().client(
            service,
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id=whose.access_key,
            aws_secret_access_key=whose.secret_key,
            aws_session_token=whose.token,
            region_name=self.region,
            verify=str(self.ca_file),
            config=_ONCE,
        )

    def _responds(self) -> bool:
        # A server may respond some time before it knows its accounts.
        with contextlib.suppress(BotoCoreError, ClientError):
            self.client().list_buckets()
            return True
        return False


S = TypeVar("S", bound=S3Server)


@contextlib.contextmanager
def running(kind: Callable[[Path], S]) -> Iterator[S]:
    """Run a server of a kind for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-s3-") as directory:
        server = kind(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()
