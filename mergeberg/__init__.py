"""The public Python package: ClickHouse partitions as Iceberg snapshots.

    import mergeberg

    mergeberg.export_partition(spark, "lake.n.events", "ch.db.events", partition_id="202401")

It re-exports the public names of `spark_ext` (`spark_ext.public_names`), and loads each at its
first use: `import mergeberg` alone loads neither PySpark nor PyIceberg.
"""

from importlib import import_module
from typing import Any

import spark_ext
from spark_ext.public_names import PUBLIC


def __getattr__(name: str) -> Any:
    """Return a public name of `spark_ext`, or `__version__`, the installed version."""
    if name == "__version__":
        # importlib.metadata imports the email package, which would slow down every import.
        return import_module("importlib.metadata").version("mergeberg")
    if name == "sql" or name in PUBLIC:
        return getattr(spark_ext, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    """Return the public names, for completion in editors."""
    return sorted((*PUBLIC, "sql", "__version__", "__doc__", "__name__"))
