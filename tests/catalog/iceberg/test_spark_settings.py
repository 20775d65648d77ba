"""A catalog as Spark has it is the same catalog for PyIceberg, or is refused by the setting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.iceberg.catalogs import OpenedCatalog, configured_catalogs, open_catalog
from catalog.iceberg.spark_setting_table import (
    GLUE,
    HIVE,
    REST,
    SETTINGS,
    SQL,
    Setting,
    Treatment,
    find_setting,
)
from catalog.iceberg.spark_settings import (
    DEFAULT_FS,
    iceberg_catalogs,
    other_catalogs,
    pyiceberg_properties,
)
from tableformat.errors import NotFoundError, UnsupportedError
from tests.repository.source_files import ROOT

PREFIX = "spark.sql.catalog.lake"
CLASS = {PREFIX: "org.apache.iceberg.spark.SparkCatalog"}
KINDS: dict[str, dict[str, str]] = {
    REST: {"type": "rest", "uri": "https://lake.example/api", "warehouse": "wh"},
    SQL: {"type": "jdbc", "uri": "jdbc:sqlite:/srv/lake.db", "warehouse": "file:///srv/lake"},
    HIVE: {"type": "hive", "uri": "thrift://meta.example:9083", "warehouse": "hdfs://nn/lake"},
    GLUE: {"type": "glue", "warehouse": "s3://bucket/lake"},
}
SECRETS = st.text("abcdefXYZ0189-_", min_size=8, max_size=16)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz.-_", min_size=1, max_size=20)


def opened(settings: dict[str, str], others: dict[str, str] | None = None) -> dict[str, Any]:
    below = {f"{PREFIX}.{name}": text for name, text in settings.items()}
    return dict(pyiceberg_properties("lake", CLASS | below | (others or {})))


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        (
            REST,
            {
                "type": "rest",
                "uri": "https://lake.example/api",
                "warehouse": "wh",
                "auth": {"type": "noop"},
            },
        ),
        (
            SQL,
            {"type": "sql", "uri": "sqlite:////srv/lake.db", "warehouse": "file:///srv/lake"},
        ),
        (
            HIVE,
            {"type": "hive", "uri": "thrift://meta.example:9083", "warehouse": "hdfs://nn/lake"},
        ),
        (GLUE, {"type": "glue", "warehouse": "s3://bucket/lake"}),
    ],
)
def test_each_kind_of_catalog_is_pyicebergs_of_that_kind(
    kind: str, properties: dict[str, Any]
) -> None:
    assert opened(KINDS[kind]) == properties


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rest.RESTCatalog", REST),
        ("jdbc.JdbcCatalog", SQL),
        ("hive.HiveCatalog", HIVE),
        ("aws.glue.GlueCatalog", GLUE),
    ],
)
def test_a_kind_may_be_given_by_the_name_of_its_class(name: str, kind: str) -> None:
    settings = KINDS[kind] | {"catalog-impl": f"org.apache.iceberg.{name}"}
    del settings["type"]

    assert opened(settings) == opened(KINDS[kind])


def test_without_a_type_it_is_a_metastore_as_in_spark() -> None:
    assert opened({"uri": "thrift://m:9083"})["type"] == "hive"
    metastore = {"spark.hadoop.hive.metastore.uris": "thrift://m:9083"}
    assert opened({}, metastore)["uri"] == "thrift://m:9083"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (
            {"token": "t"},
            {"token": "t", "oauth2-server-uri": "https://lake.example/api/v1/oauth/tokens"},
        ),
        (
            {"credential": "id:s", "oauth2-server-uri": "https://id.example/token", "scope": "x"},
            {
                "credential": "id:s",
                "oauth2-server-uri": "https://id.example/token",
                "scope": "x",
            },
        ),
        (
            {"credential": "id:s", "oauth2-server-uri": "/other"},
            {"credential": "id:s", "oauth2-server-uri": "https://lake.example/api/other"},
        ),
        ({"rest.auth.type": "none", "token": "t"}, {"auth": {"type": "noop"}}),
        ({"rest.auth.type": "oauth2"}, {"auth": {"type": "noop"}}),
        (
            {
                "rest.auth.type": "basic",
                "rest.auth.basic.username": "u",
                "rest.auth.basic.password": "p",
            },
            {"auth": {"type": "basic", "basic": {"username": "u", "password": "p"}}},
        ),
        (
            {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1"},
            {
                "rest.sigv4-enabled": "true",
                "rest.signing-region": "eu-west-1",
                "auth": {"type": "noop"},
            },
        ),
        (
            {"rest.auth.type": "sigv4", "token": "t"},
            {
                "rest.sigv4-enabled": "true",
                "token": "t",
                "oauth2-server-uri": "https://lake.example/api/v1/oauth/tokens",
            },
        ),
        ({"header.X-Tenant": "a"}, {"header.x-tenant": "a", "auth": {"type": "noop"}}),
    ],
)
def test_the_user_of_a_server_is_the_same(given: dict[str, str], found: dict[str, Any]) -> None:
    same = {"type": "rest", "uri": "https://lake.example/api", "warehouse": "wh"}

    assert opened(KINDS[REST] | given) == same | found


@pytest.mark.parametrize(
    ("warehouse", "default", "found"),
    [
        ("file:/srv/lake", "", "file:///srv/lake"),
        ("file:///srv/lake", "hdfs://nn", "file:///srv/lake"),
        ("s3://b/lake", "", "s3://b/lake"),
        ("/srv/lake", "file:///", "file:///srv/lake"),
        ("/lake", "hdfs://nn:8020", "hdfs://nn:8020/lake"),
        ("/lake", "hdfs://nn:8020/", "hdfs://nn:8020/lake"),
    ],
)
def test_a_warehouse_is_where_hadoop_takes_it_to_be(
    warehouse: str, default: str, found: str
) -> None:
    settings = KINDS[SQL] | {"warehouse": warehouse}

    assert opened(settings, {DEFAULT_FS: default})["warehouse"] == found


def test_files_in_s3_are_reached_in_the_same_way() -> None:
    s3 = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "https://s3.example",
        "s3.access-key-id": "id",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.path-style-access": "true",
        "client.region": "eu-west-1",
        "s3.sse.type": "none",
    }
    made = opened(KINDS[GLUE] | s3)

    assert made["s3.force-virtual-addressing"] == "false"
    same = ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
    assert {name: made[name] for name in (*same, "client.region")} == {
        name: s3[name] for name in (*same, "client.region")
    }


@pytest.mark.parametrize(
    ("settings", "others", "message"),
    [
        ({"type": "hadoop", "warehouse": "/w"}, {}, r"lake\.type is 'hadoop'"),
        ({"type": "nessie"}, {}, r"lake\.type is 'nessie'"),
        ({"catalog-impl": "com.example.C"}, {}, r"lake\.catalog-impl is 'com\.example\.C'"),
        (KINDS[REST] | {"catalog-impl": "x"}, {}, r"lake\.catalog-impl is set in addition to type"),
        (KINDS[REST] | {"uri": "lake.example"}, {}, r"lake\.uri is no http"),
        (KINDS[REST] | {"rest.auth.type": "google"}, {}, r"rest\.auth\.type may be none"),
        (
            KINDS[REST] | {"rest.sigv4-enabled": "true", "rest.auth.sigv4.delegate-auth-type": "x"},
            {},
            r"delegate-auth-type may be none or oauth2",
        ),
        (
            KINDS[REST] | {"header.X-Iceberg-Access-Delegation": "remote-signing"},
            {},
            "asks the server to sign",
        ),
        (KINDS[REST] | {"token": "t\nx"}, {}, r"lake\.token begins or ends with a blank"),
        (KINDS[REST] | {"nothing.of.this": "t"}, {}, r"lake\.nothing\.of\.this is no setting"),
        (KINDS[REST] | {"io-impl": "com.example.IO"}, {}, r"io-impl is 'com\.example\.IO'"),
        (KINDS[SQL] | {"warehouse": "srv"}, {}, r"lake\.warehouse is no location"),
        (KINDS[SQL] | {"warehouse": "/srv"}, {}, r"lake\.warehouse is no location"),
        (KINDS[SQL] | {"warehouse": ""}, {}, r"lake\.warehouse is missing"),
        (KINDS[SQL] | {"jdbc.schema-version": "V2"}, {}, "may be V0 or V1"),
        (KINDS[SQL] | {"s3.path-style-access": "yes"}, {}, "neither true nor false"),
        (KINDS[SQL] | {"unique-table-location": "true"}, {}, r"lake\.unique-table-location has no"),
        (KINDS[SQL] | {"hadoop.fs.defaultFS": "hdfs://x"}, {}, r"lake\.hadoop\.fs\.defaultfs has"),
        (
            KINDS[SQL] | {"warehouse": "s3a://b/w"},
            {"spark.hadoop.fs.s3a.endpoint": "http://x"},
            r"lake\.io-impl leaves files to Hadoop",
        ),
        (
            KINDS[SQL] | {"warehouse": "gs://b/w"},
            {"spark.hadoop.google.cloud.auth.type": "USER_CREDENTIALS"},
            r"lake\.io-impl leaves files to Hadoop",
        ),
        (KINDS[SQL] | {"gcs.user-project": "p"}, {}, r"lake\.gcs\.user-project has no equivalent"),
        ({"uri": ""}, {}, r"lake\.uri is no thrift"),
        (
            KINDS[HIVE],
            {"spark.hadoop.iceberg.engine.hive.lock-enabled": "false"},
            "commits without Hive's locks",
        ),
        (KINDS[GLUE] | {"lock-impl": "x"}, {}, r"lake\.lock-impl has no equivalent"),
        (KINDS[GLUE] | {"s3.sse.type": "kms"}, {}, r"lake\.s3\.sse\.type has no equivalent"),
        (
            KINDS[GLUE] | {"s3.write.tags.a": "false"},
            {},
            r"lake\.s3\.write\.tags\.a has no equivalent",
        ),
    ],
)
def test_what_would_be_another_catalog_is_refused_by_the_setting(
    settings: dict[str, str], others: dict[str, str], message: str
) -> None:
    """The message offers PyIceberg's own configuration."""
    with pytest.raises(UnsupportedError, match=message) as caught:
        opened(settings, others)

    assert "PYICEBERG_CATALOG__LAKE__URI" in str(caught.value)


