"""The oldest ClickHouse that is supported, 18.16.1 of Debian's packages: two replicas, for tests.

`make servers` gets the packages. Both replicas listen on free ports of the loopback interface and
share a ZooKeeper; macros: `shard` (01 on both), `replica` (r1, r2), `own_shard` (1, 2). Clusters:
`pair` is one shard of the two replicas, `shards` two shards of one replica each. The users
`default` (no password), `exporter` (password `old-pair-secret`) and `reader` (read-only) are there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from tests.services.server_process import ServerProcess, free_port, wait_until
from tests.services.zookeeper import ZooKeeper, zookeeper
from tests.support.tiers import check_nightly

__all__ = ["PASSWORD", "OldPair", "OldReplica", "old_pair"]

PASSWORD: Final = "old-pair-secret"  # noqa: S105  of a server that only tests reach
_FILES: Final = Path(__file__).parents[2] / ".servers" / "clickhouse-18.16"
_SECONDS: Final = 60.0


class OldReplica(ServerProcess):
    """One server of the pair; its data outlives its end."""

    def __init__(self, number: int, directory: Path) -> None:
        check_nightly("ClickHouse 18.16")
        self.number, self.directory = number, directory
        self.http_port, self.tcp_port, self.interserver_port = (free_port() for _ in range(3))
        self.url = f"http://127.0.0.1:{self.http_port}"
        libraries = [str(_FILES / name / "x86_64-linux-gnu") for name in ("usr/lib", "lib")]
        program = str(_FILES / "usr" / "sbin" / "clickhouse-server")
        command = [
            *("env", f"LD_LIBRARY_PATH={':'.join(libraries)}"),
            *(program, f"--config-file={directory}/config.xml"),
        ]
        super().__init__(f"ClickHouse 18.16 r{number}", command, directory, self._responds)

    def query(self, sql: str, *, seconds: float = _SECONDS, **parameters: str) -> str:
        """Return the server's response, without the last line end."""
        status, response = self._ask("POST", f"/?{urlencode(parameters)}", sql, seconds)
        if status != HTTPStatus.OK:
            message = f"{response}\nin {sql}"
            raise RuntimeError(message)
        return response.removesuffix("\n")

    def has_keeper(self) -> bool:
        """Whether statements go through ZooKeeper to both servers and get a response."""
        try:
            self.query("DROP DATABASE IF EXISTS never_made ON CLUSTER shards")
        except RuntimeError:
            return False
        except OSError:
            # This version may crash over ON CLUSTER shortly after a start.
            self.start()
            return False
        return True

    def configure(self, keeper: ZooKeeper, replicas: tuple[OldReplica, ...]) -> None:
        """Write the configuration and the users."""
        for name in ("data", "scratch", "files", "schemas"):
            (self.directory / name).mkdir()
        (self.directory / "config.xml").write_text(self._config(keeper, replicas))
        (self.directory / "users.xml").write_text(_USERS)

    def _config(self, keeper: ZooKeeper, replicas: tuple[OldReplica, ...]) -> str:
        here = self.directory
        nodes = [
            f"<replica><host>127.0.0.1</host><port>{one.tcp_port}</port></replica>"
            for one in replicas
        ]
        pair = f"<internal_replication>true</internal_replication>{''.join(nodes)}"
        shards = "".join(f"<shard>{node}</shard>" for node in nodes)
        return f"""<yandex>
  <logger><level>information</level><log>{here}/log</log><errorlog>{here}/errors</errorlog></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{self.http_port}</http_port><tcp_port>{self.tcp_port}</tcp_port>
  <interserver_http_port>{self.interserver_port}</interserver_http_port>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <path>{here}/data/</path><tmp_path>{here}/scratch/</tmp_path>
  <user_files_path>{here}/files/</user_files_path>
  <format_schema_path>{here}/schemas/</format_schema_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <timezone>UTC</timezone>
  <mark_cache_size>67108864</mark_cache_size><uncompressed_cache_size>0</uncompressed_cache_size>
  <max_connections>100</max_connections><keep_alive_timeout>3</keep_alive_timeout>
  <zookeeper><node index="1"><host>127.0.0.1</host><port>{keeper.port}</port></node>
    <session_timeout_ms>4000</session_timeout_ms></zookeeper>
  <macros><shard>01</shard><replica>r{self.number}</replica>
    <own_shard>{self.number}</own_shard></macros>
  <remote_servers><pair><shard>{pair}</shard></pair><shards>{shards}</shards></remote_servers>
  <merge_tree><zookeeper_session_expiration_check_period>1</zookeeper_session_expiration_check_period>
  </merge_tree>
  <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
  <query_log><database>system</database><table>query_log</table>
    <flush_interval_milliseconds>500</flush_interval_milliseconds></query_log>
  <graphite_rollup><default><function>avg</function>
    <retention><age>0</age><precision>60</precision></retention></default></graphite_rollup>
</yandex>"""

    def _responds(self) -> bool:
        try:
            return self._ask("GET", "/ping", "", 1.0) == (HTTPStatus.OK, "Ok.\n")
        except OSError:
            return False

    def _ask(self, method: str, path: str, sql: str, seconds: float) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request(method, path, sql.encode())
            response = connection.getresponse()
            return response.status, response.read().decode()


