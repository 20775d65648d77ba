"""The end of an export that can never land: FAILED for good, and its files go (step 9).

That is after a certain conflict: the table is not any more what the files were written for, and
every request is dead. Whatever else ends an export leaves it resumable (coverage.md reading 9).
"""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.errors import TableFormatError
from tableformat.export.cleaning import Cleaning
from tableformat.export.destination import Destination
from tableformat.export.giving_up import GivenUp, kill
from tableformat.export.ports import JobPorts
from tableformat.export.settling import Ports
from tableformat.export.telling import Telling
from tableformat.ledger import Row, State
from tableformat.quantities import counted

__all__ = ["FinalFailure"]


@dataclass(frozen=True, slots=True)
class FinalFailure:
    """Ends exports into one destination."""

    ports: JobPorts
    commit_ports: Ports
    to: Destination
    telling: Telling

    def end(self, row: Row, why: str) -> str:
        """Give an export up whose key this run has the lease of, and remove its files.

        Returns:
            What became of it, as the end of a sentence. What cannot be proved dead stays resumable.
        """
        key = row.key.hash
        try:
            ended = kill(self.commit_ports, key, state=State.FAILED, why=why)
            if not isinstance(ended, GivenUp):
                return self.telling.note_error(row, why)
            cleaning = Cleaning(self.commit_ports, self.ports.storage, self.to.location)
            cleaned = cleaning.clean(key)
        except TableFormatError as error:
            noted = self.telling.note_error(row, why)
            return f"{noted} (what it left behind stays: {error} `mergeberg gc` removes it)"
        return f" ({counted(cleaned.files, 'file')} of it removed)" if cleaned.files else ""
