"""A user's own Spark session, for `watched_session.py`: it does what a file says, and ends.

The session is configured as a user does it, by Spark's own files; nothing of it is ours. Each step
is printed with what came of it. The pages of Spark's web interface are written down before the end.
"""

from __future__ import annotations

import json
import sys
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark_ext.sql.catalogs import open_named, settings_of
from spark_ext.sql.dispatch import respond

__all__: list[str] = []

_PAGES: Final = (
    "environment/",
    "jobs/",
    "stages/",
    "executors/",
    "SQL/",
    "api/v1/applications",
    "api/v1/applications/{application}/environment",
    "api/v1/applications/{application}/sql?details=true&planDescription=true&length=1000",
)


def _step(spark: SparkSession, step: dict[str, str]) -> str:
    """Do one step: `call` a procedure, run `sql`, or `open` a catalog and look into it."""
    match step:
        case {"call": _}:
            return respond(json.dumps(step), spark)
        case {"sql": text}:
            return str(spark.sql(text).collect())
        case {"open": name}:
            return str(open_named(name, settings_of(spark)).catalog.list_namespaces())
        case _:
            message = f"there is no such step: {step}"
            raise AssertionError(message)


def _keep_pages(spark: SparkSession, directory: Path) -> None:
    context = spark.sparkContext
    for page in _PAGES:
        place = page.format(application=context.applicationId)
        with urllib.request.urlopen(f"{context.uiWebUrl}/{place}", timeout=30) as shown:  # noqa: S310
            name = place.partition("?")[0].strip("/").replace("/", "_")
            (directory / f"{name}.page").write_bytes(shown.read())


def _main(file: Path) -> None:
    steps = json.loads(file.read_text())
    spark = SparkSession.builder.getOrCreate()
    try:
        for step in steps:
            try:
                result = _step(spark, step)
            except Exception:  # noqa: BLE001  what a user sees of it is looked at
                result = traceback.format_exc()
            sys.stdout.write(f"STEP {json.dumps(step)}\n{result}\n")
        _keep_pages(spark, file.parent)
    finally:
        spark.stop()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
