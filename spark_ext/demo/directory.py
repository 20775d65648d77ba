"""Manages the directory of the demo, and checks that its contents belong together.

| the directory holds | then |
|---|---|
| nothing, or only our note | the demo creates everything |
| something, but not our note | it is refused: the directory is not ours |
| `db.events` and its ledger, no lake table yet | the demo exports: a run was interrupted |
| `db.events`, ledger, lake table with its files | the demo exports the rest, usually nothing |
| only some of these | it is refused, with a list of what is missing |

The demo creates note, ledger, `db.events` (named when it is complete) and lake table in
this order. The order distinguishes an interrupted run from a loss.

`DemoError` is a refusal with the one command that helps.
"""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.uris import LEDGER_FILE, open_ledger
from catalog.storages.local import local_directory
from spark_ext.demo.data import TABLE, Month, months
from tableformat.errors import DestinationError, RefusedError, UsageError
from tableformat.export.commit import check_table_of_ledger
from tableformat.ledger import Ledger
from tableformat.names import LakeName

__all__ = ["INSTALL", "LAKE_TABLE", "DemoDirectory", "DemoError", "Found", "look"]

INSTALL: Final = "pip install 'mergeberg[demo]'"
"""The command that installs the demo's dependencies."""


class DemoError(RefusedError):
    """The demo cannot continue, and has changed nothing; `next_command` is the remedy."""

    def __init__(self, message: str, *, next_command: str) -> None:
        """Keep the message and the command to run next."""
        super().__init__(message)
        self.next_command = next_command


LAKE_TABLE: Final = LakeName("lake", ("analytics",), "events")

_NOTE_FILE: Final = "about-this-directory.txt"
_NOTE: Final = """\
Made by `mergeberg demo`; remove the whole directory when you are done with it.

clickhouse/   the data directory of an embedded ClickHouse, with the table db.events
warehouse/    an Iceberg catalog and its files, with the table lake.analytics.events,
              and the ledger that knows what was exported
"""


