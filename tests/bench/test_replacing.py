"""Several REPLACE PARTITION of one table at once, with appends of others: the bench, small."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.replacing import append_again, in_turns_of, made, replace_again, rows_of

pytestmark = pytest.mark.nightly

PARTITIONS, TIMES, APPENDS, ROWS = 3, 4, 6, 10


def test_partitions_are_replaced_at_once_and_none_is_refused(tmp_path: Path) -> None:
    """Harm prevented: jobs that each look after a partition of their own refuse one another."""
    made(tmp_path, PARTITIONS, ROWS)
    names = [f"p{number}" for number in range(PARTITIONS)]

    with ThreadPoolExecutor(PARTITIONS + 1) as pool:
        others = pool.submit(append_again, tmp_path, lambda done: done < APPENDS)
        replacing = [pool.submit(replace_again, tmp_path, name, TIMES) for name in names]
        reports = [one.result() for one in replacing]
        appended = others.result()

    assert [(one.statuses, one.messages) for one in reports] == [({"replaced": TIMES}, [])] * 3
    assert appended == APPENDS
    assert rows_of(tmp_path) == {**dict.fromkeys(names, in_turns_of(TIMES, ROWS)), "": APPENDS}
