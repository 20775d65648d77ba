"""The model of the commit protocol holds where it must, and fails where a rule was taken away.

Small worlds only; `make model` asks all of them.
"""

from __future__ import annotations

import pytest

from tests.model.checker import check
from tests.model.configurations import Configuration, read_configurations
from tests.model.results import PAGE, difference

ASKED = [c for c in read_configurations() if c.in_test]


@pytest.mark.parametrize("configuration", ASKED, ids=[c.name for c in ASKED])
def test_the_model_finds_what_is_expected(configuration: Configuration) -> None:
    """Every rule of the protocol is needed, and together they lose no row and double none."""
    finding = check(configuration)

    assert difference(finding, configuration, PAGE) == "", finding.trace
