"""`import mergeberg` has every public name, and starts nothing by itself."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys

import mergeberg
import spark_ext
from spark_ext.public_names import PUBLIC
from tests.repository.source_files import ROOT

STUB = ast.parse((ROOT / "mergeberg" / "__init__.pyi").read_text())


def test_every_public_name_is_the_one_of_spark_ext() -> None:
    names = {name for name in dir(mergeberg) if not name.startswith("_")}

    assert names == {*PUBLIC, "sql"}
    assert all(getattr(mergeberg, name) is getattr(spark_ext, name) for name in names)


def test_a_notebook_completes_the_public_names() -> None:
    assert {*PUBLIC, "sql"} <= set(dir(mergeberg))
    assert {*PUBLIC, "sql"} <= set(dir(spark_ext))


def test_the_version_is_that_of_the_distribution() -> None:
    assert mergeberg.__version__ == importlib.metadata.version("mergeberg")


def test_the_stub_has_the_public_names() -> None:
    imported = [a.asname for n in STUB.body if isinstance(n, ast.ImportFrom) for a in n.names]

    assert sorted(map(str, imported)) == sorted([*PUBLIC, "sql"])


def test_importing_the_package_loads_no_spark() -> None:
    program = "import sys, mergeberg; print('pyspark' in sys.modules, 'pyarrow' in sys.modules)"

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert ran.stdout.split() == ["False", "False"]
