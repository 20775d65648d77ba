"""Endpoints, credentials and classes come from a catalog's configuration, and not from a table."""

from __future__ import annotations

import gc
import re
import socket
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pyiceberg.io
import pyiceberg.io.fsspec
import pyiceberg.io.pyarrow
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.file_io import with_vended
from catalog.iceberg.table import IcebergTable
from catalog.network import TimeOuts
from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.s3.access import S3Access
from catalog.storages.schemes import Storages
from tableformat.committer import Commit
from tableformat.errors import DestinationError, RefusedError, UnsupportedError
from tableformat.names import LakeName
from tests.lying_catalog.server import LyingCatalog
from tests.repository.source_files import ROOT

SCHEMA: Final = Schema(NestedField(1, "n", LongType(), required=False))
AT_ONCE: Final = TimeOuts(connect=2, read=2, retry_for=0)
_NAME: Final = re.compile(r'"((?:s3|client|gcs|adls|hdfs|hf|mergeberg)\.[a-z0-9._-]*[a-z])"')
EVIL: Final = "imported_by_a_table"
CLASSES: Final = ("py-io-impl", "write.py-location-provider.impl", "py-catalog-impl", "auth")
SECRET: Final = "hush-hush"  # noqa: S105  what is looked for
FAR: Final = {
    "s3": "s3://lake/wh/t",
    "gcs": "gs://lake/wh/t",
    "adls": "abfss://lake@acme.dfs.core.windows.net/wh/t",
    "hdfs": "hdfs://names:8020/wh/t",
}


def names_that_are_read() -> tuple[str, ...]:
    """Return all properties by which PyIceberg, or our storages, open files."""
    modules = (pyiceberg.io, pyiceberg.io.pyarrow, pyiceberg.io.fsspec)
    constants = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z0-9_-]+\.\S+", value)
    }
    ours = {
        name
        for file in (ROOT / "catalog" / "storages").rglob("*.py")
        for name in _NAME.findall(file.read_text())
    }
    others = {"warehouse", "uri", "token", "credential", "DEFAULT_SCHEME", "DEFAULT_NETLOC"}
    impls = {n for n in constants if n.startswith("pyiceberg.")}
    return tuple(sorted((constants - impls) | ours | others | {*CLASSES, "s3.retry-strategy-impl"}))


