"""What commits leave in the properties of a lake table (docs/spec/table-properties.md).

The mark of each key, the identity of the ledger, and the highest epoch that a commit carried: by
them a later run tells what landed. The protocol that sets them is `export/commit.py`.
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
    "asked_again",
    "is_of_statement",
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

    A property that is set in the same commit (docs/spec/commit-protocol.md; decision 0013).
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
        """Whether a statement on the lake table landed, and no export."""
        return self.fingerprint.startswith(_STATEMENT)

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Read the property's value.

        Raises:
            DestinationError: it does not have the form of a mark.
        """
        found = _MARK.fullmatch(text)
        if found is None:
            message = (
                f"Cannot read the export mark {text!r} of the table: it is not "
                "epoch:transaction:fingerprint:snapshot. Somebody edited it; put the value back "
                "from an earlier metadata file."
            )
            raise DestinationError(message)
        epoch, transaction_id, fingerprint, snapshot_id = found.groups()
        return cls(int(epoch), transaction_id, fingerprint, int(snapshot_id))


def statement_fingerprint(transaction_id: str, asked: str = "") -> str:
    """Return what a statement has in the place of an export's fingerprint: no other has the same.

    A statement that is made again is another one, however alike; an export of the same content is
    not.

    Args:
        transaction_id: of the statement.
        asked: the whole statement, where a run of it that could not answer must be known again. It
            is kept as a short, slow digest, salted with the transaction: no value can be read.
    """
    if not asked:
        return f"{_STATEMENT}{transaction_id}"
    digest = hashlib.pbkdf2_hmac("sha256", asked.encode(), transaction_id.encode(), _ROUNDS)
    return f"{_STATEMENT}{transaction_id}-{digest.hex()[:_DIGITS]}"


def asked_again(mark: Mark, asked: str) -> bool:
    """Whether what landed is this very statement, by another transaction."""
    return bool(asked) and mark.fingerprint == statement_fingerprint(mark.transaction_id, asked)


def is_of_statement(fingerprint: str) -> bool:
    """Whether a fingerprint is that of a statement, and of no export."""
    return fingerprint.startswith(_STATEMENT)
