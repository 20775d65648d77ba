"""Whole exports into every object store: an Iceberg table by a catalog, and a tree of directories.

As a user runs them: a process of its own, the catalog configured once, for PyIceberg; tasks on
Spark get what they need from there. The stores are local servers, over TLS.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from pathlib import Path

import pytest

from catalog.storages.hdfs.store import IN_PROGRESS
from tests.services.server_process import wait_until
from tests.support.far_lake import SECONDS, FarLake
from tests.support.local_spark import SPARK_MARKS
from tests.support.s3_places import properties_of
from tests.support.store_kinds import EVERY, AbfsPlace, GsPlace, HdfsPlace, MinIOPlace, S3ProxyPlace
from tests.support.store_places import Place, over

pytestmark = SPARK_MARKS

# At random, so that a file of them is large, too.
LARGE = "'x', number, randomPrintableASCII(20000)"
INSTALLED = (MinIOPlace, GsPlace, AbfsPlace, HdfsPlace)
"""One server for each store, with accounts where it can have them."""
NEEDED = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")
"""The rights without which nothing is exported."""


@pytest.fixture
def lake(place: Place, tmp_path: Path) -> FarLake:
    """Make a table of small rows, and a lake in the place."""
    return FarLake(tmp_path, place)


@over(*EVERY, representative=S3ProxyPlace)
def test_an_export_is_there_once_and_shows_no_secret(lake: FarLake) -> None:
    """The second run finds it there, and compares it with the source."""
    first = lake.exported("first")
    written = lake.objects()
    second = lake.exported("second")

    assert (first.code, first.out.count(": exported"), first.out.count("verified")) == (0, 2, 2), (
        first.out + first.err
    )
    assert (second.code, second.out.count(": already exported")) == (0, 2), second.out + second.err
    assert lake.check_rows() == {"a b", "ü:=%2F"}
    assert lake.objects() == written
    assert len(lake.files()) == 2
    assert lake.place.storage.list_unfinished(lake.root) == ()
    assert [lake.shown(run) for run in (first, second)] == [[], []]
    assert first.broadcast_modes == ({(0o600, 0o700)} if lake.secrets else set())


@over(*INSTALLED)
def test_a_tree_is_written_once_and_can_be_verified(lake: FarLake) -> None:
    """No name in HDFS can have a colon, but the value of a partition key may."""
    lake.to = f"hive:{lake.root}/a tree"

    first = lake.exported("first")
    written = lake.objects()
    second = lake.ended("export", *lake.words())
    verified = lake.ended("verify", *lake.words())

    assert (first.code, first.out.count("verified")) == (0, 2), first.out + first.err
    assert (second[0], second[1].count(": already exported")) == (0, 2), second[1]
    assert verified[0] == 0, verified[1]
    assert lake.objects() == written
    assert sorted(name.split("/")[-2] for name in lake.files()) == ["p=a%20b", "p=ü%3A%3D%252F"]
    assert lake.place.passes_variables or lake.shown(first) == []


@over(S3ProxyPlace, GsPlace, AbfsPlace)
def test_a_missing_bucket_fails_at_once_and_says_what_to_do(
    lake: FarLake, place: S3ProxyPlace | GsPlace | AbfsPlace
) -> None:
    """Harm prevented: fifteen minutes of trying what will never work."""
    lake.root = place.absent

    run = lake.exported("run")

    assert run.code == 4, run.out + run.err
    assert place.make_it in run.err
    assert "safe to run again" in run.err
    assert [name for name in lake.properties if name in run.err] == []
    assert lake.shown(run) == []
    assert lake.objects() == []


@over(S3ProxyPlace)
def test_a_wrong_key_fails_at_once_and_is_not_shown(lake: FarLake) -> None:
    """Harm prevented: fifteen minutes of trying a key that is wrong."""
    lake.secrets = (f"s3cret-{secrets.token_hex(12)}",)
    lake.properties["s3.secret-access-key"] = lake.secrets[0]

    run = lake.exported("run")

    assert run.code == 4, run.out + run.err
    assert "SignatureDoesNotMatch" in run.err
    assert "safe to run again" in run.err
    assert lake.shown(run) == []
    assert lake.objects() == []


@over(*INSTALLED)
def test_http_is_refused_before_anything_is_begun(lake: FarLake) -> None:
    lake.properties.update([lake.place.in_clear])

    run = lake.exported("run")

    assert run.code != 0
    assert "over http anyone on the network can read and change the rows" in run.err
    assert lake.objects() == []


def begun(lake: FarLake, bytes_per_second: int) -> subprocess.Popen[str]:
    """Begin an export, and return it while it sends a file of 50 MB so slowly.

    Where no upload can be listed, it has at least made the table.
    """
    slowly = ("--max-bandwidth", str(bytes_per_second))
    command = lake.begin("export", *lake.words("--master", "local[1]", *slowly))
    uploads = lake.place.lists_uploads
    wait_until(
        lambda: (
            command.poll() is not None
            or bool(lake.place.storage.list_unfinished(lake.root) if uploads else lake.objects())
        ),
        "a file was on its way",
        seconds=SECONDS,
    )
    assert command.poll() is None, command.communicate()
    return command


@over(MinIOPlace, GsPlace)
def test_an_export_killed_in_the_middle_of_a_file_shows_nothing_of_it(
    place: Place, tmp_path: Path
) -> None:
    """Harm prevented: half a file under its name; and parts that are paid for, for ever."""
    lake = FarLake(tmp_path, place, LARGE)

    command = begun(lake, 2_000_000)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=SECONDS)

    assert lake.files() == []
    assert bool(place.storage.list_unfinished(lake.root)) is place.lists_uploads
    code, output = lake.ended("export", *lake.words("--master", "local[1]"))
    assert code == 0, output
    assert lake.check_rows() == {"x"}
    swept = lake.ended("gc", "--to", lake.to, "--ledger", lake.ledger, "--yes")
    assert swept[0] == 0, swept[1]
    assert place.storage.list_unfinished(lake.root) == ()
    assert len(lake.files()) == 1
    assert lake.ended("verify", *lake.words())[0] == 0


@over(MinIOPlace)
def test_a_store_that_is_away_in_the_middle_of_a_file_delays_the_export(
    place: Place, tmp_path: Path
) -> None:
    """Harm prevented: hours of an export are lost for a minute without storage."""
    lake = FarLake(tmp_path, place, LARGE)

    command = begun(lake, 4_000_000)
    place.server.kill()
    place.server.start()
    output, _ = command.communicate(timeout=SECONDS)

    assert command.returncode == 0, output
    assert lake.check_rows() == {"x"}
    assert len(lake.files()) == 1


@over(HdfsPlace)
def test_gc_sweeps_the_begun_file_of_a_writer_that_died_in_hdfs(lake: FarLake) -> None:
    """Harm prevented: what a killed writer left under a hidden name is there for ever."""
    code, output = lake.ended("export", *lake.words())
    assert code == 0, output
    written = lake.objects()
    directory, _, name = lake.files()[0].rpartition("/")
    hidden = f"{directory}/.{name}.{'0' * 32}{IN_PROGRESS}"
    lake.place.storage.put(f"{lake.root}/{hidden}", b"half")

    code, output = lake.ended("gc", "--to", lake.to, "--ledger", lake.ledger, "--yes")

    assert code == 0, output
    assert lake.objects() == written


@over(MinIOPlace)
def test_a_store_that_allows_no_list_and_no_deletion_loses_nothing_but_time(
    place: MinIOPlace, tmp_path: Path
) -> None:
    """What needs a list of files says so: `gc`, and a ledger that is made anew."""
    lake = FarLake(tmp_path, place, LARGE)
    account = place.server.account(*NEEDED, bucket=place.bucket)
    lake.properties = properties_of(place.server, account)
    command = begun(lake, 2_000_000)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=SECONDS)

    exported = lake.ended("export", *lake.words("--master", "local[1]", "--verify"))
    again = lake.ended("export", *lake.words("--master", "local[1]"))
    verified = lake.ended("verify", *lake.words())

    assert exported[0] == 0, exported[1]
    assert (again[0], again[1].count(": already exported")) == (0, 1), again[1]
    assert verified[0] == 0, verified[1]
    assert lake.check_rows() == {"x"}
    ledger = ("--ledger", lake.ledger)
    for statement in ("DETACH PARTITION 'x'", "ATTACH PARTITION 'x'", "UPDATE s = 'y' WHERE k = 7"):
        code, output = lake.ended("alter", f"ALTER TABLE far.n.t {statement}", *ledger, "--yes")
        assert code == 0, output
    assert lake.check_rows() == {"x"}
    anew = ("--ledger", f"sqlite:{tmp_path}/anew.db")
    for words in (("gc", *ledger), ("exports", "rebuild", *anew)):
        code, output = lake.ended(*words, "--to", lake.to)
        assert code == 4, output
        assert "Grant s3:ListBucket" in output
    assert lake.check_rows() == {"x"}
