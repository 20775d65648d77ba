"""A real ZooKeeper for tests: the jars that Spark brings, run by the Java that Spark runs on."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark

from spark_ext.java import find_java
from tests.server_process import ServerProcess, free_port

__all__ = ["ZooKeeper", "zookeeper"]

_JARS: Final = ("zookeeper-*", "slf4j-api-*", "log4j-*", "metrics-core-*", "snappy-java-*")
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"


class ZooKeeper(ServerProcess):
    """A ZooKeeper of one server; what it has stored outlives its end."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        (directory / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={directory}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=srvr\n"
        )
        jars = Path(pyspark.__file__).parent / "jars"
        found = (str(jar) for pattern in _JARS for jar in jars.glob(f"{pattern}.jar"))
        java = str(find_java(os.environ).home / "bin" / "java")
        flags = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        classes = os.pathsep.join(found)
        command = [java, *flags, "-cp", classes, _MAIN, str(directory / "zoo.cfg")]
        super().__init__("ZooKeeper", command, directory, self._answers)

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
        ):
            connection.sendall(b"srvr")
            # Before it serves requests it answers that it does not.
            with connection.makefile("rb") as answer:
                return b"Mode: standalone" in answer.read()
        return False


@contextlib.contextmanager
def zookeeper() -> Iterator[ZooKeeper]:
    """Run a ZooKeeper for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-zk-") as directory:
        server = ZooKeeper(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.kill()
