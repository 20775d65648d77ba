"""Spark SQL's side: ClickHouse's statements as values, and who answers a call from SQL.

The package is also the function `spark_ext.sql(spark, text)`, which `spark_ext.python_api` owns.
It imports no PySpark: the command line shows the statements in its help without it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """This package, which can be called: a module's class is the documented place for that."""

    def __call__(self, spark: Any, text: str, **how: Any) -> Any:
        """Run a statement of ClickHouse's about partitions, else whatever Spark makes of it.

        Args:
            spark: the session.
            text: one statement.
            how: as `spark_ext.python_api.sql` has it.

        Raises:
            TableFormatError: it is one of ClickHouse's, and cannot be read or done.
        """
        # Not at the top: it is made of this package's own modules.
        return import_module("spark_ext.python_api").sql(spark, text, **how)


sys.modules[__name__].__class__ = _CallablePackage
