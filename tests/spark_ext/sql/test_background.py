"""Exports of several statements that go on in one process."""

from __future__ import annotations

import threading

import pytest

from spark_ext.sql import export as background


class Begins(threading.Thread):
    """A thread that has ended; each query of it meets a statement that begins another."""

    def is_alive(self) -> bool:
        """Begin another one."""
        background._RUNNING.add(threading.Thread())
        return False


def test_running_statements_are_listed_while_another_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: a statement of a server fails because another one began."""
    monkeypatch.setattr(background, "_RUNNING", {Begins(), Begins()})

    assert not background.are_running()
