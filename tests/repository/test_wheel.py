"""What is installed is the product, all of it and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.repository.source_files import PACKAGES, ROOT, source_files


def test_the_wheel_is_the_packages_and_nothing_else(tmp_path: Path) -> None:
    """A folder `tests` or `conformance` in site-packages would hide somebody else's."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    own = {name for name in names if not name.startswith("mergeberg-")}
    assert {name.partition("/")[0] for name in own} == set(PACKAGES)
    assert {file.path for file in source_files(*PACKAGES)} <= own
    assert {f"{package}/py.typed" for package in PACKAGES} <= own
    assert "spark_ext/jvm/mergeberg-spark.jar" in own
    assert any(name.endswith("/licenses/LICENSE") for name in names)