class OldPair:
    """Two replicas, 1 and 2, and their ZooKeeper."""

    def __init__(self, keeper: ZooKeeper, replicas: tuple[OldReplica, OldReplica]) -> None:
        self.zookeeper, self._replicas = keeper, replicas
        self._servers = (keeper, *replicas)
        self._settled = [server.starts for server in self._servers]

    def replica(self, number: int) -> OldReplica:
        """Return one of the two servers."""
        return self._replicas[number - 1]

    def url(self, number: int) -> str:
        """Return the address of a replica."""
        return self.replica(number).url

    def query(self, number: int, sql: str) -> str:
        """Return a replica's response, as tab-separated text unless the query names a format."""
        return self.replica(number).query(sql)

    def make_room(self, number: int, name: str) -> None:
        """Have a database `db` without a table of this name, which another test may have left."""
        self.query(number, "CREATE DATABASE IF NOT EXISTS db")
        self.query(number, f"DROP TABLE IF EXISTS db.{name}")

    def start(self, number: int) -> None:
        """Start a replica, unless it runs; return when it responds."""
        self.replica(number).start()

    def kill(self, number: int) -> None:
        """End a replica at once; its data stays."""
        self.replica(number).kill()

    def pause(self, number: int) -> None:
        """Let a replica stand still with all connections open."""
        self.replica(number).pause()

    def resume(self, number: int) -> None:
        """Let a replica go on."""
        self.replica(number).resume()

    def forget_staging(self) -> None:
        """Drop what killed exports of a test left: the next one counts its own."""
        for number in (1, 2):
            for database in self.query(number, _STAGING).split():
                self.query(number, f"DROP DATABASE {database}")

    def mend(self) -> None:
        """Let everything run that was ended or stands still."""
        for server in self._servers:
            server.resume()
            server.start()
        starts = [server.starts for server in self._servers]
        if starts == self._settled:
            return
        self._settled = starts
        for replica in self._replicas:
            wait_until(replica.has_keeper, "a replica had its session with ZooKeeper again")


@contextlib.contextmanager
def old_pair() -> Iterator[OldPair]:
    """Run the pair for the time of a context; nothing of it is left."""
    assert _FILES.is_dir(), "there is no ClickHouse 18.16 for the tests: run `make servers`"
    with zookeeper() as keeper, tempfile.TemporaryDirectory(prefix="mergeberg-old-") as made:
        first, second = (OldReplica(number, Path(made) / f"r{number}") for number in (1, 2))
        try:
            for replica in (first, second):
                replica.directory.mkdir()
                replica.configure(keeper, (first, second))
                replica.start()
            yield OldPair(keeper, (first, second))
        finally:
            first.kill()
            second.kill()


_STAGING: Final = "SELECT name FROM system.databases WHERE name LIKE '%staging%'"
_USERS: Final = f"""<yandex>
  <profiles>
    <default><max_memory_usage>2000000000</max_memory_usage><max_threads>2</max_threads>
      <log_queries>1</log_queries></default>
    <readonly><readonly>1</readonly></readonly>
  </profiles>
  <users>
    <default><password></password><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota></default>
    <exporter><password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota></exporter>
    <reader><password></password><networks><ip>127.0.0.1</ip></networks>
      <profile>readonly</profile><quota>default</quota></reader>
  </users>
  <quotas><default><interval><duration>3600</duration><queries>0</queries><errors>0</errors>
    <result_rows>0</result_rows><read_rows>0</read_rows><execution_time>0</execution_time>
  </interval></default></quotas>
</yandex>"""
