"""Lists the public names of `spark_ext`, and the modules that define them.

This module imports none of them, because tasks import the package and need none of these modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["PUBLIC"]

_STATEMENTS: Final = (
    "attach_partition",
    "clear_column",
    "clear_index",
    "delete_rows",
    "detach_partition",
    "drop_detached_partition",
    "drop_partition",
    "fetch_partition",
    "forget_partition",
    "freeze",
    "move_partition",
    "optimize",
    "replace_partition",
    "unfreeze",
    "update_rows",
)
_ACTIONS: Final = (
    "archive",
    "cancel",
    "check",
    "create_table_like",
    "exports",
    "forget_export",
    "gc",
    "log",
    "partitions",
    "parts",
    "show_export",
    "verify",
)
_VALUES: Final = (
    "ArchivedPartition",
    "CancelledExport",
    "CheckedTable",
    "CreatedTable",
    "ExportRecord",
    "ForgottenExport",
    "Leftover",
    "ListedPart",
    "ListedPartition",
    "LoggedOutcome",
    "ShownExport",
    "SourcePart",
    "VerifiedPartition",
)
PUBLIC: Final[Mapping[str, str]] = {
    **dict.fromkeys(_ACTIONS, "spark_ext.python_actions"),
    **dict.fromkeys(_VALUES, "spark_ext.python_values"),
    **dict.fromkeys(_STATEMENTS, "spark_ext.python_api"),
    "configure": "spark_ext.set_up",
    "enable": "spark_ext.set_up",
    "register": "spark_ext.set_up",
    "ExportedPartition": "spark_ext.python_api",
    "SessionTable": "spark_ext.python_api",
    "export_partition": "spark_ext.python_api",
    "export_partitions": "spark_ext.python_api",
}
