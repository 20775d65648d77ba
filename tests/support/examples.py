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

# No deadline: a busy machine is no failure. Both rest on the profile "default", because Hypothesis
# loads another one where it finds a CI, and that one takes the same examples in every tier.
_DEFAULT = settings.get_profile("default")
settings.register_profile("new examples", _DEFAULT, deadline=None)
settings.register_profile("same examples", _DEFAULT, deadline=None, derandomize=True, database=None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take the profile before a test file makes its settings."""
    same = config.getoption("tier") in _SAME_TIERS
    seed = config.getoption("--hypothesis-seed")
    settings.load_profile("same examples" if same and seed is None else "new examples")
