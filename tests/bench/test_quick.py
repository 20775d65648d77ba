"""A writer that became slower fails the quick benchmark, and a busy machine does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.data import DATASETS
from tests.bench.figures import Figures
from tests.bench.quick import Ratios, check, committed_ratios, verdict
from tests.bench.series import Taken

ROOT = Path(__file__).parents[2]
COMMITTED = Ratios(cpu=1.0, size=1.0, tolerance=0.15)


def pairs(*ours: float, size: int = 100) -> Callable[[], Taken]:
    """Return what takes two pairs at a time; the last CPU time of ours repeats."""
    rest = list(ours)

    def more() -> Taken:
        cpu = [rest.pop(0) if len(rest) > 1 else rest[0] for _ in range(2)]
        return Taken(
            tuple(Figures(1.0, each, 1, size, 5) for each in cpu),
            (Figures(1.0, 1.0, 1, 100, 5), Figures(1.0, 1.2, 1, 100, 5)),
        )

    return more


def test_a_writer_that_is_as_fast_as_before_needs_few_pairs() -> None:
    found = check("hits", COMMITTED, pairs(1.1))

    assert (found.failed, found.pairs) == (False, 6)
    assert found.measured.cpu == pytest.approx(1.1)


def test_a_slower_writer_fails_after_all_pairs() -> None:
    found = check("hits", COMMITTED, pairs(1.16))

    assert (found.failed, found.pairs) == (True, 16)
    assert verdict(found).endswith("16 pairs: FAILED")


def test_a_larger_file_fails() -> None:
    found = check("hits", COMMITTED, pairs(1.0, size=116))

    assert found.failed
    assert "size ratio 1.16 (committed 1.00, at most 1.15)" in verdict(found)


def test_disturbed_pairs_are_followed_by_others_before_it_fails() -> None:
    """Harm prevented: a check that fails on a busy machine, and is switched off."""
    found = check("hits", COMMITTED, pairs(*[1.5] * 9, 1.0))

    assert (found.failed, found.pairs) == (False, 10)


def test_every_table_has_committed_ratios() -> None:
    assert set(committed_ratios()) == {dataset.name for dataset in DATASETS}
    assert {of.tolerance for of in committed_ratios().values()} == {0.15}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_writer_is_as_fast_as_the_committed_ratios() -> None:
    """Harm prevented: an export that becomes slower by a sixth, and nobody measures."""
    program = [sys.executable, "-m", "tests.bench", "--quick"]

    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines()[1:]] == ["ok", "ok"]
