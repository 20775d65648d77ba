"""A standalone cluster of Spark's: one master and workers as processes, over a shared directory."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.services.server_process import ServerProcess, free_port
from tests.support.interfaces import Interfaces
from tests.support.processes import command_line, processes
from tests.support.quick_java import QUICK_JAVA

__all__ = ["CLUSTER_CONF", "HOSTS", "Cluster", "ask", "executors"]

# Two names of one address, as macOS has no second one of the loopback interface. Spark takes them
# for two hosts, and so a copy of a slow task may run on the other.
HOSTS: Final = ("127.0.0.1", "localhost")
_OPTIONS: Final = " ".join(QUICK_JAVA)
CLUSTER_CONF: Final = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _OPTIONS,
    # No task begins before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.ui.enabled": "true",
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.2",
}
"""The settings of an application that has an executor on each host, and copies slow tasks."""


@dataclass
class Cluster:
    """A master and its workers; `ui_port` is of the web interface of an application there."""

    interfaces: Interfaces
    ui_port: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    servers: list[ServerProcess] = field(default_factory=list)

    @property
    def master(self) -> str:
        """Where the master is, as Spark writes it."""
        return f"spark://{HOSTS[0]}:{self.port}"

    @property
    def application(self) -> str:
        """Where the web interface of the one application tells of it as JSON.

        Raises:
            OSError: it is not there yet.
            ValueError: it says in words that it is starting.
        """
        api = f"http://127.0.0.1:{self.ui_port}/api/v1/applications"
        (one,) = ask(api)
        return f"{api}/{one['id']}"

    def start(self, name: str, host: str, program: str, *, before: str = "") -> ServerProcess:
        """Start one of them; `before` it stands in its command."""
        start = f"{before} spark-class org.apache.spark.deploy.{program} --host {host}"
        java = f"SPARK_DAEMON_MEMORY=192m 'SPARK_DAEMON_JAVA_OPTS={_OPTIONS}'"
        command = f"env {java} {start}"
        port = free_port()
        server = self.interfaces.server(name, f"{command} --webui-port {port}", port, host=host)
        server.start()
        self.servers.append(server)
        return server

    def start_master(self) -> None:
        """Start the master."""
        self.start("master", HOSTS[0], f"master.Master --port {self.port}")

    def worker(self, name: str, host: str, *, before: str = "") -> ServerProcess:
        """Start a worker of one core."""
        program = f"worker.Worker {self.master} --cores 1 --memory 600m"
        place = f"--work-dir {self.interfaces.root / name}"
        return self.start(name, host, f"{program} {place}", before=before)

    def end(self) -> None:
        """End them all."""
        for server in self.servers:
            server.kill()


def executors(host: str, root: Path) -> list[int]:
    """Return the processes that run tasks on one of the hosts."""
    found = {one: command_line(one) for one in processes()}
    return [
        one
        for one, words in found.items()
        if f"{root}" in " ".join(words) and {"--hostname", host} <= set(words)
    ]


def ask(place: str) -> Any:
    """Return what Spark's web interface says."""
    with urllib.request.urlopen(place, timeout=30) as response:  # noqa: S310
        return json.load(response)
