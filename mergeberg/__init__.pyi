# The public names of `mergeberg` are those of `spark_ext`, with the same types.

from spark_ext import ExportedPartition as ExportedPartition
from spark_ext import SessionTable as SessionTable
from spark_ext import attach_partition as attach_partition
from spark_ext import clear_column as clear_column
from spark_ext import clear_index as clear_index
from spark_ext import configure as configure
from spark_ext import delete_rows as delete_rows
from spark_ext import detach_partition as detach_partition
from spark_ext import drop_detached_partition as drop_detached_partition
from spark_ext import drop_partition as drop_partition
from spark_ext import enable as enable
from spark_ext import export_partition as export_partition
from spark_ext import export_partitions as export_partitions
from spark_ext import fetch_partition as fetch_partition
from spark_ext import forget_partition as forget_partition
from spark_ext import freeze as freeze
from spark_ext import move_partition as move_partition
from spark_ext import optimize as optimize
from spark_ext import register as register
from spark_ext import replace_partition as replace_partition
from spark_ext import sql as sql
from spark_ext import unfreeze as unfreeze
from spark_ext import update_rows as update_rows

__version__: str
