"""An embedded ClickHouse: opened only where there is one, by one process at a time; released."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import NotFoundError, SourceError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data path with a table of three rows; its name needs care in a shell and in a URI."""
    path = tmp_path / "données de test"
    with EmbeddedConnection(path, create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command("CREATE TABLE db.t (k UInt64) ENGINE = MergeTree ORDER BY k")
        connection.command("INSERT INTO db.t SELECT number FROM numbers(3)")
    return path


def test_what_was_written_is_there_when_the_directory_is_opened_again(directory: Path) -> None:
    """Letting go of the directory between two steps of a job must lose nothing."""
    with EmbeddedConnection(directory) as connection:
        assert connection.rows("SELECT k FROM db.t ORDER BY k") == ((0,), (1,), (2,))


def test_a_mistyped_path_is_refused_and_nothing_is_made_there(tmp_path: Path) -> None:
    """ClickHouse would make an empty data directory and report a missing table."""
    with pytest.raises(NotFoundError, match=r"there is no such directory\. Name the data path"):
        EmbeddedConnection(tmp_path / "nosuch")

    assert not (tmp_path / "nosuch").exists()


def test_a_directory_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()

    with pytest.raises(NotFoundError, match="it holds no ClickHouse data"):
        EmbeddedConnection(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_missing_configuration_file_is_named(directory: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no configuration file .*nosuch\.xml"):
        EmbeddedConnection(directory, config_file=directory / "nosuch.xml")


def test_a_broken_configuration_file_gives_clickhouses_reason(directory: Path) -> None:
    config = directory.parent / "config.xml"
    config.write_text("<clickhouse><unclosed></clickhouse>")

    with pytest.raises(SourceError, match=r"Cannot open the ClickHouse directory .*Check"):
        EmbeddedConnection(directory, config_file=config)


def test_a_directory_in_use_is_refused_after_the_wait_and_its_user_is_named(
    directory: Path,
) -> None:
    with EmbeddedConnection(directory) as first:
        match = rf"in use by another process \({first.process_id}\) since .*--source-wait"
        with pytest.raises(SourceError, match=match):
            EmbeddedConnection(directory, wait=0)

        assert first.rows("SELECT count() FROM db.t") == ((3,),)


def test_the_wait_ends_when_the_other_process_releases_it(directory: Path) -> None:
    first = EmbeddedConnection(directory)
    opened: list[object] = []

    def wait_and_read() -> None:
        with EmbeddedConnection(directory, wait=60) as second:
            opened.extend(second.rows("SELECT count() FROM db.t"))

    waiting = threading.Thread(target=wait_and_read)
    waiting.start()
    first.rows("SELECT sleep(0.5)")
    assert not opened
    first.close()
    waiting.join()

    assert opened == [(3,)]


def test_a_killed_process_is_an_error_that_says_how_it_ended(directory: Path) -> None:
    """Out of memory looks like this; the job must not take it for an empty response."""
    with EmbeddedConnection(directory) as connection:
        killer = threading.Timer(0.3, os.kill, (connection.process_id, signal.SIGKILL))
        killer.start()
        with pytest.raises(SourceError, match="ended with signal 9"):
            connection.rows(
                "SELECT sum(sleepEachRow(1)) FROM numbers(60) SETTINGS max_block_size=1"
            )
        killer.join()
        with pytest.raises(SourceError, match=r"ended with signal 9|was interrupted"):
            connection.rows("SELECT 1")

    with EmbeddedConnection(directory, wait=10) as connection:
        assert connection.rows("SELECT count() FROM db.t") == ((3,),)


def test_closing_cancels_a_statement_that_was_interrupted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a part of 100 GB is checked must give the directory free at once."""
    connection = EmbeddedConnection(directory)

    class Interrupted:
        def readline(self) -> bytes:
            raise KeyboardInterrupt

        def close(self) -> None: ...

    responses = connection._responses
    monkeypatch.setattr(connection, "_responses", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        connection.rows("SELECT sum(sleepEachRow(1)) FROM numbers(60) SETTINGS max_block_size = 1")
    with pytest.raises(SourceError, match="a statement was interrupted"):
        connection.rows("SELECT 1")
    connection.close()
    responses.close()

    EmbeddedConnection(directory, wait=5).close()


def test_ctrl_c_does_not_reach_the_process(directory: Path) -> None:
    """A terminal sends it to every process of the session."""
    with EmbeddedConnection(directory) as connection:
        assert os.getsid(connection.process_id) != os.getsid(0)


def test_a_closed_connection_says_so_and_closes_again(directory: Path) -> None:
    connection = EmbeddedConnection(directory)
    connection.close()
    connection.close()

    with pytest.raises(SourceError, match="the connection is closed"):
        connection.rows("SELECT 1")


def test_values_arrive_without_loss(directory: Path) -> None:
    """A row count or a hash that lost a digit would be compared wrongly."""
    with EmbeddedConnection(directory) as connection:
        assert connection.rows(
            "SELECT toUInt64(-1), toInt64(-9223372036854775808), toUInt256(-1),"
            " toDecimal64('1.10', 2), nan, NULL, [1, 2], 'a\\n\\t\\'\"\\\\é\\0', unhex('ff41')"
        ) == (
            (
                2**64 - 1,
                -(2**63),
                2**256 - 1,
                "1.1",
                "nan",
                None,
                [1, 2],
                "a\n\t'\"\\é\0",
                "\udcffA",
            ),
        )


def test_an_error_carries_clickhouses_code_and_one_line(directory: Path) -> None:
    with EmbeddedConnection(directory) as connection:
        with pytest.raises(ClickHouseError, match=r"Unknown table .*nosuch.*\.\Z") as raised:
            connection.rows("SELECT * FROM nosuch")

        assert raised.value.code == 60
        assert connection.rows("SELECT 1") == ((1,),)


def test_rows_of_a_failed_query_are_not_in_the_next_result(directory: Path) -> None:
    """ClickHouse in a process keeps them: counts and part lists after an error would be wrong."""
    failing = (
        "SELECT number, throwIf(number = 70000) FROM numbers(100000) SETTINGS max_block_size = 1000"
    )
    with EmbeddedConnection(directory) as connection:
        for _ in range(3):
            with pytest.raises(ClickHouseError, match="throwIf"):
                connection.rows(failing)
            with pytest.raises(ClickHouseError, match="throwIf"):
                connection.command(failing)
            assert connection.rows("SELECT count() FROM db.t") == ((3,),)


def test_a_python_that_cannot_run_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a bare PermissionError that names neither what was to be done nor why."""
    monkeypatch.setattr("sys.executable", str(tmp_path))

    with pytest.raises(SourceError, match=f"Cannot start ClickHouse .*{tmp_path} cannot be run: "):
        EmbeddedConnection(tmp_path / "made", create=True)


def test_the_profile_of_a_configuration_hides_no_row(directory: Path) -> None:
    """Harm prevented: `limit` cuts the list of partitions, and `export --all` ends without them."""
    config, users = directory.parent / "config.xml", directory.parent / "users.xml"
    config.write_text(f"<clickhouse><users_config>{users}</users_config></clickhouse>")
    users.write_text(
        "<clickhouse><profiles><default><limit>1</limit><date_time_output_format>iso"
        "</date_time_output_format><session_timezone>Asia/Tokyo</session_timezone></default>"
        "</profiles>"
        "<users><default><password></password><networks><ip>::/0</ip></networks>"
        "<profile>default</profile><quota>default</quota></default></users>"
        "<quotas><default></default></quotas></clickhouse>"
    )
    with EmbeddedConnection(directory, config_file=config) as connection:
        assert connection.rows("SELECT k FROM db.t ORDER BY k") == ((0,), (1,), (2,))
        assert connection.rows("SELECT toString(toDateTime(0, 'UTC')), timezone()") == (
            ("1970-01-01 00:00:00", connection.rows("SELECT serverTimezone()")[0][0]),
        )
