"""The command line, CALL and Python have the same options, or this list says why one has not.

A new option of a command or a new parameter of a procedure fails here until it is listed: with its
name at the other interface, or with the reason why it is not there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
import pytest

import spark_ext
from spark_ext.cli.declarations import (
    archive_command,
    cancel_export,
    check,
    export,
    forget_export,
    gc,
    list_exports,
    partitions,
    parts,
    show_export,
    show_log,
    verify,
)
from spark_ext.sql.dispatch import PROCEDURES
from spark_ext.sql.statements import TYPED

_OF_SESSION = (
    "the session has it: spark.mergeberg.source.NAME.…, spark.mergeberg.ledger, its catalogs, Spark"
)
_OF_TERMINAL = "it is about what is printed, or asked at a terminal"
_SOURCE = (
    "--source", "--source-wait", "--source-config", "--allow-insecure", "--sync-timeout",
    "--ignore-row-policies", "--source-setting", "--staging-database", "--cluster-host",
)  # fmt: skip
COMMON: Mapping[str, str] = {
    **dict.fromkeys(
        (*_SOURCE, "--warehouse", "--ledger", "--connect-timeout", "--read-timeout", "--retry-for"),
        _OF_SESSION,
    ),
    **dict.fromkeys(("--master", "--conf", "--allow-alter"), _OF_SESSION),
    **dict.fromkeys(("--json", "--debug", "--quiet", "--verbose", "--yes"), _OF_TERMINAL),
}
"""The options that no procedure and no function has, and why."""
PARTITIONS = {
    "--partition-id": "partition_id",
    "--partition": "partition",
    "--all": "all_partitions",
}
LIMITS = {
    "--max-bandwidth": "max_bandwidth",
    "--max-slices": "max_slices",
    "--no-parallel-formatting": "parallel_formatting",
    "--target-file-size": "max_bytes_per_file",
}
MAPPING = {
    "--convert": "convert",
    "--partition-spec": "partition_spec",
    "--evolve-schema": "evolve_schema",
    "--strict": "strict",
}
ENDS = {"TABLE": "source", "--to": "table", "--cluster": "cluster"}


@dataclass(frozen=True)
class Interfaces:
    """A command, and what it is in CALL and in Python.

    `names` are the options by the parameters that they are; `only_here` options that have no
    parameter and `only_there` parameters that have no option, each with the reason.
    """

    command: click.Command
    procedures: tuple[str, ...]
    function: Callable[..., Any] | None
    names: Mapping[str, str]
    only_here: Mapping[str, str] | None = None
    only_there: Mapping[str, str] | None = None


_EXPORT = Interfaces(
    export,
    ("export_partition", "export_partitions"),
    None,
    {
        **ENDS, **LIMITS, **MAPPING,
        "--partition-id": "partition_id", "--partition": "partition", "--where": "where",
        "--hive-column": "hive_columns", "--force": "force", "--allow-empty": "allow_empty",
        "--max-replace": "max_replace", "--late-rows": "late_rows",
        "--replace-partition": "replace_partition", "--same-table": "same_table",
        "--overwrite-file-if-exists": "overwrite_file_if_exists", "--same-as": "same_as",
        "--commit-every": "commit_every", "--max-retries": "max_retries",
        "--manifest-ttl": "manifest_ttl", "--abandoned-ttl": "abandoned_ttl",
        "--incremental": "incremental",
        "--verify": "verify", "--check-rows": "check_rows", "--backfill": "backfill",
        "--dry-run": "dry_run", "--no-wait": "wait",
    },
    only_here={
        "--all": "export_partitions is this",
        "--grace": "a session is stopped by Spark, not by a signal",
        "--metrics-port": "the system tables metrics and events have the figures",
    },
)  # fmt: skip
EVERY = {
    "export": _EXPORT,
    "archive": Interfaces(
        archive_command,
        ("archive_partition",),
        spark_ext.archive,
        {
            **ENDS, **LIMITS, **MAPPING, **PARTITIONS, "--where": "where", "--drop": "drop",
            "--hive-column": "hive_columns", "--dry-run": "dry_run", "--late-rows": "late_rows",
            "--same-as": "same_as", "--max-replace": "max_replace",
        },
    ),
    "verify": Interfaces(
        verify,
        ("verify_partition",),
        spark_ext.verify,
        {**ENDS, **PARTITIONS, "--convert": "convert", "--same-as": "same_as"},
    ),
    "check": Interfaces(check, (), spark_ext.check, {**ENDS, **MAPPING}),
    "gc": Interfaces(
        gc,
        ("gc",),
        spark_ext.gc,
        {
            "--to": "table", "--source": "source", "--cluster": "cluster",
            "--older-than": "older_than", "--expire-dropped": "expire_dropped",
            "--keep-replaced": "keep_replaced", "--yes": "dry_run",
        },
        only_here={"--table": "`source` takes a table of a source, too"},
    ),
    "exports list": Interfaces(
        list_exports,
        ("exports",),
        spark_ext.exports,
        {"--to": "table", "--table": "source", "--status": "status", "--limit": "limit"},
        only_here={"--wide": _OF_TERMINAL, "--watch": _OF_TERMINAL},
    ),
    "exports show": Interfaces(
        show_export,
        (),
        spark_ext.show_export,
        {"PARTITION_ID": "partition_id", "--table": "source"},
        only_there={"table": "a name without a catalog needs a ledger, which it chooses"},
    ),
    "exports cancel": Interfaces(
        cancel_export,
        ("cancel_export",),
        spark_ext.cancel,
        {
            "PARTITION_IDS": "partition_id", "--to": "table", "--table": "source",
            "--wait": "wait", "--all": "all_exports",
        },
    ),
    "exports forget": Interfaces(
        forget_export,
        ("forget_export",),
        spark_ext.forget_export,
        {"PARTITION_ID": "partition_id", "--to": "table", "--table": "source"},
    ),
    "partitions": Interfaces(
        partitions,
        ("partitions",),
        spark_ext.partitions,
        {"TABLE": "table", "--cluster": "cluster"},
    ),
    "parts": Interfaces(
        parts,
        ("parts",),
        spark_ext.parts,
        {"TABLE": "table", "--partition-id": "partition_id", "--cluster": "cluster"},
    ),
    "exports log": Interfaces(
        show_log,
        (),
        spark_ext.log,
        {"--table": "source", "--since": "since", "--failed": "failed", "--limit": "limit"},
    ),
}  # fmt: skip
INTERFACES = pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)


def options(command: click.Command) -> set[str]:
    """Return the options and arguments of a command, an option by its first long name."""
    return {
        one.opts[0] if isinstance(one, click.Option) else str(one.name).upper()
        for one in command.params
    }


@INTERFACES
def test_every_option_is_a_parameter_or_is_listed_with_its_reason(one: Interfaces) -> None:
    """Harm prevented: `mergeberg gc` gets an option, and CALL is forgotten."""
    listed = {*one.names, *(one.only_here or {})}

    assert options(one.command) - {*COMMON} - listed == set()
    assert listed - options(one.command) == set()


@INTERFACES
def test_every_parameter_is_an_option_or_is_listed_with_its_reason(one: Interfaces) -> None:
    wanted = {*one.names.values(), *(one.only_there or {})}
    declared = {p.name for name in one.procedures for p in PROCEDURES[name].parameters}
    function = one.function
    taken = {*inspect.signature(function).parameters} - {"spark"} if function is not None else None

    if one.procedures:
        assert declared == wanted
    if taken is not None:
        assert taken == wanted


def test_every_procedure_that_has_a_command_is_compared() -> None:
    """Statements on lake tables are generated from one list for all interfaces."""
    compared = {name for one in EVERY.values() for name in one.procedures}
    alone = {"create_table_like", "execute_alter"}

    assert {*PROCEDURES} - {*TYPED} - compared == alone
