# The public names of `spark_ext/__init__.py` with their types. `sql` is a package that can be
# called, which a type checker does not see by itself.

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_ext.bridge import register as register
from spark_ext.python_api import ExportedPartition as ExportedPartition
from spark_ext.python_api import export_partition as export_partition
from spark_ext.python_api import export_partitions as export_partitions
from spark_ext.session_table import SessionTable as SessionTable
from spark_ext.setting_up import configure as configure
from spark_ext.setting_up import enable as enable

def sql(
    spark: SparkSession, text: str, *, tables: Mapping[str, SessionTable] = ...
) -> DataFrame: ...