@pytest.mark.parametrize(
    ("class_", "message"),
    [
        ("org.apache.iceberg.spark.SparkSessionCatalog", "is a SparkSessionCatalog"),
        ("io.unitycatalog.spark.UCSingleCatalog", "is not org.apache.iceberg.spark.SparkCatalog"),
    ],
)
def test_another_class_of_catalog_is_refused(class_: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        pyiceberg_properties("lake", {PREFIX: class_})


def test_a_session_without_the_catalog_has_no_properties_of_it() -> None:
    assert pyiceberg_properties("lake", {"spark.sql.catalog.other": CLASS[PREFIX]}) == {}


def test_catalogs_are_recognised_by_their_class() -> None:
    conf = CLASS | {f"{PREFIX}.type": "rest", "spark.sql.catalog.unity": "io.example.Unity"}

    assert iceberg_catalogs(conf) == ("lake",)
    assert other_catalogs(conf) == ("spark_catalog", "unity")


def test_a_setting_is_the_same_in_capitals_unless_it_is_given_twice() -> None:
    """As in Iceberg, which ignores case; which of two values it uses is undefined."""
    assert opened(KINDS[GLUE] | {"Client.Region": "x"})["client.region"] == "x"
    with pytest.raises(UnsupportedError, match=r"lake\.client\.region is given twice"):
        opened(KINDS[GLUE] | {"client.region": "x", "Client.Region": "y"})


@given(kind=st.sampled_from([*KINDS]), row=st.sampled_from(SETTINGS), text=SECRETS)
def test_every_row_of_the_table_is_what_happens(kind: str, row: Setting, text: str) -> None:
    """Each setting alone, in each kind of catalog."""
    name = row.name.replace("*", "x")
    if row.treatment is Treatment.READ:
        return
    plain = opened(KINDS[kind])
    of_it = not row.of or row.of == kind
    if row.treatment is Treatment.REFUSED and of_it:
        with pytest.raises(UnsupportedError, match=re.escape(f"{PREFIX}.{name} ")):
            opened(KINDS[kind] | {name: text})
        for harmless in row.harmless:
            assert opened(KINDS[kind] | {name: harmless}) == plain
        return
    more = {row.detail: text} if row.treatment is Treatment.RENAMED and of_it else {}
    assert opened(KINDS[kind] | {name: text}) == plain | more


@given(
    kind=st.sampled_from([*KINDS]),
    settings=st.dictionaries(
        st.one_of(NAMES, st.sampled_from([row.name.replace("*", "x") for row in SETTINGS])),
        SECRETS,
        max_size=4,
    ),
)
def test_nothing_shows_a_value(kind: str, settings: dict[str, str]) -> None:
    """Neither a refusal nor the repr of a catalog; names of classes are no secrets."""
    shown = ("type", "catalog-impl", "io-impl", "jdbc.schema-version")
    settings = {name: text for name, text in settings.items() if name not in shown}
    try:
        made = opened(KINDS[kind] | settings)
    except UnsupportedError as error:
        message = str(error).replace("-", "").lower()
        names = " ".join(settings).replace("-", "").lower()
        for text in settings.values():
            bare = text.replace("-", "").lower()
            assert bare not in message or bare in names or len(bare) < 8
    else:
        shown_of_it = repr(OpenedCatalog("lake", None, made))
        assert all(text not in shown_of_it for text in settings.values())


@given(NAMES)
def test_an_unknown_setting_is_refused(name: str) -> None:
    """Harm prevented: a setting with the location of tables is ignored."""
    if find_setting(name.lower()) is None:
        with pytest.raises(UnsupportedError, match="is no setting that mergeberg can translate"):
            opened(KINDS[REST] | {name: "x"})


def test_pyicebergs_own_configuration_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the remedy for settings that cannot be translated."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "sqlite:////other.db")
    properties = opened(KINDS[SQL])

    assert configured_catalogs() == {"lake"}
    first = open_catalog("lake", warehouse=tmp_path, properties=properties)
    assert first.properties == {"uri": "sqlite:////other.db"}
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__URI")
    second = open_catalog("lake", warehouse=tmp_path, properties=properties)
    assert (second.properties, second.local_warehouse) == (properties, None)
    assert open_catalog("lake", warehouse=tmp_path).local_warehouse == tmp_path
    with pytest.raises(NotFoundError, match="Cannot find the catalog 'other'"):
        open_catalog("other", warehouse=tmp_path)


def test_the_page_has_the_table_as_it_is() -> None:
    page = (ROOT / "docs" / "reference" / "spark-catalogs.md").read_text()
    table = page.partition("## What becomes of each setting")[2]

    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [*map(rendered, SETTINGS)]


def rendered(row: Setting) -> str:
    """Return a row as the page has it."""
    kinds = {"": "every", REST: "rest", SQL: "jdbc", HIVE: "hive", GLUE: "glue"}
    match row.treatment:
        case Treatment.RENAMED:
            becomes = f"`{row.detail}`"
        case Treatment.READ:
            becomes = row.detail
        case Treatment.IGNORED:
            becomes = f"ignored: {row.detail}"
        case Treatment.REFUSED:
            but = f", unless `{row.harmless[0]}`" if row.harmless else ""
            becomes = f"refused{but}: {row.detail}"
    return f"| `{row.name}` | {kinds[row.of]} | {becomes} |"
