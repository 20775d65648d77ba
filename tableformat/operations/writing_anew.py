"""Which data files a statement can write anew as they are, and which not."""

from __future__ import annotations

from tableformat.branches import BranchFile
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.operations.partition_files import PartitionFiles

__all__ = ["refuse_deletes", "refuse_other_columns", "refuse_other_spec"]


def refuse_other_columns(what: object, there: PartitionFiles, schema_id: int) -> None:
    """Refuse a table that has other columns than those that files are read as.

    Raises:
        RefusedError: they were changed meanwhile.
    """
    if there.schema_id != schema_id:
        message = (
            f"Cannot run {what}: the columns of the table were changed meanwhile. Run the "
            "statement again."
        )
        raise RefusedError(message)


def refuse_deletes(what: object, file: BranchFile) -> None:
    """Refuse a file to which delete files may apply.

    Raises:
        UnsupportedError: they may.
    """
    if file.deletes:
        why = f"rows of {file.path} may have been taken away by delete files (merge on read)"
        raise _refused(what, why)


def refuse_other_spec(what: object, file: BranchFile, there: PartitionFiles) -> None:
    """Refuse a file of another partition spec than the table has now.

    Raises:
        UnsupportedError: it is of another one.
    """
    if file.spec_id != there.spec_id:
        why = (
            f"{file.path} was written for partition spec {file.spec_id}, and the table's is "
            f"{there.spec_id} now"
        )
        raise _refused(what, why)


def _refused(what: object, why: str) -> UnsupportedError:
    message = (
        f"Cannot run {what}: {why}. Let Iceberg write these files anew first: CALL "
        "<catalog>.system.rewrite_data_files(table => '…', options => "
        "map('rewrite-all', 'true')), and run the statement again."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)
