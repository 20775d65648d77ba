"""Which examples Hypothesis takes: `make check` and `make test` the same ones in every run.

A plugin of pytest, loaded by pyproject.toml. A commit must not be green here and red there, so its
gate does not look for new examples; `make test-all`, `make soak` and a file that is named by hand
do, and so does every run with `--hypothesis-seed`.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

__all__: list[str] = []

_SAME_TIERS = ("check", "test")

# No deadline: a busy machine is no failure. In CI Hypothesis would load a profile of its own, which
# takes the same examples in every tier.
settings.register_profile("new examples", deadline=None)
settings.register_profile("same examples", deadline=None, derandomize=True, database=None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take the profile before a test file makes its settings."""
    same = config.getoption("tier") in _SAME_TIERS
    seed = config.getoption("--hypothesis-seed")
    settings.load_profile("same examples" if same and seed is None else "new examples")
