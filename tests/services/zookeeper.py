"""Real ZooKeepers for tests: the jars that Spark brings, run by the Java that Spark runs on."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from spark_ext.engine.java import find_java
from tests.services.certificates import Authority
from tests.services.server_process import ServerProcess, free_port, wait_until
from tests.support.quick_java import QUICK_JAVA

__all__ = ["Ensemble", "TlsPort", "ZooKeeper", "zookeeper", "zookeeper_ensemble"]

_JARS: Final = (
    *("zookeeper-*", "slf4j-api-*", "log4j-*", "metrics-core-*", "snappy-java-*"),
    # What listens with TLS.
    *("netty-common-*", "netty-buffer-*", "netty-codec-*", "netty-handler-*", "netty-resolver-*"),
    "netty-transport-*",
)
_ALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_OF_SEVERAL: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True, slots=True)
class TlsPort:
    """That a server speaks TLS alone; an authority signs its certificate.

    With `demands_client` it turns clients away that have no certificate of the same authority.
    """

    authority: Authority
    demands_client: bool = False


class ZooKeeper(ServerProcess):
    """One server; what it has stored outlives its end."""

    def __init__(
        self,
        directory: Path,
        *,
        tls: TlsPort | None = None,
        ensemble: Mapping[str, str] | None = None,
    ) -> None:
        """Configure it.

        Args:
            directory: an existing one, of its own.
            tls: how it speaks TLS; without, it does not.
            ensemble: the settings that make it one of several.
        """
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._client = tls and _client_context(tls)
        settings = {
            # So that a session may end after a second without a word.
            "tickTime": "500",
            "dataDir": f"{directory}/data",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "srvr,dump",
            **(_tls_settings(tls, directory, self.port) if tls else _plain_settings(self.port)),
            **(ensemble or {}),
        }
        lines = "".join(f"{name}={text}\n" for name, text in settings.items())
        (directory / "zoo.cfg").write_text(lines)
        jars = Path(pyspark.__file__).parent / "jars"
        found = (str(jar) for pattern in _JARS for jar in jars.glob(f"{pattern}.jar"))
        java = str(find_java(os.environ).home / "bin" / "java")
        flags = ("-Xmx128m", *QUICK_JAVA)
        classes = os.pathsep.join(found)
        main = _OF_SEVERAL if ensemble else _ALONE
        command = [java, *flags, "-cp", classes, main, str(directory / "zoo.cfg")]
        super().__init__("ZooKeeper", command, directory, lambda: bool(self.mode))

    @property
    def mode(self) -> str:
        """How it serves: `standalone`, `leader`, `follower`; '' when it does not."""
        # Before it serves requests it responds that it does not.
        found = re.search(r"^Mode: (\w+)", self._response(b"srvr"), re.MULTILINE)
        return found[1] if found else ""

    @property
    def sessions(self) -> frozenset[int]:
        """The numbers of all sessions that are not over; of several servers the leader knows."""
        dumps: list[str] = []

        def has_dump() -> bool:
            dumps[:] = [self._response(b"dump")]
            return bool(dumps[0])

        wait_until(has_dump, "ZooKeeper told its sessions")
        return frozenset(int(one, 16) for one in re.findall(r"0x[0-9a-f]+", dumps[0]))

    def _response(self, word: bytes) -> str:
        """Return what it says to a word of its administrators, '' when it does not respond."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as plain,
            self._client.wrap_socket(plain, server_hostname="127.0.0.1")
            if self._client
            else plain as connection,
        ):
            connection.sendall(word)
            with connection.makefile("r", encoding="utf-8") as response:
                return response.read()
        return ""


class Ensemble:
    """Three servers that serve while two of them run; `address` names them all."""

    def __init__(self, directory: Path) -> None:
        """Configure them, in directories below one."""
        places = [directory / str(number) for number in (1, 2, 3)]
        peers = {
            f"server.{place.name}": f"127.0.0.1:{free_port()}:{free_port()}" for place in places
        }
        for place in places:
            (place / "data").mkdir(parents=True)
            (place / "data" / "myid").write_text(place.name)
        settings = {"initLimit": "20", "syncLimit": "4", **peers}
        self.servers = tuple(ZooKeeper(place, ensemble=settings) for place in places)
        self.address = ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start those that do not run, and continue those that are paused."""
        for server in self.servers:
            server.resume()
        # None responds before a second one is there.
        with ThreadPoolExecutor(len(self.servers)) as threads:
            list(threads.map(ZooKeeper.start, self.servers))

    def kill(self) -> None:
        """End them all at once."""
        for server in self.servers:
            server.kill()

    def leader(self) -> ZooKeeper:
        """Return the one that leads; where the others have just lost theirs, wait for the next."""
        found: list[ZooKeeper] = []

        def is_found() -> bool:
            found[:] = [server for server in self.servers if server.mode == "leader"]
            return len(found) == 1

        wait_until(is_found, "one ZooKeeper of several led")
        return found[0]


@contextlib.contextmanager
def zookeeper(tls: TlsPort | None = None) -> Iterator[ZooKeeper]:
    """Run a server for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-zk-") as directory:
        server = ZooKeeper(Path(directory), tls=tls)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def zookeeper_ensemble() -> Iterator[Ensemble]:
    """Run three servers for the time of a context; nothing of them is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-zks-") as directory:
        servers = Ensemble(Path(directory))
        try:
            servers.start()
            yield servers
        finally:
            servers.kill()


def _plain_settings(port: int) -> dict[str, str]:
    return {"clientPort": str(port), "clientPortAddress": "127.0.0.1"}


def _tls_settings(tls: TlsPort, directory: Path, port: int) -> dict[str, str]:
    signed = tls.authority.sign()
    both = directory / "server.pem"
    both.write_text("".join(signed.texts))
    return {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(both),
        "ssl.trustStore.location": str(tls.authority.file),
        "ssl.clientAuth": "need" if tls.demands_client else "none",
    }


def _client_context(tls: TlsPort) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tls.authority.file))
    mine = tls.authority.sign(subject="the tests")
    context.load_cert_chain(mine.certificate, mine.key)
    return context
