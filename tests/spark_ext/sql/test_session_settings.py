"""Sources, ledger and defaults by the settings of a session, and secrets only where Spark hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ledgers.uris import LEDGER_FILE
from catalog.network import TimeOuts
from catalog.sources import SourcePlace, server_of
from spark_ext.cli.options import source_options
from spark_ext.sql.catalogs import open_named, open_session_ledger
from spark_ext.sql.names import Names
from spark_ext.sql.session_settings import OPTIONS, SessionSettings, SourceTable
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.names import TableName, quote_identifier, split_identifiers
from tests.repository.source_files import ROOT

SOURCE = "spark.mergeberg.source.ch"
ADDRESS = "https://exporter@ch1.example"
ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
HOST = st.from_regex(r"([a-z0-9.-]{1,12}|\[[0-9a-f:]{2,12}\]):[0-9]{1,5}", fullmatch=True)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("USER", "PASSWORD", "TOKEN"):
        monkeypatch.delenv(f"MERGEBERG_SOURCE_{variable}", raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))


def place(
    options: dict[str, str], *, address: str = ADDRESS, others: dict[str, str] | None = None
) -> SourcePlace:
    """Return the source ch of a session."""
    conf = {SOURCE: address, **{f"{SOURCE}.{name}": text for name, text in options.items()}}
    return SessionSettings.of(conf | (others or {})).sources["ch"]


def test_a_source_is_its_address_and_its_options() -> None:
    made = place(
        {
            "wait": "5",
            "config-file": "/etc/ch.toml",
            "allow-insecure": "true",
            "sync-timeout": "7.5",
            "ignore-row-policies": "TRUE",
            "staging-database": "stage",
            "setting.max_threads": "2",
            "setting.max_memory_usage": "100",
            "allow-alter": "true",
            "database": "shop",
            "cluster-hosts": "ch1:9000=10.0.0.1:8443, ch2:9000 = [::1]:8444",
        }
    )

    assert made == SourcePlace(
        ADDRESS,
        5.0,
        Path("/etc/ch.toml"),
        allow_insecure=True,
        sync_timeout=7.5,
        ignore_row_policies=True,
        staging_database="stage",
        reading=(("max_memory_usage", "100"), ("max_threads", "2")),
        allow_alter=True,
        database="shop",
        cluster_hosts=(("ch1:9000", "10.0.0.1:8443"), ("ch2:9000", "[::1]:8444")),
        environment=made.environment,
    )


def test_without_options_it_is_as_on_the_command_line() -> None:
    made = place({})

    assert made == SourcePlace(ADDRESS, environment=made.environment)


def test_every_option_of_the_command_line_has_a_setting() -> None:
    """Harm prevented: an option that is added there and forgotten here."""

    def nothing(**_: Any) -> int:
        return 0

    made = click.command()(source_options()(nothing))
    there = {option.opts[0] for option in made.params}

    # Those that only some commands have.
    there |= {"--allow-alter", "--cluster-host", "--database"}
    assert {o.instead for o in OPTIONS if o.instead.startswith("--")} | {"--source"} == there


@given(st.dictionaries(HOST, HOST, max_size=4))
def test_hosts_of_a_cluster_stand_in_one_setting(hosts: dict[str, str]) -> None:
    """As many as it has, in their order."""
    text = ",".join(f"{named}={over_http}" for named, over_http in hosts.items())

    assert place({"cluster-hosts": text}).cluster_hosts == tuple(hosts.items())


def test_the_settings_may_have_the_login() -> None:
    """Then nothing of the environment is mixed with it."""
    login = {"user": "exporter", "password": "s3cret"}
    made = server_of(place(login, address="https://ch1.example"))

    assert made is not None
    assert made.credentials.user == "exporter"
    assert made.credentials.password is not None
    assert made.credentials.password.reveal() == "s3cret"
    assert "s3cret" not in f"{made} {place(login)!r}"


def test_the_environment_is_for_the_default_source_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Harm prevented: the password of one server, sent to another."""
    monkeypatch.setenv("MERGEBERG_SOURCE_PASSWORD", "s3cret")
    two = {SOURCE: ADDRESS, "spark.mergeberg.source.other": "https://other.example"}

    def has_password(conf: dict[str, str], source: str) -> bool:
        made = server_of(SessionSettings.of(conf).sources[source])
        assert made is not None
        return made.credentials.password is not None

    assert has_password({SOURCE: ADDRESS}, "ch")
    assert not has_password(two, "ch")
    assert not has_password(two, "other")
    default = two | {"spark.mergeberg.source.default": "other"}
    assert has_password(default, "other")
    assert not has_password(default, "ch")


@pytest.mark.parametrize("option", [o.name for o in OPTIONS if o.is_secret])
@pytest.mark.parametrize("regex", ["(?i)url", "[", "(?<x"])
def test_a_secret_that_spark_shows_is_refused(option: str, regex: str) -> None:
    """Also where the expression is one that Python cannot read."""
    with pytest.raises(RefusedError, match=r"spark\.redaction\.regex does not find") as caught:
        place({option: "hunter2"}, others={"spark.redaction.regex": regex})

    assert "hunter2" not in str(caught.value)
    assert f"{SOURCE}.config-file" in str(caught.value)


