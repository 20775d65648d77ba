"""Parses and runs ClickHouse's statements in Spark SQL, and handles calls from the JVM.

The package is also the function `spark_ext.sql(spark, text)`, which `spark_ext.python_api` owns.
It imports no PySpark: the command line shows the statements in its help without it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A module that can be called as a function, by way of its `__class__`."""

    def __call__(self, spark: Any, text: str, **how: Any) -> Any:
        """Run a ClickHouse statement about partitions, or any other statement with Spark.

        Args:
            spark: the session.
            text: one statement.
            how: the keyword arguments of `spark_ext.python_api.sql`.

        Raises:
            TableFormatError: a ClickHouse statement cannot be parsed or run.
        """
        # Not imported at the top: python_api imports modules of this package.
        return import_module("spark_ext.python_api").sql(spark, text, **how)


sys.modules[__name__].__class__ = _CallablePackage
