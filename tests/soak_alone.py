"""What `make test` leaves to `make soak`: tests that show in another place what others show.

A plugin of pytest, loaded by pyproject.toml. No test that a requirement names can be one of them: a
whole run says so (`tests.named_tests`).
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make soak`."""
    parser.addoption("--soak", action="store_true", help="only the tests that are marked soak")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for the other command, and have it counted."""
    soaks = bool(config.getoption("soak"))
    left = [item for item in items if ("soak" in item.keywords) is not soaks]
    items[:] = [item for item in items if item not in set(left)]
    config.hook.pytest_deselected(items=left)
