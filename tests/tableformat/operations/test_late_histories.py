"""Whatever happens to late rows: no archived row is lost, and none is in a table twice."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.committer import MAIN_BRANCH
from tests.support.late_lots import ACTS, Lots
from tests.support.scenarios import TO
from tests.support.two_lake_tables import OTHER


def check(directory: Path, names: list[str]) -> list[str]:
    """Do it, and look after each act; return what became of each."""
    lots = Lots(directory)
    told = list[str]()
    for name in names:
        told.append(f"{name}: {ACTS[name](lots)}")
        for table in (TO, OTHER):
            held = lots.copies(table, MAIN_BRANCH)
            assert max(held) <= 1, f"{held} in {table}, twice, after {told}"
        everywhere = lots.copies()
        lost = [lot for lot in lots.archived if not everywhere[lot]]
        assert not lost, f"the archived lots {lost} are lost after {told}"
    return told


ARRIVES, ARCHIVE, BACK = "rows arrive", "archive", "parts are attached back"


@pytest.mark.parametrize(
    "names",
    [
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, ARRIVES, "export", "export"],
        [ARRIVES, ARCHIVE, ARRIVES, "others compact", "export", "others compact", ARCHIVE],
        [ARRIVES, ARCHIVE, ARRIVES, "export", "detach", "attach", "export"],
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, "move", ARRIVES, "force there", "export"],
        [ARRIVES, ARCHIVE, "move", "attach from", ARRIVES, "export", "force"],
        [ARRIVES, ARCHIVE, "parts are attached back", ARRIVES, "export", "the source merges"],
        [ARRIVES, "export", "force there", ARCHIVE, "move", ARRIVES, "export there"],
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, "detach", "unarchive", BACK, "force", "attach"],
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, "detach", "unarchive", "attach", BACK, "force"],
        [ARRIVES, ARCHIVE, "update", "move", BACK, "append there"],
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, "others compact", "move", BACK, "append there"],
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, "others compact", BACK, ARRIVES, "export", "force"],
        [ARRIVES, ARCHIVE, ARRIVES, ARCHIVE, "others compact", ARRIVES, "export", "unarchive"],
    ],
    ids=", ".join,
)
def test_an_archived_row_is_in_the_lake_and_not_twice(tmp_path: Path, names: list[str]) -> None:
    check(tmp_path, names)


@settings(max_examples=8)
@given(st.lists(st.sampled_from(sorted(ACTS)), max_size=8))
def test_no_history_loses_or_doubles_an_archived_row(names: list[str]) -> None:
    with TemporaryDirectory() as directory:
        check(Path(directory), names)


@pytest.mark.soak
@settings(max_examples=400)
@given(st.lists(st.sampled_from(sorted(ACTS)), max_size=14))
def test_no_long_history_loses_or_doubles_an_archived_row(names: list[str]) -> None:
    with TemporaryDirectory() as directory:
        check(Path(directory), names)
