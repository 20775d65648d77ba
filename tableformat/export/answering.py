"""Whether a partition is exported, by who asks: an export, or a statement that says what it does.

Of a partition that is archived nothing is exported, whoever asks (`archived.py`).

ATTACH and REPLACE PARTITION … FROM a ClickHouse table are exports with that effect (decision 0013).
What is said instead of an export is `claim.answer`'s. A statement is refused by no time to live,
and what it brings is what the source has when it is run: ATTACH never takes a row out, and REPLACE
leaves nothing else there.
"""

from __future__ import annotations

from tableformat.archived import Archived
from tableformat.export.archived import refuse_archived
from tableformat.export.claim import Answer, Go, Wish, answer, source_gone, unfinished
from tableformat.export.content import Content, is_merged
from tableformat.export.in_main import Holding
from tableformat.export.outcome import Status
from tableformat.ledger import Claim, Row, State
from tableformat.quantities import counted

__all__ = ["answered"]


def answered(
    row: Row | None, content: Content | None, wish: Wish, held: Holding, now: int
) -> Answer | Go:
    """Return what is said instead of exporting, or that the partition is to be exported.

    Args:
        row: the key's row, None when it was never exported.
        content: what the source partition holds; None when it has no active part any more.
        wish: how the user asked.
        held: what main holds of the key.
        now: milliseconds since 1970.
    """
    if row is not None and row.move is not None:
        return Answer(Status.REFUSED, unfinished(row, row.move))
    if not wish.is_of_statement:
        if row is not None and row.archived is not None:
            return _archived(row, row.archived, content, wish, held)
        return answer(row, content, wish, held, now)
    if content is None:
        return Answer(Status.EMPTY, "the source has no part of it")
    if row is not None and _has_it(row, content, held):
        return Answer(Status.UNCHANGED, f"its rows are there already: {held.text}")
    if row is not None and row.archived is not None:
        return _of_archived(row, row.archived, content)
    if wish.attaches and (held.files or not held.is_known):
        return Answer(Status.REFUSED, there_twice(held))
    return Go(_begun(row, content))


def _archived(
    row: Row, archived: Archived, content: Content | None, wish: Wish, held: Holding
) -> Answer:
    """Say of an archived partition what is true of main, or refuse: none of it is exported."""
    if row.done is not None and not wish.force:
        if content is None:
            return source_gone(row.done, held)
        if _has_it(row, content, held):
            landed = row.done.landed
            text = f"{counted(landed.rows, 'row')} in the lake, snapshot {landed.snapshot_id}."
            return Answer(Status.ALREADY_EXPORTED, text)
    return _of_archived(row, archived, content)


def _of_archived(row: Row, archived: Archived, content: Content | None) -> Answer:
    rows, parts = (content.rows, len(content.parts)) if content is not None else (0, 0)
    return Answer(Status.REFUSED, refuse_archived(row, archived, rows, parts))


def there_twice(held: Holding) -> str:
    """Say that main may have rows that are to be attached."""
    return (
        f"main has rows of this partition of the source already, and they could be there twice. "
        f"{held.text} Use REPLACE PARTITION, or DROP PARTITION first."
    )


def _has_it(row: Row, content: Content, held: Holding) -> bool:
    """Whether main has an export of the key, whole, and the source is as it was then."""
    done = row.done
    if done is None or not held.holds(done.landed):
        return False
    return content.fingerprint == done.landed.fingerprint or is_merged(done, content)


def _begun(row: Row | None, content: Content) -> Claim | None:
    """Return the claim of an export that was begun, if what it froze is what the source has."""
    if row is None or row.state is not State.RUNNING or row.claim.statement:
        return None
    same = row.claim.fingerprint == content.fingerprint or is_merged(row.claim, content)
    return row.claim if same else None