def test_a_password_in_the_address_is_refused() -> None:
    """The name of that setting says nothing of a password, so that Spark shows it."""
    with pytest.raises(RefusedError, match="has a password in it, which Spark shows") as caught:
        place({}, address="https://exporter:hunter2@ch1.example")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"config-fil": "x"},
            r"ch\.config-fil is no setting of a source\. Did you mean config-file\?",
        ),
        ({"zzz": "x"}, r"ch\.zzz is no setting of a source\. There are wait, config-file"),
        ({"setting.": "x"}, r"ch\.setting\. is no setting"),
        ({"setting": "x"}, r"ch\.setting is no setting"),
        ({"allow-insecure": "yes"}, r"ch\.allow-insecure is 'yes'\. Write true or false"),
        ({"wait": "soon"}, r"ch\.wait is 'soon'\. Write a number of seconds"),
        ({"sync-timeout": "-1"}, r"ch\.sync-timeout is '-1'"),
        ({"wait": "inf"}, r"ch\.wait is 'inf'"),
        ({"cluster-hosts": "ch1:9000"}, r"ch\.cluster-hosts is 'ch1:9000'\. Write HOST:PORT=HOST"),
        ({"cluster-hosts": "a:1=b:2,"}, r"ch\.cluster-hosts is 'a:1=b:2,'"),
        ({"cluster-hosts": "a:1=b:2,a:1=c:3"}, "each host once"),
    ],
)
def test_what_no_source_has_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        place(options)


def test_options_without_an_address_are_refused() -> None:
    with pytest.raises(UsageError, match=r"source\.ch\.wait is set, and its address is not"):
        SessionSettings.of({f"{SOURCE}.wait": "5"})


def test_the_rest_of_the_settings_is_read() -> None:
    made = SessionSettings.of(
        {
            "spark.mergeberg.ledger": "sqlite:/l.db",
            "spark.mergeberg.warehouse": "/wh",
            "spark.mergeberg.connect-timeout": "3",
            "spark.mergeberg.read-timeout": "4.5",
            "spark.mergeberg.python": "/usr/bin/python3",
            "spark.mergeberg.export_merge_tree_partition_wait": "0",
            "spark.sql.shuffle.partitions": "1",
        }
    )

    assert (made.ledger, made.warehouse) == ("sqlite:/l.db", Path("/wh"))
    assert made.time_outs == TimeOuts(3.0, 4.5)
    assert made.default_source is None


@pytest.mark.parametrize(
    ("setting", "text", "message"),
    [
        ("ledgr", "x", r"spark\.mergeberg\.ledgr is not known\. Did you mean ledger\?"),
        ("export_merge_tree_partition_wai", "0", "Did you mean export_merge_tree_partition_wait"),
        ("connect-timeout", "0", r"connect-timeout is '0'\. Write a number of seconds above 0"),
        ("read-timeout", "x", r"read-timeout is 'x'"),
        ("source.default", "other", "is 'other', and the sources are ch"),
    ],
)
def test_a_setting_that_would_go_unheard_is_refused(setting: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SessionSettings.of({SOURCE: ADDRESS, f"spark.mergeberg.{setting}": text})


def source_of(settings: SessionSettings, text: str) -> SourceTable:
    """Return the table that a text names in a session without catalogs."""
    nothing = frozenset[str]()
    names = Names(settings, nothing, nothing, ("spark_catalog", "default"), lambda _: False)
    return names.source(split_identifiers(text))


@given(
    st.tuples(
        *[st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)] * 2
    )
)
def test_a_table_of_a_source_is_named_with_any_quotes(names: tuple[str, str]) -> None:
    settings = SessionSettings.of({SOURCE: ADDRESS})
    text = ".".join(map(quote_identifier, ("ch", *names)))

    assert source_of(settings, text).table == TableName(*names)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("chh.db.t", NotFoundError, r"the session has the sources ch\. Did you mean ch\?"),
        ("ch", UsageError, r"it is the name of a source.*; .*\. Write source\.database\.table"),
    ],
)
def test_a_table_of_no_source_is_refused_with_what_there_is(
    text: str, error: type[UsageError], message: str
) -> None:
    with pytest.raises(error, match=message):
        source_of(SessionSettings.of({SOURCE: ADDRESS}), text)


def test_a_ledger_is_next_to_the_built_in_catalog_only(tmp_path: Path) -> None:
    conf = {"spark.mergeberg.warehouse": str(tmp_path)}

    ledger = open_session_ledger(conf)
    ledger.next_epoch()
    ledger.close()

    assert (tmp_path / LEDGER_FILE).exists()
    other = conf | {"spark.sql.catalog.prod": ICEBERG, "spark.sql.catalog.prod.type": "rest"}
    other["spark.sql.catalog.prod.uri"] = "https://127.0.0.1:1"
    with pytest.raises(UsageError, match=r"Set spark\.mergeberg\.ledger, for example"):
        open_session_ledger(other, "prod")
    with pytest.raises(NotFoundError, match="the Iceberg catalogs of the session are none"):
        open_named("prod", conf)


def test_the_page_has_every_option() -> None:
    page = (ROOT / "docs" / "reference" / "spark-sources.md").read_text()
    table = page.partition("| on the command line | meaning |")[2]

    rows = [line for line in table.split("\n\n")[0].splitlines() if line.startswith("| `")]
    assert rows == [f"| `{o.name}` | `{o.instead}` | {o.description} |" for o in OPTIONS]
