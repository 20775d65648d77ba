"""Defines the table properties that commits set (docs/spec/table-properties.md).

These are the mark of each key, the identity of the ledger, and the highest epoch of any commit. A
later run reads from them which exports landed. `export/commit.py` sets them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from tableformat.errors import DestinationError

__all__ = [
    "EPOCH_PROPERTY",
    "LEDGER_PROPERTY",
    "MARK_PREFIX",
    "Mark",
    "is_of_statement",
    "is_same_statement",
    "statement_fingerprint",
]

LEDGER_PROPERTY: Final = "mergeberg.ledger"
EPOCH_PROPERTY: Final = "mergeberg.epoch"
MARK_PREFIX: Final = "mergeberg.export."
_STATEMENT: Final = "statement-"
_ROUNDS: Final = 100_000
_DIGITS: Final = 12
_MARK: Final = re.compile(r"(\d+):([^:]+):([^:]*):(\d+)")


@dataclass(frozen=True, slots=True)
class Mark:
    """The proof that an export of a key, or a statement on it, landed.

    It is a table property that the same commit sets (docs/spec/commit-protocol.md; decision 0013).
    """

    epoch: int
    transaction_id: str
    fingerprint: str
    snapshot_id: int

    @property
    def text(self) -> str:
        """The property's value."""
        return f"{self.epoch}:{self.transaction_id}:{self.fingerprint}:{self.snapshot_id}"

    @property
    def is_of_statement(self) -> bool:
        """Whether a statement on the lake table landed, not an export."""
        return self.fingerprint.startswith(_STATEMENT)

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Parse the property's value.

        Raises:
            DestinationError: the text does not have the form of a mark.
        """
        found = _MARK.fullmatch(text)
        if found is None:
            message = (
                f"Cannot read the export mark {text!r} of the table: it is not "
                "epoch:transaction:fingerprint:snapshot. It was edited; put the value back from an "
                "earlier metadata file."
            )
            raise DestinationError(message)
        epoch, transaction_id, fingerprint, snapshot_id = found.groups()
        return cls(int(epoch), transaction_id, fingerprint, int(snapshot_id))


def statement_fingerprint(transaction_id: str, text: str = "") -> str:
    """Return the fingerprint of a statement, which is unique for each run of it.

    Two exports of the same content have the same fingerprint; two runs of a statement never have.

    Args:
        transaction_id: the transaction of the statement.
        text: the whole statement, if a later run must recognise a run whose outcome is unknown. The
            fingerprint has a short, slow digest of it, salted with the transaction, so that no
            value in the statement can be read from it.
    """
    if not text:
        return f"{_STATEMENT}{transaction_id}"
    digest = hashlib.pbkdf2_hmac("sha256", text.encode(), transaction_id.encode(), _ROUNDS)
    return f"{_STATEMENT}{transaction_id}-{digest.hex()[:_DIGITS]}"


def is_same_statement(mark: Mark, text: str) -> bool:
    """Whether a mark is of a statement with this text, of any transaction."""
    return bool(text) and mark.fingerprint == statement_fingerprint(mark.transaction_id, text)


def is_of_statement(fingerprint: str) -> bool:
    """Whether a fingerprint is that of a statement, not of an export."""
    return fingerprint.startswith(_STATEMENT)
