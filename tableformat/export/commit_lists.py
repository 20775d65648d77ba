"""Stores, before each commit, the list of the exports that it makes visible; reads such lists.

The list is a JSON file in the table's location; the snapshot's summary names it. `exports rebuild`
makes a lost ledger again from the lists and from the files in main (docs/spec/files.md).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from tableformat.errors import LedgerError
from tableformat.export.destination import Group, WrittenClaim
from tableformat.file_names import RECEIPTS
from tableformat.ledger import Held, Key
from tableformat.mergetree.table import KeeperNode
from tableformat.storage import Storage

__all__ = [
    "LIST_FORMAT",
    "ListedExport",
    "list_location",
    "listed_in",
    "read_lists",
    "store_list",
]

LIST_FORMAT: Final = 4
_READ: Final = (1, 2, 3, LIST_FORMAT)
"""Lists of format 1 have no Keeper nodes, of format 2 no increments, of format 3 no `stays`."""


@dataclass(frozen=True, slots=True)
class ListedExport:
    """One export on the list of a commit. The list does not prove that the commit landed.

    `keeper_node` is the Keeper node of the source table, None if it is unknown. `stays` are the
    files of earlier exports next to which it lands: `rows` and `bytes` include them, not `files`.
    """

    source: str
    source_table: str
    destination: str
    partition_id: str
    transaction_id: str
    epoch: int
    fingerprint: str
    rows: int
    bytes: int
    files: tuple[str, ...]
    keeper_node: KeeperNode | None = None
    increment: int = 0
    stays: tuple[Held, ...] = ()

    @property
    def key(self) -> Key:
        """The key in the ledger."""
        return Key(self.source, self.partition_id, self.destination, self.increment)


def list_location(table_location: str) -> str:
    """Return the location below which the lists of a table are stored."""
    return f"{table_location.rstrip('/')}/{RECEIPTS}/groups"


def store_list(
    storage: Storage, table_location: str, name: str, written: tuple[WrittenClaim, ...]
) -> Group:
    """Store the list of a commit; return its name, location and digest for the summary.

    Raises:
        DestinationError: the storage failed.
    """
    listed = [
        ListedExport(
            w.row.key.source,
            w.row.source_table,
            w.row.key.destination,
            w.row.key.partition_id,
            w.row.claim.transaction_id,
            w.row.claim.epoch,
            w.row.claim.fingerprint,
            w.row.claim.rows,
            w.row.bytes_with(w.row.claim),
            tuple(r.file_path for r in w.receipts),
            w.row.keeper_node,
            w.row.key.increment,
            w.row.claim.stays,
        )
        for w in written
    ]
    body = {
        "format_version": LIST_FORMAT,
        "group": name,
        "exports": [{"key": one.key.hash, **asdict(one)} for one in listed],
    }
    text = json.dumps(body, indent=1).encode()
    location = f"{list_location(table_location)}/{name}.json"
    storage.put(location, text)
    return Group(name, location, hashlib.sha256(text).hexdigest())


def read_lists(storage: Storage, table_location: str) -> tuple[ListedExport, ...]:
    """Return the exports on all lists of a table.

    Raises:
        DestinationError: the lists cannot be listed or read.
        LedgerError: a list is damaged, or of a newer format.
    """
    found: list[ListedExport] = []
    for stored in storage.list(list_location(table_location)):
        found.extend(listed_in(stored.location, storage.read(stored.location)))
    return tuple(found)


def listed_in(location: str, text: bytes) -> tuple[ListedExport, ...]:
    """Return the exports in the text of the list at a location.

    Raises:
        LedgerError: the list is damaged, or of a newer format.
    """
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["format_version"] not in _READ:
            message = (
                f"Cannot read {location}: it has format {raw['format_version']}, this release "
                f"reads {LIST_FORMAT}. Use the release that wrote it, or a newer one."
            )
            raise LedgerError(message)
        return tuple(_export(one) for one in raw["exports"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"Cannot read {location}: {error}. The list is damaged; restore it from a copy."
        raise LedgerError(message) from error


def _export(raw: dict[str, Any]) -> ListedExport:
    fields = {k: v for k, v in raw.items() if k != "key"}
    node = fields.pop("keeper_node", None)
    fields["files"] = tuple(fields["files"])
    fields["stays"] = tuple(Held(**one) for one in fields.get("stays", ()))
    return ListedExport(**fields, keeper_node=KeeperNode(**node) if node else None)
