"""What a test program tells that needs a process of its own, as one that loads chdb does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.repository.source_files import ROOT

__all__ = ["RESULTS", "results_of"]

RESULTS: Final = "said.json"
"""The file in its directory in which a program leaves one JSON object: what came of each step."""


def results_of(module: str, directory: Path, *, seconds: float) -> dict[str, Any]:
    """Run `python -m module directory`; return what it left in `RESULTS`.

    Raises:
        CalledProcessError: it ended with an error.
        TimeoutExpired: it did not end in time.
    """
    subprocess.run(
        [sys.executable, "-m", module, str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=seconds,
    )
    read: dict[str, Any] = json.loads((directory / RESULTS).read_text())
    return read
