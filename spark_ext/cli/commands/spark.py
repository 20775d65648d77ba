"""The command `mergeberg spark`: starts Spark's own shell with mergeberg's SQL and settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource
from pyspark.find_spark_home import _find_spark_home

from catalog.iceberg.catalogs import LOCAL_CATALOG
from spark_ext.cli.option_values import pairs
from spark_ext.cli.output import output_for
from spark_ext.engine.jars import SparkHome
from spark_ext.engine.java import find_java
from spark_ext.engine.shell import Shell, ShellOptions
from tableformat.errors import UsageError

__all__ = ["spark"]

# Given to Spark's program, each would take the place of what is in our file.
_INSTEAD: Final = {
    "--jars": "--conf spark.jars=",
    "--packages": "--conf spark.jars.packages=",
    "--properties-file": "--conf ",
}
_JOINED: Final = ("spark.jars", "spark.jars.packages", "spark.sql.extensions")
_CONF: Final = ("--conf", "-c")


def spark(
    arguments: tuple[str, ...], sources: tuple[tuple[str, str], ...], master: str | None,
    conf: tuple[str, ...], warehouse: Path, ledger: str | None, *, python: bool
) -> None:  # fmt: skip
    """Run `mergeberg spark`; the process ends with the exit code of the shell."""
    _check(arguments)
    _check_names([name for name, _ in sources])
    given_by = click.get_current_context().get_parameter_source("warehouse")
    wanted = ShellOptions(
        dict(sources),
        pairs("--conf", conf),
        master,
        None if given_by is ParameterSource.DEFAULT else warehouse,
        ledger,
    )
    home = SparkHome(Path(_find_spark_home()))  # type: ignore[no-untyped-call]
    environ = {**os.environ, "JAVA_HOME": str(find_java(os.environ).home)}
    shell = Shell.made(wanted, home, environ)
    output = output_for(as_json=False)
    if shell.lacks_lake:
        output.note(
            f"{LOCAL_CATALOG} is PyIceberg's: it is exported to, and SELECT does not find it until "
            f"--conf spark.sql.catalog.{LOCAL_CATALOG}=… describes the same catalog to Spark"
        )
    # SystemExit ends the command without advice after the shell's own output.
    raise SystemExit(shell.with_jars(output).run(arguments, python=python))


def _check(arguments: Sequence[str]) -> None:
    for at, argument in enumerate(arguments):
        option, _, value = argument.partition("=")
        if option in _INSTEAD:
            raise _in_its_place(option, _INSTEAD[option])
        if option in _CONF:
            name = (value or "".join(arguments[at + 1 : at + 2])).partition("=")[0]
            if name in _JOINED:
                raise _in_its_place(f"{option} {name}", f"--conf {name}=")


def _in_its_place(given: str, instead: str) -> UsageError:
    message = (
        f"Cannot start the shell: after --, {given} would replace a setting that mergeberg needs. "
        f"Give {instead}… before --; it is added to the rest."
    )
    return UsageError(message)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            message = (
                f"Cannot start the shell: two sources are called {name!r}. Give each its own name: "
                "--source NAME=ADDRESS."
            )
            raise UsageError(message)
