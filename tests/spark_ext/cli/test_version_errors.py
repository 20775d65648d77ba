"""The messages about a table on an old ClickHouse: as docs/reference/errors.md says."""

from __future__ import annotations

import pytest

from tests.support.errors_page import rows
from tests.wrong.places import Places
from tests.wrong.versions import VERSIONS

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("what", VERSIONS)
def test_an_old_version_says_what_the_page_says(
    places: Places, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert VERSIONS[what](places, monkeypatch) == rows()[what]
