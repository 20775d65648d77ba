"""A foreign module under one of our names is found before it is imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("catalog", "spark_ext", "tableformat")
HARM = "print('the foreign module was run')"


def run(statement: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run one statement in a fresh interpreter with these places first on its path."""
    program = f"import sys; sys.path[:0] = {[str(place) for place in path]}; {statement}"
    return subprocess.run(
        [sys.executable, "-I", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("kind", ["file", "package"])
@pytest.mark.parametrize(
    ("imported", "foreign"),
    [
        (ours, foreign)
        for ours in ("tableformat", "spark_ext")
        for foreign in NAMES
        if ours != foreign
    ],
)
def test_a_foreign_module_is_named_and_never_run(
    tmp_path: Path, imported: str, foreign: str, kind: str
) -> None:
    """Half of theirs and half of ours would fail far from the cause."""
    place = tmp_path / (f"{foreign}.py" if kind == "file" else foreign)
    file = place if kind == "file" else place / "__init__.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(HARM)

    done = run(f"import {imported}", tmp_path, ROOT)

    assert done.returncode == 1
    assert done.stdout == ""
    last_line = done.stderr.strip().splitlines()[-1]
    assert (
        f"the module '{foreign}' at {place} hides mergeberg's own at {ROOT / foreign}" in last_line
    )
    assert "Rename or move the other one" in last_line


def test_a_foreign_module_in_the_working_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "catalog.py").write_text(HARM)

    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r}); import tableformat"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert "ForeignModuleError: Cannot import mergeberg: the module 'catalog' at" in done.stderr


def test_a_foreign_module_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.py").write_text("")

    done = run(f"import catalog; sys.path.insert(0, {str(ROOT)!r}); import spark_ext", tmp_path)

    assert done.returncode == 1
    assert f"the module 'catalog' at {tmp_path / 'catalog.py'} hides" in done.stderr


@pytest.mark.parametrize("imported", ["tableformat", "spark_ext"])
def test_a_plain_folder_of_the_same_name_does_no_harm(tmp_path: Path, imported: str) -> None:
    """A data folder called `catalog` is common, and Python passes it over."""
    (tmp_path / "catalog").mkdir()

    done = run(f"import {imported}", tmp_path, ROOT)

    assert (done.returncode, done.stderr) == (0, "")


def test_ours_from_a_zip_file_are_ours(tmp_path: Path) -> None:
    """Executors get our code as a zip file."""
    archive = tmp_path / "mergeberg.zip"
    with zipfile.ZipFile(archive, "w") as shipped:
        for name in NAMES:
            shipped.write(ROOT / name / "__init__.py", f"{name}/__init__.py")
        shipped.write(ROOT / "tableformat/own_modules.py", "tableformat/own_modules.py")

    done = run("import tableformat; print(tableformat.__file__)", archive)

    assert (done.returncode, done.stderr) == (0, "")
    assert str(archive) in done.stdout
