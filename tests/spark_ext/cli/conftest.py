"""The places of `tests/wrong/places.py`, with a writer that needs no Spark."""

from __future__ import annotations

import gc

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.actions import export_ports
from tests.wrong.places import STATEMENTS, Places, make_lake


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = Places(tmp_path_factory.mktemp("cli"))
    with EmbeddedConnection(places.clickhouse, create=True) as connection:
        for sql in ("CREATE DATABASE db", *STATEMENTS):
            connection.command(sql)
    (damaged,) = places.clickhouse.glob("store/*/*/all_1_1_0/s.bin")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    make_lake(places.warehouse)
    # `Places.files` asks for garbage before every look, which takes seconds late in a long run. It
    # stays frozen: to undo that would thaw what tests/support/light_machine.py has frozen as well.
    gc.collect()
    gc.freeze()
    return places


@pytest.fixture
def places(module_places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return the places, with a writer that needs no Spark."""
    module_places.before, module_places.reads_parts = (lambda *_: None), False
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: module_places.writer())
    monkeypatch.setattr(export_ports, "_back_off", lambda _: None)
    monkeypatch.setenv("PYICEBERG_HOME", str(module_places.root))
    return module_places