@dataclass(frozen=True, slots=True)
class DemoDirectory:
    """The directory of a demo, with its subdirectories and files."""

    path: Path

    @property
    def clickhouse(self) -> Path:
        """The data directory of ClickHouse."""
        return self.path / "clickhouse"

    @property
    def warehouse(self) -> Path:
        """The directory of the lake's catalog and files, and of the ledger."""
        return self.path / "warehouse"

    @property
    def source(self) -> str:
        """The address of ClickHouse for `--source`."""
        return f"chdb:{self.clickhouse}"

    @property
    def remove_command(self) -> str:
        """The command that removes everything."""
        if self.path == Path("demo") and Path("Makefile").is_file():
            return "make clean-demo"
        return f"rm -r {shlex.quote(str(self.path))}"

    def open_clickhouse(self, *, create: bool = False) -> EmbeddedConnection:
        """Open ClickHouse.

        Raises:
            NotFoundError: the directory has no data, and `create` is False.
            SourceError: the data is in use, or cannot be opened.
        """
        return EmbeddedConnection(self.clickhouse, create=create)

    def open_ledger(self) -> Ledger:
        """Open the ledger of the demo's exports.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return open_ledger(None, local_warehouse=local_directory(self.warehouse))

    def lake_table(self) -> IcebergTable | None:
        """Return the lake table; None if it does not exist.

        Raises:
            DestinationError: the catalog or the table cannot be read.
        """
        return open_catalog(LAKE_TABLE.catalog, warehouse=self.warehouse).table(LAKE_TABLE)

    def make(self) -> None:
        """Write the note, and create the ledger if it does not exist.

        Raises:
            UsageError: the directory cannot be written.
            LedgerError: the ledger cannot be created.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / _NOTE_FILE).write_text(_NOTE, encoding="utf-8")
        except OSError as error:
            message = (
                f"Cannot create the demo in {self.path}: {error.strerror}. Choose a directory that "
                "you may write with --directory."
            )
            raise UsageError(message) from error
        # Reading the identity creates the ledger.
        with contextlib.closing(self.open_ledger()) as ledger:
            _ = ledger.identity


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of a demo directory: the months of `db.events`, and the lake table or None."""

    months: tuple[Month, ...]
    table: IcebergTable | None


def look(demo: DemoDirectory) -> Found:
    """Return the contents of a demo directory, also after an interrupted run; change nothing.

    Raises:
        DemoError: the directory is not a demo's, or something in it is missing.
        TableFormatError: ClickHouse, ledger or catalog cannot be read.
    """
    _check_own(demo)
    if open_catalog(LAKE_TABLE.catalog, warehouse=demo.warehouse).local_warehouse is None:
        message = (
            "Cannot run the demo: PyIceberg is configured with a catalog named "
            f"{LAKE_TABLE.catalog!r}, and the demo writes into its own directory only. Run it "
            "where .pyiceberg.yaml and PYICEBERG_CATALOG__LAKE__... do not configure it."
        )
        raise DemoError(message, next_command="mergeberg demo (where that is not configured)")
    found = _months(demo)
    with contextlib.closing(demo.open_ledger()) as ledger:
        table = _checked_table(demo, ledger)
        was_exported = any(ledger.rows())
        has_ledger = ledger.is_made()
    if not found and (table is not None or was_exported):
        raise _gone(demo, f"{TABLE}, from which the lake was filled, is not in {demo.clickhouse}")
    if found and not has_ledger:
        empty = not demo.warehouse.is_dir() or not any(demo.warehouse.iterdir())
        what = f"{demo.warehouse} is empty" if empty else f"there is no {LEDGER_FILE} in it"
        raise _gone(demo, f"{TABLE} is in {demo.clickhouse}, and {what}")
    if table is None and was_exported:
        raise _gone(
            demo, f"{LAKE_TABLE} is not in {demo.warehouse}, but the ledger has its exports"
        )
    return Found(found, table)


def _check_own(demo: DemoDirectory) -> None:
    path = demo.path
    if not path.exists() or (path / _NOTE_FILE).is_file() or not any(path.iterdir()):
        return
    message = (
        f"Cannot create the demo in {path}: the directory is not empty, and not the demo's (it has "
        f"no {_NOTE_FILE}). Choose a new one with --directory."
    )
    raise DemoError(message, next_command="mergeberg demo --directory a-new-directory")


def _months(demo: DemoDirectory) -> tuple[Month, ...]:
    # An interrupted first run can leave an empty directory, which ClickHouse cannot open.
    if not demo.clickhouse.is_dir() or not any(demo.clickhouse.iterdir()):
        return ()
    with demo.open_clickhouse(create=True) as clickhouse:
        return months(clickhouse)


def _checked_table(demo: DemoDirectory, ledger: Ledger) -> IcebergTable | None:
    """Return the lake table after a check of its files and its ledger; None if there is none."""
    try:
        table = demo.lake_table()
        if table is None:
            return None
        state = table.load()
        made_in = Path(state.location.removeprefix("file://"))
        if not made_in.resolve().is_relative_to(demo.warehouse.resolve()):
            what = f"{LAKE_TABLE} was made in {made_in}, and Iceberg's paths are absolute"
            raise _gone(demo, what)
        tasks = table.loaded.scan().plan_files()
        files = [Path(task.file.file_path.removeprefix("file://")) for task in tasks]
    except (DestinationError, OSError) as error:
        what = f"files of {LAKE_TABLE} are not in {demo.warehouse}, and its catalog names them"
        raise _gone(demo, what) from error
    missing = sum(not file.is_file() for file in files)
    if missing:
        what = f"{missing} of {len(files)} data files of {LAKE_TABLE} are not in {demo.warehouse}"
        raise _gone(demo, what)
    try:
        check_table_of_ledger(state, ledger)
    except RefusedError as error:
        what = f"the ledger {LEDGER_FILE} that knows what is in {LAKE_TABLE} is not in "
        raise _gone(demo, f"{what}{demo.warehouse}") from error
    return table


def _gone(demo: DemoDirectory, what: str) -> DemoError:
    message = (
        f"Cannot continue the demo in {demo.path}: {what}. Remove the demo with "
        f"`{demo.remove_command}` and run it again."
    )
    return DemoError(message, next_command=demo.remove_command)
