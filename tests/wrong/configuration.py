"""Configuration files that docs/reference/errors.md refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from tests.wrong.places import Places

__all__ = ["PREPARED"]

_FILE = "mergeberg.toml"


def _with(text: str) -> Callable[[Places, pytest.MonkeyPatch], tuple[str, ...]]:
    """Return what makes a file with a text, and names it."""

    def prepared(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
        file = places.root / _FILE
        file.write_text(text)
        file.chmod(0o600)
        return ("--config", str(file), "config")

    return prepared


def _nowhere(_: Places, __: pytest.MonkeyPatch) -> tuple[str, ...]:
    return ("--config", f"/nowhere/{_FILE}", "config")


def _of_everybody(places: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (places.root / _FILE).write_text("")
    (places.root / _FILE).chmod(0o666)
    patch.chdir(places.root)
    return ("config",)


PREPARED: Mapping[str, Callable[[Places, pytest.MonkeyPatch], tuple[str, ...]]] = MappingProxyType(
    {
        "a configuration file that is not there": _nowhere,
        "a configuration file that is not TOML": _with("[gene\n"),
        "a command in the configuration file that is not there": _with("[exprot]\nto = 'x'\n"),
        "an option in the configuration file that is not there": _with(
            "[export]\nmax_replace = 3\n"
        ),
        "an option in the configuration file that no command has": _with(
            "[general]\nmax_replace = 3\n"
        ),
        "an option outside of the tables of the configuration file": _with(
            "source = 'chdb:./clickhouse'\n"
        ),
        "an option in the configuration file that is about a single run": _with(
            "[export]\nforce = true\n"
        ),
        "a value in the configuration file that its option does not take": _with(
            "[export]\nmax-slices = 'many'\n"
        ),
        "a flag in the configuration file that is neither true nor false": _with(
            "[export]\ncheck-rows = 1\n"
        ),
        "a configuration file in the working directory that everybody may change": _of_everybody,
    }
)
"""What is wrong, and how it is made so; the command changes nothing."""
