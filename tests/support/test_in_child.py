"""A piece of Python in another process has equal results, forked or newly started as on macOS."""

from __future__ import annotations

import pytest

from tests.support.in_child import in_child

PIECE = """
import os
from catalog.clickhouse.embedded import EmbeddedConnection
answer((values, os.environ["OF_THE_TEST"]))
"""


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_piece_has_the_values_and_the_environment_of_the_test(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setenv("OF_THE_TEST", "as it is now")

    values, variable = in_child(PIECE, 1, "two", platform=platform)

    assert (values, variable) == ((1, "two"), "as it is now")


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_an_error_in_a_piece_is_reported(platform: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="ZeroDivisionError"):
        in_child("answer(1 / 0)", platform=platform)
