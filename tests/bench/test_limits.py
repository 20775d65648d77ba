"""What limits and the ledger cost is measured by programs that do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.keeper import PARTS, measure_keeper, table
from tests.bench.limits import opened
from tests.repository.source_files import ROOT
from tests.services.zookeeper import ZooKeeper


def test_the_page_has_the_requests_that_are_measured(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: an export that asks Keeper more often, and a page that says it does not."""
    page = (ROOT / "docs" / "spec" / "keeper-ledger.md").read_text()

    measured = table([measure_keeper(zookeeper_server, parts) for parts in PARTS]).splitlines()

    requests = [line for line in measured if line.startswith("| requests")]
    assert len(requests) == 3
    assert [line for line in requests if line not in page] == []


@pytest.mark.spark
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.soak
def test_the_figures_are_those_of_real_jobs(tmp_path: Path) -> None:
    with opened(tmp_path, files=3, slots=2) as bench:
        assert bench.bytes_per_second(0) > 0
        assert bench.at_a_time(1) == 1
        assert [bench.tries(retries) for retries in (0, 1)] == [1, 2]
