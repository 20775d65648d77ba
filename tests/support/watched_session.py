"""A user's own Spark session in a process of its own, and everything of it that others could see.

What `tests/support/watched_export.py` looks at, and what else a session shows: the pages of
Spark's web interface (Environment, SQL), the event log, the driver's log. The settings stand in
`spark-defaults.conf`, as somebody writes them there who wants them out of the list of processes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_ext.engine.java import find_java
from tests.support.watched_export import WatchedExport

__all__ = ["WatchedSession"]

_CONF: Final = "conf"
_LOG: Final = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass
class WatchedSession(WatchedExport):
    """One session; `secrets` are looked for, by names that say where each was given."""

    secret: bytes = b"there is no such secret"
    secrets: Mapping[str, str] = field(default_factory=dict)

    def give(
        self,
        steps: Sequence[Mapping[str, object]],
        *,
        conf: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run a session to its end; what it says is in `out`, the driver's log in `err`.

        Args:
            steps: those of `tests/support/session_program.py`, in order.
            conf: the user's settings.
            environment: what the session's process gets in addition to its own.
        """
        for name in (_CONF, "events", "spark", "pages"):
            (self.root / name).mkdir(exist_ok=True)
        settings = {
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.ui.port": "0",
            "spark.ui.showConsoleProgress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{self.root}/events",
            "spark.sql.ui.explainMode": "extended",
            "spark.local.dir": f"{self.root}/spark",
            "spark.sql.warehouse.dir": f"{self.root}/spark-warehouse",
            **conf,
        }
        directory = self.root / _CONF
        file = directory / "spark-defaults.conf"
        file.write_text("".join(f"{name} {text}\n" for name, text in settings.items()))
        file.chmod(0o600)
        (directory / "log4j2.properties").write_text(_LOG)
        asked = self.root / "pages" / "steps.json"
        asked.write_text(json.dumps([*steps]))
        given = {
            "SPARK_CONF_DIR": str(directory),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(find_java(os.environ).home),
            "PYSPARK_PYTHON": sys.executable,
            "PYICEBERG_HOME": str(self.root),
            **(environment or {}),
        }
        self.watch([sys.executable, "-P", "-m", "tests.support.session_program", str(asked)], given)

    def everything(self) -> Iterator[tuple[str, bytes]]:
        """Yield what is left and was seen, but for the file in which the user wrote the secrets."""
        user = {f"{_CONF}/spark-defaults.conf", "pages/steps.json"}
        yield from ((name, content) for name, content in super().everything() if name not in user)

    def shown(self, *, environments: bool = True) -> list[tuple[str, str]]:
        """Return which secret, by its name, is shown by what.

        Args:
            environments: whether to look at those of processes too, which inherit what the user
                gave to the session's own.
        """
        return [
            (secret, name)
            for name, content in self.everything()
            if environments or not name.startswith("environment of")
            for secret, text in self.secrets.items()
            if text.encode() in content
        ]
