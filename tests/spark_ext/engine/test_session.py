"""The Java of a Spark that the command line starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os
from spark_ext.engine.session import SparkSettings, open_session
spark = open_session(SparkSettings("local[1]"))
java = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(json.dumps([[*java.getInputArguments()], os.environ.get("SPARK_SUBMIT_OPTS")]))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("given", [None, "-XX:TieredStopAtLevel=3 -Dof.the=user"])
def test_java_starts_quickly_and_with_what_the_user_says(tmp_path: Path, given: str | None) -> None:
    """Harm prevented: an owner's trust store or memory settings are lost to a default of ours."""
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -Dof.the=file\n")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(tmp_path)}
    environ.pop("SPARK_SUBMIT_OPTS", None)
    if given is not None:
        environ["SPARK_SUBMIT_OPTS"] = given

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True
    )

    arguments, left = json.loads(done.stdout)
    ours = ["-XX:TieredStopAtLevel=1", *(given or "").split()]
    first = arguments.index(ours[0])
    assert arguments[first : first + len(ours)] == ours
    assert "-Dof.the=file" in arguments
    assert left == given