class Listener:
    """A server on the loopback that never responds, and keeps what it was sent."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.heard: list[bytes] = []
        self._thread = threading.Thread(target=self._hear, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _hear(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                self.heard.append(client.recv(65_536))


@pytest.fixture
def right() -> Iterator[Listener]:
    """Run the store that a catalog is configured with."""
    with Listener() as listener:
        yield listener


@pytest.fixture
def wrong() -> Iterator[Listener]:
    """Run the store that a table names."""
    with Listener() as listener:
        yield listener


@pytest.fixture(autouse=True)
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Put a module on the path; every import of it is seen."""
    (tmp_path / f"{EVIL}.py").write_text("class Evil:\n    def __init__(self, *_):\n        pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield f"{EVIL}.Evil"
    sys.modules.pop(EVIL, None)


def configured(right: Listener) -> dict[str, Any]:
    """Return what a catalog says of all storages, each of them a listener."""
    return {
        "s3.endpoint": right.address,
        "s3.region": "us-east-1",
        "s3.access-key-id": "key",
        "s3.secret-access-key": SECRET,
        "s3.session-token": SECRET,
        "gcs.service.host": right.address,
        "gcs.oauth2.token": SECRET,
        "adls.connection-string": f"AccountName=acme;BlobEndpoint={right.address}/acme;"
        f"SharedAccessSignature=sig={SECRET}",
        "mergeberg.hdfs.http-address": right.address,
        "mergeberg.hdfs.delegation-token": SECRET,
    }


def value_of(name: str, wrong: Listener) -> str:
    """Return what a property of a table is set to: what would be heard, or imported."""
    if name in CLASSES or name.endswith("-impl"):
        return f"{EVIL}.Evil"
    if name == "adls.connection-string":
        return f"AccountName=acme;BlobEndpoint={wrong.address}/acme;SharedAccessSignature=sig=x"
    if name == "DEFAULT_SCHEME":
        return "hdfs"
    if name.endswith(("host", "netloc", "NETLOC")) and not name.startswith("gcs."):
        return f"127.0.0.1:{wrong.port}"
    return wrong.address


class Lake:
    """A catalog in a file; its tables are far, and their metadata is near."""

    def __init__(self, directory: Path, properties: Mapping[str, Any]) -> None:
        self.directory = directory
        uri = f"sqlite:///{directory}/catalog.db"
        given = {**properties, "uri": uri, "warehouse": directory.as_uri()}
        self.opened = OpenedCatalog("far", None, given, AT_ONCE)
        self.catalog = self.opened.catalog
        self.catalog.create_namespace("n")

    def table(self, name: str, location: str, properties: Mapping[str, str]) -> IcebergTable:
        near = {"write.metadata.path": f"{self.directory.as_uri()}/{name}"}
        made = self.catalog.create_table(f"n.{name}", SCHEMA, location=location, properties=near)
        with made.transaction() as transaction:
            transaction.set_properties(dict(properties))
        found = self.opened.table(LakeName("far", ("n",), name))
        assert found is not None
        return found


@pytest.fixture
def lake(tmp_path: Path, right: Listener) -> Lake:
    return Lake(tmp_path, configured(right))


@pytest.mark.parametrize("kind", FAR)
def test_no_property_of_a_table_changes_how_its_files_are_reached(
    lake: Lake, wrong: Listener, kind: str
) -> None:
    """Harm prevented: the operator's token is sent to the host that a table's owner names."""
    location = FAR[kind]
    before = lake.opened.storages.access(location)
    families = tuple(f"{other}." for other in FAR if other != kind)
    names = [n for n in names_that_are_read() if n not in CLASSES and not n.startswith(families)]
    assert len(names) > 20

    for number, name in enumerate(names):
        table = lake.table(f"t{number}", location, {name: value_of(name, wrong)})
        assert table.loaded.io.properties == dict(lake.opened.catalog.properties), name
        assert lake.opened.storages.access(f"{location}/data/f") == before, name


@pytest.mark.parametrize("kind", FAR)
def test_nothing_is_sent_to_a_host_that_a_table_names(
    lake: Lake, right: Listener, wrong: Listener, kind: str
) -> None:
    location = FAR[kind]
    given = {name: value_of(name, wrong) for name in names_that_are_read()}
    table = lake.table("t", location, given)

    with pytest.raises(DestinationError):
        table.loaded.io.new_input(f"{location}/metadata/m.avro").open()
    with pytest.raises(DestinationError):
        table.storages(location).put(f"{location}/data/f", b"x")

    assert wrong.heard == []
    assert right.heard
    assert EVIL not in sys.modules


@pytest.mark.parametrize("name", [*CLASSES, "s3.retry-strategy-impl"])
def test_no_class_that_a_table_names_is_imported(tmp_path: Path, name: str, evil: str) -> None:
    """Harm prevented: a user who may alter a table runs code as the operator."""
    lake = Lake(tmp_path, {})
    location = f"{tmp_path.as_uri()}/there"
    first = lake.table("t", location, {"kept": "yes"})
    with first.loaded.transaction() as transaction:
        transaction.set_properties({name: evil})

    found = lake.opened.table(LakeName("far", ("n",), "t"))
    assert found is not None
    state = found.load()
    commit = Commit((), state.layout, "ledger")
    assert found.send(state, found.stage(state, commit), commit, ()).applied

    assert found.load().properties[name] == evil
    assert EVIL not in sys.modules


def test_a_catalog_goes_when_nobody_has_it_any_more(tmp_path: Path) -> None:
    """Harm prevented: its connections stay open until garbage is collected, if ever."""
    gc.disable()
    try:
        catalog = Lake(tmp_path, {}).catalog
        seen = weakref.ref(catalog)
        del catalog
        assert seen() is None
    finally:
        gc.enable()


def test_files_of_other_schemes_are_not_opened_by_pyicebergs_own(lake: Lake) -> None:
    """Harm prevented: `oss://` and `wasb://` would be asked with the keys of another storage."""
    io = lake.table("t", FAR["s3"], {}).loaded.io

    for location in ("oss://b/f", "wasbs://c@elsewhere/f", "hf://x/f", "viewfs://x/f"):
        with pytest.raises(UnsupportedError, match="storage of the scheme"):
            io.new_input(location).open()


KEYS: Final = {"s3.access-key-id": "lent", "s3.secret-access-key": "s", "s3.session-token": "t"}
OWN: Final = {
    "s3.endpoint": "https://own",
    "s3.access-key-id": "own",
    "s3.secret-access-key": SECRET,
    "s3.session-token": SECRET,
    "s3.profile-name": "own",
    "adls.account-key": "own",
    "gcs.oauth2.token": SECRET,
}


@pytest.mark.parametrize(
    ("vended", "endpoint", "key"),
    [
        ({}, "https://own", "own"),
        (KEYS, "https://own", "lent"),
        ({**KEYS, "s3.endpoint": "https://theirs"}, "https://theirs", "lent"),
        ({"s3.endpoint": "https://own/"}, "https://own/", "own"),
    ],
)
def test_an_endpoint_goes_with_the_credentials_that_came_with_it(
    vended: dict[str, str], endpoint: str, key: str
) -> None:
    found = with_vended(OWN, vended, {})

    assert (found["s3.endpoint"], found["s3.access-key-id"]) == (endpoint, key)
    if vended.keys() & KEYS.keys():
        assert "s3.profile-name" not in found
        assert SECRET not in S3Access.of(found, environment={}).__reduce_ex__(2).__repr__()
    assert (found["adls.account-key"], found["gcs.oauth2.token"]) == ("own", SECRET)


@pytest.mark.parametrize(
    ("configuration", "vended"),
    [
        (OWN, {"s3.endpoint": "https://theirs"}),
        ({}, {"s3.endpoint": "https://theirs"}),
        (OWN, {"gcs.service.host": "https://u:hidden@theirs"}),
        (OWN, {"adls.account-host": "theirs"}),
        # Those of another storage are none for it.
        (OWN, {"s3.endpoint": "https://theirs", "gcs.oauth2.token": "lent"}),
    ],
)
def test_an_endpoint_without_credentials_is_refused(
    configuration: dict[str, str], vended: dict[str, str]
) -> None:
    with pytest.raises(RefusedError, match="vends no credentials for it") as caught:
        with_vended(configuration, vended, {})

    assert "hidden" not in caught.value.message
    name = next(iter(vended))
    assert f"Write {name}: " in caught.value.message


def test_an_endpoint_that_the_environment_names_is_the_operators() -> None:
    named = {"s3.endpoint": "https://theirs"}

    assert with_vended({}, named, {"AWS_ENDPOINT_URL_S3": "https://theirs"}) == named


def test_a_server_gives_nothing_but_endpoints_and_credentials_of_storages(evil: str) -> None:
    given = {
        "py-io-impl": evil,
        "s3.retry-strategy-impl": evil,
        "s3.profile-name": "theirs",
        "mergeberg.ca-file": "/etc/passwd",
        "mergeberg.allow-insecure": "true",
        "s3.proxy-uri": "http://theirs",
        "mergeberg.hdfs.http-address": "https://theirs",
        "mergeberg.hdfs.delegation-token": "x",
        "hdfs.user": "root",
        "warehouse": "s3://x",
        "s3.signer": "S3V4RestSigner",
    }

    assert with_vended(OWN, given, {}) == {**OWN, "s3.signer": "S3V4RestSigner"}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[LyingCatalog]:
    with LyingCatalog(tmp_path / "served") as server:
        opened = server.opened()
        opened.create(
            LakeName("lake", ("n",), "t"),
            schema=SCHEMA,
            spec=UNPARTITIONED_PARTITION_SPEC,
            order=UNSORTED_SORT_ORDER,
            properties={"s3.endpoint": "https://table", "gcs.oauth2.token": "table"},
        )
        yield server


def loaded(rest: LyingCatalog, **own: str) -> Mapping[str, Any]:
    """Return the properties that the files of a table are opened with."""
    given = {"type": "rest", "uri": rest.uri, **own}
    opened = OpenedCatalog("lake", None, given)
    found = opened.table(LakeName("lake", ("n",), "t"))
    assert found is not None
    found.load()
    return found.loaded.io.properties


def test_a_rest_catalog_vends_and_its_tables_do_not(rest: LyingCatalog) -> None:
    rest.truth.config = {"s3.endpoint": "https://vended", "s3.region": "here"}
    rest.truth.credentials = [{"prefix": "file:", "config": KEYS}]

    found = loaded(rest, **{"s3.access-key-id": "own", "s3.secret-access-key": SECRET})

    assert {n: v for n, v in found.items() if n.startswith(("s3.", "gcs."))} == {
        **KEYS,
        "s3.endpoint": "https://vended",
        "s3.region": "here",
    }


@pytest.mark.parametrize("section", ["config", "overrides"])
def test_the_operators_credentials_do_not_go_where_a_server_says(
    rest: LyingCatalog, section: str, evil: str
) -> None:
    setattr(rest.truth, section, {"py-io-impl": evil, "mergeberg.ca-file": "/etc/passwd"})
    assert "mergeberg.ca-file" not in loaded(rest)
    assert EVIL not in sys.modules

    setattr(rest.truth, section, {"s3.endpoint": "https://theirs"})
    with pytest.raises(RefusedError, match=r"its catalog returns s3\.endpoint: https://theirs"):
        loaded(rest, **{"s3.access-key-id": "own", "s3.secret-access-key": SECRET})


AZURE: Final = {"adls.sas-token": f"sig={SECRET}"}


@pytest.mark.parametrize(
    "properties",
    [
        AZURE,
        {**AZURE, "warehouse": FAR["adls"]},
        {"adls.sas-token.acme": "sig=x"},
        {"adls.token": SECRET},
    ],
)
@pytest.mark.parametrize("host", ["acme.elsewhere", "acme.dfs.core.windows.net.evil", "acme"])
def test_a_host_in_a_location_gets_no_credentials_of_azure(
    properties: dict[str, str], host: str
) -> None:
    """Harm prevented: a table's disk, or its location, names a host, which is sent a token."""
    with pytest.raises(RefusedError, match=r"is not Azure's.* it gets no credentials"):
        Storages(properties).access(f"abfss://lake@{host}/f")


@pytest.mark.parametrize(
    ("properties", "host"),
    [
        (AZURE, "acme.dfs.core.windows.net"),
        (AZURE, "acme.blob.core.usgovcloudapi.net"),
        ({"adls.token": "x"}, "onelake.dfs.fabric.microsoft.com"),
        ({**AZURE, "warehouse": "abfss://lake@acme.elsewhere/wh"}, "acme.elsewhere"),
        ({"adls.sas-token.acme.elsewhere": "sig=x"}, "acme.elsewhere"),
        (
            {"adls.connection-string": "AccountName=acme;SharedAccessSignature=sig=x;"
             "EndpointSuffix=elsewhere"},
            "acme.dfs.elsewhere",
        ),
    ],
)  # fmt: skip
def test_a_host_that_is_azures_or_named_by_the_operator_gets_them(
    properties: dict[str, str], host: str
) -> None:
    found = Storages(properties).access(f"abfss://lake@{host}/f")

    assert isinstance(found, AbfsAccess)
    assert found.endpoint == f"https://{host.replace('.dfs.', '.blob.')}"
